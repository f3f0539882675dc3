"""Which kernels were verified on which device: stamps, and which of them are stale.

    python tools/stamps.py                        the state of every stamp
    python tools/stamps.py --verify line_dot …    on a machine with the device: test, and stamp

A test run elsewhere says nothing about another vendor's compiler, and no machine that tests every
change has every GPU. So tests/stamps.json says what text of a kernel was last verified where: the
digest of what it renders to for a list of problems, the device and its driver, the day, and how
many tests passed. A kernel whose text has changed since has a stale stamp.
"""

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.device_profile import DeviceProfile  # noqa: E402
from clmatmul.errors import ConfigError  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.plan import make_plan, render  # noqa: E402
from clmatmul.problem import ArrayView, Problem  # noqa: E402
from clmatmul.variants import all_variants, load_variant  # noqa: E402

STAMPS = ROOT / "tests" / "stamps.json"
PROFILES = ROOT / "tests" / "profiles"
_SIZES = ((64, 48, 80), (1, 300, 2000), (300, 1, 2000), (16, 512, 512), (2, 3, 100_000))


@dataclass(frozen=True)
class Stamp:
    """One verification. profile: the file in tests/profiles that the texts are rendered for."""

    variant: str
    profile: str
    device: str
    driver: str
    date: str
    tests: int
    digest: str


def digest_of(variant, profile):
    """SHA-256 of what a variant renders to, for its test configurations and proposals.

    A variant that asks for probes is rendered as if they had gone well, and in every layout.
    """
    sha = hashlib.sha256()
    probes = dict(variant.header.get("PROBES", {}))
    if any("compute_capability" in x.text for x in variant.requires):
        probes["compute_capability"] = 90
    profile = profile.with_probes(**probes) if probes else profile
    for problem in _problems(bool(probes)):
        if variant.unmet(problem.kind, profile):
            continue
        for config in _configs(variant, problem, profile):
            try:
                texts = render(make_plan(problem, profile, config))
            except ConfigError:
                continue  # no configuration for this size, by the variant's own word
            sha.update("".join(texts).encode())
    return sha.hexdigest()


def _problems(every_layout):
    for dtype in ("float32", "float64", "complex64", "bfloat16", "float16", "int8"):
        for layout in ("NN", "NT", "TN", "TT") if every_layout or dtype == "float32" else ("NN",):
            for size in _SIZES:
                yield plain_problem(*size, dtype, layout)
    for dtype in ("float32", "float16"):
        for size in _SIZES:
            yield plain_problem(*size, dtype, batch=(3,))
            yield _fused(*size, dtype)


def _fused(m, n, k, dtype):
    def view(rows, cols):
        return ArrayView(dtype, (rows, cols), (cols, 1), 0, 64)

    bias = ArrayView(dtype, (n,), (1,), 0, 64)
    return Problem.from_arrays(
        view(m, k), view(k, n), view(m, n), result=dtype,
        epilogue={"bias": bias, "activation": "gelu"},
    )  # fmt: skip


def _configs(variant, problem, profile):
    values = list(variant.header.get("TEST_CONFIGS", ()))
    propose = variant.header.get("propose")
    if propose is not None:
        values += [x for _, x, _ in propose(problem, profile)]
    return [TileConfig.of(variant.name, **x) for x in values]


def read_stamps():
    if not STAMPS.is_file():
        return []
    return [Stamp(**x) for x in json.loads(STAMPS.read_text())]


def read_profile(name):
    return DeviceProfile.from_json((PROFILES / name).read_text())


def stale(stamps):
    """The stamps whose kernels have another text by now, or are gone."""
    names = {x.name for x in all_variants()}
    return [
        x for x in stamps
        if x.variant not in names
        or digest_of(load_variant(x.variant), read_profile(x.profile)) != x.digest
    ]  # fmt: skip


def verify(names, profile_name, processes):
    """Test each variant on this machine's GPU, in so many processes; stamps of those that pass."""
    from clmatmul.selection import resolve

    device = resolve("gpu")
    profile = read_profile(profile_name)
    if device.profile.name != profile.name:
        raise SystemExit(f"stamps: this is {device.profile.name}, and {profile_name} is not")
    digests = {name: digest_of(load_variant(name), profile) for name in names}
    with ThreadPoolExecutor(len(names)) as pool:
        counts = dict(zip(names, pool.map(lambda x: _passed(x, processes), names), strict=True))
    for name, count in counts.items():
        print(f"{name}: {f'{count} tests passed' if count else 'FAILED'}")
    today = datetime.date.today().isoformat()
    return [
        Stamp(name, profile_name, device.profile.name, device.profile.driver_version, today,
              count, digests[name])
        for name, count in counts.items() if count
    ]  # fmt: skip


def _passed(name, processes):
    """How many tests of a variant passed; 0 if one failed."""
    files = ["tests/test_kernels.py"]
    files += [f"tests/{x}" for x in ("test_register_blocked.py", "test_gpu_lines.py")]
    # nv_mma is no nv_mma_f64
    others = "".join(f" and not {x.name}" for x in all_variants() if x.name.startswith(name + "_"))
    parallel = ["-n", str(processes)] if processes > 1 else []  # pytest-xdist's
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *parallel, *files, "-k",
         name + others],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"(\d+) passed", run.stdout)
    if run.returncode or not found:
        print(run.stdout[-2000:], file=sys.stderr)
        return 0
    return int(found.group(1))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--verify", nargs="+", metavar="VARIANT", help="test on the GPU here")
    parser.add_argument("--profile", default="nvidia-h200.json", help="of tests/profiles")
    parser.add_argument("--processes", type=int, default=1, help="for each variant's tests")
    parser.add_argument("--output", type=Path, default=STAMPS, help="where to write the stamps")
    options = parser.parse_args(arguments)
    if options.verify:
        fresh = verify(options.verify, options.profile, options.processes)
        names = {x.variant for x in fresh}
        kept = [x for x in read_stamps() if x.variant not in names or x.profile != options.profile]
        stamps = sorted([*kept, *fresh], key=lambda x: (x.profile, x.variant))
        options.output.write_text(json.dumps([asdict(x) for x in stamps], indent=1) + "\n")
        return int(len(fresh) < len(options.verify))
    stamps = read_stamps()
    old = stale(stamps)
    for x in stamps:
        state = "stale" if x in old else "verified"
        print(f"{x.variant}: {state}, {x.tests} tests, {x.device}, driver {x.driver}, {x.date}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The process of tools/mutate that computes: each mutant in a child of its own.

This process never touches OpenCL, so that it may fork: a child opens the device, builds the one
changed program and runs the cases. What became of each mutant is told on standard output, one
JSON object a line.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["CLMATMUL_CACHE"] = "0"

import conformance_matrix  # noqa: E402
import numpy as np  # noqa: E402
from conformance_plugin import keep_buffers  # noqa: E402
from kinds import plain_kind, test_configs  # noqa: E402
from mutants import mutants  # noqa: E402

from clmatmul import executable, selection  # noqa: E402
from clmatmul.cases import make_case  # noqa: E402
from clmatmul.device import Device  # noqa: E402
from clmatmul.device_profile import DeviceProfile  # noqa: E402
from clmatmul.errors import BuildError, ClmatmulError, ConfigError  # noqa: E402
from clmatmul.plan import make_plan, render_launch  # noqa: E402
from clmatmul.trial import check_case, check_sizes  # noqa: E402
from clmatmul.variants import load_variant, variant_names  # noqa: E402

SECONDS = 40  # for a mutant; a loop without an end is a fault that is found
_SEED = 20260103


@dataclass(frozen=True)
class Fate:
    """What became of a mutant. how: build, wrong, crash, hang, simulator or survived."""

    variant: str
    kind: str
    config: str
    entry: str
    operator: str
    number: int
    before: str
    after: str
    key: str
    how: str
    note: str = ""


@dataclass(frozen=True)
class Target:
    """One kind of problem in one configuration of a variant: what its programs are tested by."""

    kind: object
    config: object

    def cases(self):
        """(size, data) in the order in which they are likely to find something."""
        floating = "float" in self.kind.compute or "complex" in self.kind.compute
        plain = self.kind.activation == "none" and self.kind.alpha != "zero"
        first, *others = sizes = self.sizes()
        for data in ("exact", "ids_a", "ids_b"):
            yield first, data
        for size in others:
            yield size, "exact"
        for size in sizes[1:3]:
            yield size, "ids_a"
            yield size, "ids_b"
        if floating and plain and not self.kind.aux:
            yield from ((size, "special") for size in sizes[:3] for _ in range(2))
        if floating:
            yield first, "random"

    def sizes(self):
        """The first-use check's sizes, and one with several tiles each way."""
        found = check_sizes(self.config)
        m, n, k = found[0]
        return (*found, (2 * m + 3, 2 * n + 5, k + 2), (m, n, 1), (m - 1, n + 1, k - 1))

    def case(self, size, data):
        return make_case(self.kind, *size, data, np.random.default_rng(_SEED))

    def texts(self, profile):
        """text → entry point of each program that the cases run."""
        found = {}
        for size in self.sizes():
            with suppress(ConfigError):
                plan = make_plan(self.case(size, "exact").problem, profile, self.config)
                found.update((render_launch(plan, x), x.entry) for x in plan.launches)
        return found


def kinds_of(variant):
    """Kinds whose programs together show every line of a variant, those with most in it first."""
    layout = variant.header.get("TEST_LAYOUT", "NN")
    fused = dict(alpha="general", beta="general", bias="float32", row_scale="float32",
                 col_scale="float32", residual="float32")  # fmt: skip
    yield plain_kind("float32", layout, batch_rank=2, c="float32", **fused)
    yield plain_kind("float32", layout)
    yield plain_kind("float32", "TT", "T", batch_rank=1)
    conjugates = plain_kind("complex64", layout, "S", alpha="general")
    yield replace(conjugates, a=replace(conjugates.a, conjugate=True))
    narrow = plain_kind("float16", layout)
    yield replace(narrow, out=replace(narrow.out, dtype="bfloat16"))
    yield plain_kind("float32", layout, activation="relu", aux="float16", residual="float32")
    yield plain_kind("bool", layout.replace("N", "S", 1))
    yield plain_kind("int8", "TN", alpha="zero", beta="general", c="int8")


def targets(name, profile):
    """Every Target of a variant on a device."""
    variant = load_variant(name)
    for i, kind in enumerate(kinds_of(variant)):
        if variant.unmet(kind, profile) or (kind.needs_fp64 and not profile.fp64):
            continue
        for config in test_configs(name) if i == 1 else test_configs(name)[:1]:
            if {x for p, x in config.parameters if p.startswith("tile_")} == {1}:
                continue  # of one element, no index can be wrong
            case = make_case(kind, 9, 9, 9, "exact", np.random.default_rng(0), with_result=False)
            if not variant.reject(config, case.problem, profile):
                yield Target(kind, config)


# ---- in the child ---------------------------------------------------------------------------


def judged(target, text, changed):
    """(how, note) of a program in place of another, in this process."""
    executable.render_launch = lambda plan, launch: (
        changed if render_launch(plan, launch) == text else render_launch(plan, launch)
    )
    device = selection.resolve()
    ran = False
    for size, data in target.cases():
        try:
            fault = check_case(device, target.config, target.case(size, data)).fault
        except ConfigError:
            continue
        except BuildError:
            return "build", ""
        except ClmatmulError as error:
            fault = str(error).splitlines()[0]
        ran = True
        if fault:
            return "wrong", f"{'×'.join(map(str, size))} {data}: {fault}"
        found = simulator_findings()
        if found:
            return "simulator", f"{'×'.join(map(str, size))} {data}: {found}"
    return ("survived", "") if ran else ("build", "no size suits it")


def simulator_findings():
    log = Path(os.environ.get("OCLGRIND_LOG", "/nonexistent"))
    text = log.read_text(errors="replace") if log.exists() else ""
    return conformance_matrix.describe(conformance_matrix.parse_oclgrind_log(text))


# ---- forking --------------------------------------------------------------------------------


def in_child(work, seconds):
    """What `work()` returns (JSON), computed in a child; a dict with how and note if it cannot."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if "OCLGRIND_LOG" in os.environ:
            os.environ["OCLGRIND_LOG"] += f".{os.getpid()}"
            keep_buffers(Device)
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    data, deadline = b"", time.monotonic() + seconds
    while select.select([reader], [], [], max(deadline - time.monotonic(), 0))[0]:
        more = os.read(reader, 1 << 16)
        if not more:
            break
        data += more
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    log = Path(os.environ.get("OCLGRIND_LOG", "/nonexistent") + f".{pid}")
    log.unlink(missing_ok=True)
    if data:
        return json.loads(data)
    ended = os.waitstatus_to_exitcode(status)
    if ended == -signal.SIGKILL:
        return ["hang", f"no result after {seconds} s"]
    return ["crash", f"the process ended with status {ended}"]


def run_variant(name, profile, wanted):
    seen = set()
    for target in targets(name, profile):
        for text, entry in target.texts(profile).items():
            chosen = [x for x in mutants(text) if (entry, x.key) not in seen]
            seen |= {(entry, x.key) for x in chosen}
            chosen = [x for x in chosen if wanted((name, entry, x.key))]
            if not chosen:
                continue
            how, note = in_child(lambda x=text, t=target: judged(t, x, x), 5 * SECONDS)
            if how != "survived":
                raise SystemExit(f"{name} fails as it is: {target} {entry}: {how} {note}")
            for mutant in chosen:
                changed = mutant.applied(text)
                how, note = in_child(lambda t=target, x=text, c=changed: judged(t, x, c), SECONDS)
                fate = Fate(
                    name, target.kind.key, str(target.config), entry, mutant.operator,
                    mutant.number, mutant.before.strip(), mutant.after.strip(), mutant.key,
                    how, note,
                )  # fmt: skip
                print(json.dumps(asdict(fate)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="*", default=[])
    choose = parser.add_mutually_exclusive_group()
    choose.add_argument(
        "--only", action="store_true", help="these: stdin has [variant, entry, key]"
    )
    choose.add_argument("--but", action="store_true", help="all but these, given in the same way")
    options = parser.parse_args()
    text = in_child(lambda: selection.resolve().profile.to_json(), 5 * SECONDS)
    if isinstance(text, list):
        raise SystemExit(f"no device: {text[1]}")
    profile = DeviceProfile.from_json(text)
    listed = set()
    if options.only or options.but:
        listed = {tuple(x) for x in json.load(sys.stdin)}
    for name in options.variants or variant_names():
        run_variant(name, profile, lambda key: (key in listed) == options.only)


if __name__ == "__main__":
    main()

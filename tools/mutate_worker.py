"""The process of tools/mutate that computes: it forks children, which judge mutants in turn.

A child opens the device, builds a changed program, runs the cases, and goes on with the next
changed program for as long as the kernel as it was still gives the right result there. Programs
are built without optimisation, which takes a third of the time, and workspaces are full of poison.
What became of each mutant is told on standard output, one JSON object a line; standard input has
an object of `over`, [variant, entry, key] of those whose end is known, and `places`, the same with
the digest of a program where they are not to be judged (quick) or are to be (others). The steps:

    quick      the cases, on the device that CLMATMUL_DEVICE means
    compile    is the optimised machine code that of the kernel as it was, byte for byte? (PoCL)
    simulate   small cases on Oclgrind, which is asked for findings after each
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["CLMATMUL_CACHE"] = "0"

import conformance_matrix  # noqa: E402
import numpy as np  # noqa: E402
from conformance_plugin import keep_buffers  # noqa: E402
from kinds import cut_lengths, plain_kind, test_configs, whole_configs  # noqa: E402
from mutants import mutants  # noqa: E402
from mutate_children import result, results  # noqa: E402
from mutate_run import reasons  # noqa: E402

from clmatmul import cases, executable, plan, probes, selection  # noqa: E402
from clmatmul.cases import make_case  # noqa: E402
from clmatmul.device import Device  # noqa: E402
from clmatmul.device_profile import DeviceProfile  # noqa: E402
from clmatmul.errors import BuildError, ClmatmulError, ConfigError  # noqa: E402
from clmatmul.plan import make_plan, render_launch  # noqa: E402
from clmatmul.trial import check_case, check_sizes  # noqa: E402
from clmatmul.variants import load_variant, variant_names  # noqa: E402

# Of computing, for a mutant: a loop without an end is a fault that is found.
SECONDS = {"quick": 10, "compile": 60, "simulate": 200}
MOST = 80  # mutants that a child judges: no runtime gives all memory of a program back
MOST_TERMS_SIMULATED = 20_000  # of one matrix of a batch
SAFE_BYTES = 2**16  # on either side of an output
_SEED = 20260103


@dataclass(frozen=True)
class Fate:
    """What became of a mutant in a step.

    how: build, wrong, crash, hang, simulator (found), same (machine code) or survived.
    """

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
    note: str
    step: str
    text: str  # a digest of the program


@dataclass(frozen=True)
class Target:
    """One kind of problem in one configuration of a variant: what its programs are tested by."""

    kind: object
    config: object
    profile: object
    made: dict = field(default_factory=dict, compare=False, repr=False)

    def cases(self, simulated=False):
        """(size, data) in the order in which they are likely to find something.

        simulated: only those that show another access, and only small ones.
        """
        if simulated:
            for m, n, k in self.sizes():
                if m * n * k < MOST_TERMS_SIMULATED:
                    yield (m, n, k), "exact"
            return
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
        if self.kind.c == self.kind.out.dtype:
            yield from ((size, "in place") for size in sizes)
        if self.kind.batch_rank:
            yield first, "one a"
            yield first, "one b"
        if floating and plain and not self.kind.aux:
            yield from ((size, "special") for size in sizes[:6])
        if floating and self.kind.precision == "highest":  # others have bounds of their own
            yield first, "random"

    def sizes(self):
        """The first-use check's sizes, others, and k so long that each part has several blocks."""
        found = check_sizes(self.config)
        m, n, k = found[0]
        values = self.config.values()
        parts, stage = values.get("splits", 1), k // 2 // values.get("stages", 1)
        return (
            *found, (2 * m + 3, 2 * n + 5, k + 2), (m, n, 1), (m - 1, n + 1, k - 1),
            (1, n, k), (m, 1, k), (m + 1, n + 2, min(parts, 4) * k + 3), (max(m - 2, 1), n + 1, 2),
            (2, 3, k + 2), (2, 5 * n, 3), (2, n, found[2][2]),
            (m // 2, (n + 1) // 2, stage + 1), (2 * (m - 1), 2 * (n + 1), k - 1),
            *((max(m - 2, 1), n + 1, x) for x in cut_lengths(parts)),
        )  # fmt: skip

    def case(self, size, data):
        """The same Case every time: making one takes longer than running it."""
        if (size, data) not in self.made:
            self.made[size, data] = self.new_case(size, data)
        return self.made[size, data]

    def new_case(self, size, data):
        rng = np.random.default_rng((_SEED, *size))
        ways = {"in place": {"in_place": True}, "one a": {"repeated": ("a",)},
                "one b": {"repeated": ("b",)}}  # fmt: skip
        if data in ways:
            return make_case(self.kind, *size, "exact", rng, **ways[data])
        return make_case(self.kind, *size, data, rng)

    def problem(self, size):
        rng = np.random.default_rng(_SEED)
        return make_case(self.kind, *size, "exact", rng, with_result=False).problem

    def serves(self, size):
        variant = load_variant(self.config.variant)
        return not variant.reject(self.config, self.problem(size), self.profile)

    def texts(self):
        """text → entry point of each program that the cases run."""
        found = {}
        for size in self.sizes():
            with suppress(ConfigError):
                plan = make_plan(self.problem(size), self.profile, self.config)
                found.update((render_launch(plan, x), x.entry) for x in plan.launches)
        return found


def kinds_of(variant):
    """Kinds whose programs together show every line of a variant, those with most in it first."""
    layout = variant.header.get("TEST_LAYOUT", "NN")
    dtype = variant.header.get("TEST_DTYPE", "float32")
    out = plain_kind(dtype).out.dtype
    fused = dict(alpha="general", beta="general", bias="float32", row_scale="float32",
                 col_scale="float32", residual="float32")  # fmt: skip
    yield plain_kind(dtype, layout, batch_rank=2, c=out, **fused)
    yield plain_kind(dtype, layout)
    yield plain_kind(dtype, layout, batch_rank=1)
    yield plain_kind(dtype, "TT", "T", batch_rank=1)
    yield plain_kind(dtype, "SS", "S")
    conjugates = plain_kind("complex64", layout, "S", alpha="general")
    yield replace(conjugates, a=replace(conjugates.a, conjugate=True))
    narrow = plain_kind("float16", layout, alpha="general", bias="float32")
    yield replace(narrow, out=replace(narrow.out, dtype="bfloat16"))
    yield plain_kind(dtype, layout, activation="relu", aux="float16", residual="float32")
    yield plain_kind("bool", layout.replace("N", "S", 1))
    yield plain_kind("int8", "TN", alpha="zero", beta="general", c="int8")
    if "int8" in str(variant.header["REQUIRES"]):  # another instruction for each element type
        yield plain_kind("int8", "NT")
        yield plain_kind("float32", "NT", precision="medium")
    if alignment_of(variant) > 1:
        yield aligned(plain_kind(dtype, layout), alignment_of(variant))
        yield aligned(plain_kind(dtype, "NT", batch_rank=1, c=out, **fused), alignment_of(variant))


def alignment_of(variant):
    return variant.header.get("TEST_ALIGNMENT", 1)


def aligned(kind, alignment):
    sides = {x: replace(getattr(kind, x), alignment=alignment) for x in ("a", "b", "out")}
    return replace(kind, **sides)


def targets(name, profile):
    """Every Target of a variant on a device; operands are aligned where it serves no others."""
    variant = load_variant(name)
    plain = plain_kind(variant.header.get("TEST_DTYPE", "float32"),
                       variant.header.get("TEST_LAYOUT", "NN"))  # fmt: skip
    for kind in dict.fromkeys(kinds_of(variant)):
        if variant.unmet(kind, profile):
            kind = aligned(kind, alignment_of(variant))
        if variant.unmet(kind, profile) or (kind.needs_fp64 and not profile.fp64):
            continue
        every = aligned(kind, 1) in (plain, replace(plain, batch_rank=1))
        listed = test_configs(name)
        some = (listed[0], *whole_configs(name))
        for config in (*listed, variant.default) if every else some:
            if kind.batch_rank == 1 and every and config.values().get("splits", 1) == 1:
                continue
            if {x for p, x in config.parameters if p.startswith("tile_")} == {1}:
                continue  # of one element, no index can be wrong
            target = Target(kind, config, profile)
            if any(target.serves(size) for size in check_sizes(config)[:-1]):
                yield target


# ---- in a child -----------------------------------------------------------------------------


def judged_in_turn(target, text, changes, step):
    """(how, note) of each of `changes` in place of `text`, while this process is sound."""
    prepare_process(step)
    sound = executable._programs
    for changed in changes:
        executable._programs = executable._Programs()
        how, note = judged(target, text, changed)
        built, executable._programs = executable._programs, sound
        if how == "survived" and changed != text and step == "quick":
            how = "same" if same_code(target, text, built, sound) else how
        yield how, note
        if judged(target, text, text, brief=True)[0] != "survived":
            return  # its memory is damaged, or its device is


def same_code(target, text, built, sound):
    """Whether all programs of a mutant are, as PTX, those of the kernel as it was.

    Elsewhere than on NVIDIA's devices nobody knows here; there, PTX comes with the build.
    """
    if target.profile.family != "nvidia":
        return False
    judged(target, text, text)  # builds what is missing in `sound`
    return all(code_of(x) == code_of(sound._programs[name]) for name, x in built._programs.items())


def code_of(program):
    return program.device.binary_of(program._built)


def prepare_process(step):
    if step == "simulate":
        os.environ["OCLGRIND_LOG"] += f".{os.getpid()}"
        keep_buffers(Device)
        return
    # Most of what is written to a wrong place is written nearby: there it does no harm.
    cases._GUARD_ELEMENTS = SAFE_BYTES // 4 + 3
    Device.scratch = lambda self, queue, name, size: self.upload(
        np.full(size + SAFE_BYTES, 0xFF, np.uint8)
    )
    if step == "quick":
        options = plan.build_options
        slow = ("-cl-opt-disable",)
        plan.build_options = lambda profile: options(profile) + slow * (profile.family == "pocl")


def judged(target, text, changed, brief=False):
    """(how, note) of a program in place of another, by all cases or the first."""
    executable.render_launch = lambda plan, launch: (
        changed if render_launch(plan, launch) == text else render_launch(plan, launch)
    )
    device = selection.resolve()
    device.profile = target.profile  # with what probes found
    ran = False
    for size, data in target.cases("OCLGRIND_LOG" in os.environ):
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
        if brief:
            break
    return ("survived", "") if ran else ("build", "no size suits it")


def simulator_findings():
    log = Path(os.environ.get("OCLGRIND_LOG", "/nonexistent"))
    text = log.read_text(errors="replace") if log.exists() else ""
    return conformance_matrix.describe(conformance_matrix.parse_oclgrind_log(text))


def compiled_in_turn(target, text, changes):
    """(how, note) of each of `changes`: same, if its machine code is that of `text`."""
    prepare_process("compile")
    with tempfile.TemporaryDirectory(dir=os.environ["POCL_CACHE_DIR"]) as folder:
        os.environ["POCL_CACHE_DIR"] = folder
        code, known = set(), set()
        for changed in (text, *changes):
            executable._programs = executable._Programs()
            how, note = judged(target, text, changed)
            files = set(Path(folder).rglob("*.so")) - known
            known |= files
            digests = {(x.name, hashlib.sha256(x.read_bytes()).hexdigest()) for x in files}
            if changed is text:
                code = digests  # of all programs that the cases run; only one is built anew below
            elif how == "survived" and digests and digests <= code:
                yield "same", ""
            else:
                yield how, note


# ---- in the process that forks --------------------------------------------------------------


def fates_of(target, text, changes, step):
    """(how, note) of each of `changes`, in order."""
    left = list(changes)
    most = 1 if step == "simulate" else MOST
    while left:
        done = 0

        def work(some=tuple(left[:most])):
            if step == "compile":
                return compiled_in_turn(target, text, some)
            return judged_in_turn(target, text, some, step)

        for how, note in results(work, SECONDS[step]):
            if how == "crash" and done:
                break  # by what an earlier one did, perhaps: this one begins the next child
            yield how, note
            done += 1
        left = left[done:]


@dataclass(frozen=True)
class Share:
    """The i-th of n parts of all that has a digest."""

    i: int
    n: int

    def has(self, digest):
        return int(digest, 16) % self.n == self.i


def run_variant(name, profile, wanted, step, share):
    """Judge the mutants of each program of a variant; what one kills is over for all.

    So is what is justified.
    """
    over, justified = set(), reasons()
    for target in targets(name, profile):
        for text, entry in target.texts().items():
            digest = hashlib.sha256(text.encode()).hexdigest()[:10]
            chosen = [x for x in mutants(text) if wanted(name, entry, x.key, digest)]
            if chosen and step != "compile" and share.has(digest):
                ((how, note),) = fates_of(target, text, [text], step)
                if how != "survived":
                    raise SystemExit(f"{name} fails as it is: {target} {entry}: {how} {note}")
            chosen = [x for x in chosen if share.has(x.key) and (entry, x.key) not in over]
            ends = fates_of(target, text, [x.applied(text) for x in chosen], step)
            for mutant, (how, note) in zip(chosen, ends, strict=True):
                fate = Fate(
                    name, target.kind.key, str(target.config), entry, mutant.operator,
                    mutant.number, mutant.before.strip(), mutant.after.strip(), mutant.key,
                    how, note, step, digest,
                )  # fmt: skip
                print(json.dumps(asdict(fate)), flush=True)
                if how not in ("survived", "same") or any(
                    x.covers(asdict(fate)) for x in justified
                ):
                    over.add((entry, mutant.key))


def profile_here():
    """The device's profile, as JSON, with what variants may ask of it."""
    device = selection.resolve()
    probes.ensure_usual(device)
    return device.profile.to_json()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--step", choices=SECONDS, default="quick")
    parser.add_argument("--share", nargs=2, type=int, metavar=("I", "N"), default=(0, 1),
                        help="of all mutants, the I-th of N parts")  # fmt: skip
    parser.add_argument("--sample", type=float, default=1, help="this part of all mutants")
    options = parser.parse_args()
    text = result(profile_here, SECONDS["simulate"])
    if isinstance(text, list):
        raise SystemExit(f"no device: {text[1]}")
    profile = DeviceProfile.from_json(text)
    given = json.load(sys.stdin)
    over, places = ({tuple(x) for x in given[what]} for what in ("over", "places"))

    def wanted(name, entry, key, digest):
        sampled = int(key[:4], 16) < options.sample * 0x10000
        known = (name, entry, key) in over
        there = (name, entry, key, digest) in places
        return sampled and not known and there == (options.step != "quick")

    for name in options.variants or variant_names():
        run_variant(name, profile, wanted, options.step, Share(*options.share))


if __name__ == "__main__":
    main()

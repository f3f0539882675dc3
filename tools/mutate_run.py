"""Mutation testing of kernels: the work of tools/mutate."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import runtimes
from conformance_matrix import markdown_table, plain_table
from conformance_run import commit, progress, today

TOOLS = Path(__file__).resolve().parent
JUSTIFIED = TOOLS / "mutants_justified.json"
KILLED = ("wrong", "crash", "hang", "simulator")
STEPS = ("quick", "native", "compile", "simulate")
LISTED = ("compile", "simulate")  # steps for what is left of others, in programs that are named
SIMULATED = 4  # programs in which a survivor is run on Oclgrind
_ORDER = (*KILLED, "survived", "same", "build")


@dataclass(frozen=True)
class Reason:
    """Why mutants of a pattern change nothing that a test could see. Patterns are of `re`.

    place: of the template that has the line; end: 0 for the first, -1 for the last of the lines
    that it became; variant and entry: of a program that was made of it.
    """

    reason: str
    operator: str = ".*"
    variant: str = ".*"
    entry: str = ".*"
    place: str = ".*"
    end: str = ".*"
    before: str = ""
    after: str = ""

    def covers(self, fate):
        return bool(
            re.fullmatch(self.operator, fate["operator"])
            and re.fullmatch(self.variant, fate["variant"])
            and re.fullmatch(self.entry, fate["entry"])
            and re.fullmatch(self.place, template_of(fate))
            and re.fullmatch(self.end, str(fate.get("end")))
            and re.search(self.before, fate["before"])
            and re.search(self.after, fate["after"])
        )


def reasons(path=JUSTIFIED):
    """The Reasons in a file."""
    return tuple(Reason(**x) for x in json.loads(path.read_text(encoding="utf-8")))


def template_of(fate):
    """The template that has the line: a kernel's own, or parts/NAME.mako."""
    return fate["place"].partition("#")[0]


def place_of(fate):
    """A mutant in one of the programs that have its line."""
    return (fate["key"], fate["text"])


def ends_of(fates):
    """key → the last fate in each program: a later step stands for an earlier one.

    What survived may be the same code.
    """
    places = {}
    for fate in sorted(fates, key=lambda x: STEPS.index(x["step"])):
        held = places.get(place_of(fate))
        if held is None or held["how"] == "survived":
            places[place_of(fate)] = fate
    found = {}
    for fate in places.values():
        found.setdefault(fate["key"], []).append(fate)
    return found


def merged(fates, justified=()):
    """key → fate: a kill in any program at any step, else one that no reason covers, else any."""

    def rank(fate):
        alive = fate["how"] == "survived" and not covered(fate, justified)
        return _ORDER.index(fate["how"]), not alive

    return {key: min(found, key=rank) for key, found in ends_of(fates).items()}


def covered(fate, justified):
    return any(reason.covers(fate) for reason in justified)


def survivors(fates, justified):
    """Those that no test kills and no reason covers."""
    return [x for x in fates if x["how"] == "survived" and not covered(x, justified)]


def table(fates, justified):
    """Rows of texts: how many mutants of each template came to which end."""
    alive = Counter(template_of(x) for x in survivors(fates, justified))
    rows = [["template", "mutants", *KILLED, "same code", "justified", "SURVIVED"]]
    for template in sorted({template_of(x) for x in fates}):
        of_it = Counter(x["how"] for x in fates if template_of(x) == template)
        total = sum(of_it.values()) - of_it["build"]
        ends = [of_it[how] for how in (*KILLED, "same")]
        ends += [of_it["survived"] - alive[template], alive[template]]
        rows.append([template, *(str(x) for x in (total, *ends))])
    return rows


def markdown(fates, justified):
    """The results as a section of a page."""
    return "\n\n".join([
        f"Date: {today()}, at commit {commit()}. One fault at a time in the rendered text of each "
        "kernel; `wrong`, `crash` and `hang` are how the test cases saw it on PoCL, `simulator` "
        "what only Oclgrind saw; the optimised `same code` is that of the kernel as it was; those "
        "justified change nothing that could be seen (`tools/mutants_justified.json` says why). "
        "Mutants that do not build are not counted.",
        markdown_table(table(fates, justified)),
    ])  # fmt: skip


def run_worker(environment, arguments, given, record):
    """Run one mutate_worker with this JSON; its exit status."""
    process = subprocess.Popen(
        [sys.executable, str(TOOLS / "mutate_worker.py"), *arguments], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        for line in process.stdout:
            record(json.loads(line))
        return process.wait()
    finally:
        process.kill()
        process.wait()


def parser():
    """The command line."""
    result = argparse.ArgumentParser(
        prog="tools/mutate",
        description="Put one fault at a time into the text of each kernel, and see whether the "
        "test cases notice on the device that CLMATMUL_DEVICE means. What survives is compiled as "
        "users' kernels are, since the same machine code is no fault; what differs is run once "
        "more on Oclgrind, which sees races and reads outside of buffers.",
        epilog="Exit status: 0 if every mutant is killed or justified; 1 if one survived; 2 for a "
        "wrong command line or a kernel that fails as it is.",
    )
    add = result.add_argument
    add("--variants", nargs="+", metavar="NAME", default=[], help="only these kernels")
    add("--journal", type=Path, metavar="FILE", required=True,
        help="keep what was done: the same command goes on where it was cut short")  # fmt: skip
    add("--runtimes", type=Path, metavar="DIR", default=runtimes.default_folder(),
        help="folder of the runtimes, for Oclgrind (default: %(default)s)")  # fmt: skip
    add("--steps", nargs="+", choices=STEPS, metavar="STEP", default=("quick", *STEPS[2:]),
        help="of quick, native, compile, simulate, in this order; native: NVIDIA's kernels (name "
        "them) on this machine's processor (default: all others)")  # fmt: skip
    add("--sample", type=float, metavar="PART", default=1,
        help="this part of all mutants: the smaller is in the larger one")  # fmt: skip
    add("--again", action="store_true",
        help="forget what survived in the journal: the cases have changed since")  # fmt: skip
    add("--jobs", type=int, metavar="N", default=1, help="processes at a time (default: 1)")
    add("--devices", nargs="+", metavar="DEVICE", default=[],
        help="devices that the processes take turns on, as in CLMATMUL_DEVICE")  # fmt: skip
    add("--emulate", action="store_true",
        help="NVIDIA's kernels (name them) elsewhere, their PTX as plain OpenCL C")  # fmt: skip
    add("--build-options", metavar="OPTIONS", default="",
        help="more of the compiler's, such as -cl-nv-opt-level=0, to build faster")  # fmt: skip
    add("--programs", type=int, metavar="N", default=12,
        help="that a mutant is tried in while it survives (default: %(default)s)")  # fmt: skip
    add("--report", action="store_true", help="run nothing: only say what the journal has")
    add("--markdown", action="store_true", help="print the table as Markdown")
    return result


def main(arguments=None):
    """Run, print; the exit status."""
    cli = parser()
    options = cli.parse_args(arguments)
    lines = options.journal.read_text().splitlines() if options.journal.exists() else []
    fates = [json.loads(line) for line in lines]
    if options.again:
        fates = [x for x in fates if x["how"] != "survived"]
        options.journal.write_text("".join(json.dumps(x) + "\n" for x in fates))

    def record(fate):
        fates.append(fate)
        with options.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fate) + "\n")

    justified = reasons()
    if not options.report and run_steps(options, fates, justified, record):
        return 2
    found = list(merged(fates, justified).values())
    if options.variants:
        found = [x for x in found if template_of(x) in options.variants]
    rows = table(found, justified)
    print(markdown(found, justified) if options.markdown else plain_table(rows))
    alive = survivors(found, justified)
    for fate in alive:
        where = f"{fate['place']} in {fate['variant']} {fate['entry']} line {fate['number']}"
        progress(f"SURVIVED {where}: {fate['operator']}: {fate['kind']}\n  {fate['before']}\n"
                 f"  {fate['after']}")  # fmt: skip
    return 1 if alive else 0


def run_steps(options, fates, justified, record):
    """Do what the journal's fates do not have yet; the worst exit status of a worker."""
    more = ["--variants", *options.variants] if options.variants else []
    more += ["--sample", str(options.sample), "--jobs", str(options.jobs)]
    more += ["--emulate"] if options.emulate else []
    more += [f"--build-options={options.build_options}"] if options.build_options else []
    more += ["--devices", *options.devices] if options.devices else []
    worst = 0
    for step in options.steps:
        given = work_of(step, fates, justified)
        if step in LISTED:
            if not given["places"]:
                continue
            progress(f"{len({key for key, _ in given['places']})} survivors: {step}")
        with tempfile.TemporaryDirectory(prefix="clmatmul-mutate-") as scratch:
            try:
                environment = environment_of(step, options.runtimes.absolute(), scratch)
            except runtimes.UnavailableError as error:
                progress(f"Oclgrind is not available ({error}): it was not asked")
                continue
            # compiled: in all in which it survived; simulated, which is slow: in few
            programs = {"compile": len(fates), "simulate": SIMULATED}.get(step, options.programs)
            arguments = ["--step", step, "--programs", str(programs), *more]
            worst = max(worst, run_worker(environment, arguments, given, record))
    return worst


def work_of(step, fates, justified):
    """What mutate_worker reads: the mutants that are over, and the places done or to be done."""
    ends = merged(fates, justified)
    over = [key for key, x in ends.items() if x["how"] in KILLED]
    done = {place_of(x) for x in fates if x["step"] == step}
    if step not in LISTED:
        return {"over": over, "places": sorted(done)}
    alive = {x["key"] for x in survivors(ends.values(), justified)}
    places = [x for key in alive for x in ends_of(fates)[key] if x["how"] == "survived"]
    differs = {x["key"] for x in fates if x["step"] == "compile" and x["how"] == "survived"}
    if step == "compile":  # one program whose code differs is enough
        places = [x for x in places if x["key"] not in differs]
    else:
        often = {key for key, n in Counter(key for key, _ in done).items() if n >= SIMULATED}
        places = [x for x in places if x["key"] not in often]
    return {"over": over, "places": sorted({place_of(x) for x in places} - done)}


def environment_of(step, folder, scratch):
    """The environment of a step's workers, with a compiler's cache of their own."""
    if step != "simulate":
        return dict(os.environ) | {"POCL_CACHE_DIR": scratch, "CLMATMUL_NATIVE_FOLDER": scratch}
    runtime = runtimes.probe(runtimes.load("oclgrind", folder), folder, os.environ, scratch)
    return runtimes.environment_of(runtime, folder, os.environ, scratch)

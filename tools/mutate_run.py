"""Mutation testing of kernels: the work of tools/mutate."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import runtimes
from conformance_matrix import markdown_table, plain_table
from conformance_run import commit, progress, today

TOOLS = Path(__file__).resolve().parent
JUSTIFIED = TOOLS / "mutants_justified.json"
KILLED = ("wrong", "crash", "hang", "simulator")
STEPS = ("quick", "compile", "simulate")
_ORDER = (*KILLED, "build", "survived", "same")


@dataclass(frozen=True)
class Reason:
    """Why mutants of a pattern change nothing that a test could see. Patterns are of `re`."""

    reason: str
    operator: str = ".*"
    variant: str = ".*"
    entry: str = ".*"
    before: str = ""
    after: str = ""

    def covers(self, fate):
        return bool(
            re.fullmatch(self.operator, fate["operator"])
            and re.fullmatch(self.variant, fate["variant"])
            and re.fullmatch(self.entry, fate["entry"])
            and re.search(self.before, fate["before"])
            and re.search(self.after, fate["after"])
        )


def reasons(path=JUSTIFIED):
    """The Reasons in a file."""
    return tuple(Reason(**x) for x in json.loads(path.read_text(encoding="utf-8")))


def name_of(fate):
    return (fate["variant"], fate["entry"], fate["key"])


def place_of(fate):
    """A mutant in one of the programs that have its line."""
    return (*name_of(fate), fate["text"])


def merged(fates):
    """(variant, entry, key) → fate: a kill in any program at any step, else the worst that is left.

    In one program a later step stands for an earlier one: what survived may be the same code.
    """
    places = {}
    for fate in sorted(fates, key=lambda x: STEPS.index(x["step"])):
        held = places.get(place_of(fate))
        if held is None or held["how"] == "survived":
            places[place_of(fate)] = fate
    found = {}
    for fate in places.values():
        held = found.get(name_of(fate))
        if held is None or _ORDER.index(fate["how"]) < _ORDER.index(held["how"]):
            found[name_of(fate)] = fate
    return found


def survivors(fates, justified):
    """Those that no test kills and no reason covers."""
    return [
        fate
        for fate in fates
        if fate["how"] == "survived" and not any(reason.covers(fate) for reason in justified)
    ]


def table(fates, justified):
    """Rows of texts: how many mutants of each variant came to which end."""
    alive = Counter(x["variant"] for x in survivors(fates, justified))
    rows = [["variant", "mutants", *KILLED, "same code", "justified", "SURVIVED"]]
    for variant in sorted({x["variant"] for x in fates}):
        of_it = Counter(x["how"] for x in fates if x["variant"] == variant)
        total = sum(of_it.values()) - of_it["build"]
        ends = [of_it[how] for how in (*KILLED, "same")]
        ends += [of_it["survived"] - alive[variant], alive[variant]]
        rows.append([variant, *(str(x) for x in (total, *ends))])
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


def run_workers(environment, arguments, given, record, jobs):
    """Run mutate_worker, so many at a time; `record` is told each fate. The worst exit status."""
    lock = threading.Lock()

    def locked(fate):
        with lock:
            record(fate)

    with ThreadPoolExecutor(jobs) as pool:
        shares = [["--share", str(i), str(jobs), *arguments] for i in range(jobs)]
        return max(pool.map(lambda share: run_worker(environment, share, given, locked), shares))


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
    add("--steps", nargs="+", choices=STEPS, metavar="STEP", default=STEPS,
        help="only these of quick, compile, simulate")  # fmt: skip
    add("--sample", type=float, metavar="PART", default=1,
        help="this part of all mutants: the smaller is in the larger one")  # fmt: skip
    add("--again", action="store_true",
        help="forget what survived in the journal: the cases have changed since")  # fmt: skip
    add("--jobs", type=int, metavar="N", default=1, help="processes at a time (default: 1)")
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
    found = list(merged(fates).values())
    if options.variants:
        found = [x for x in found if x["variant"] in options.variants]
    rows = table(found, justified)
    print(markdown(found, justified) if options.markdown else plain_table(rows))
    alive = survivors(found, justified)
    for fate in alive:
        where = f"{fate['variant']} {fate['entry']} line {fate['number']}"
        progress(f"SURVIVED {where}: {fate['operator']}: {fate['kind']}\n  {fate['before']}\n"
                 f"  {fate['after']}")  # fmt: skip
    return 1 if alive else 0


def run_steps(options, fates, justified, record):
    """Do what the journal's fates do not have yet; the worst exit status of a worker."""
    more = ["--variants", *options.variants] if options.variants else []
    more += ["--sample", str(options.sample)]
    worst = 0
    for step in options.steps:
        given = work_of(step, fates, justified)
        if step != "quick":
            if not given["places"]:
                continue
            progress(f"{len(given['places'])} survivors: {step}")
        with tempfile.TemporaryDirectory(prefix="clmatmul-mutate-") as scratch:
            try:
                environment = environment_of(step, options.runtimes.absolute(), scratch)
            except runtimes.UnavailableError as error:
                progress(f"Oclgrind is not available ({error}): it was not asked")
                continue
            arguments = ["--step", step, *more]
            worst = max(worst, run_workers(environment, arguments, given, record, options.jobs))
    return worst


def work_of(step, fates, justified):
    """What mutate_worker reads: the mutants that are over, and the places done or to be done."""
    ends = merged(fates)
    over = [name for name, x in ends.items() if x["how"] in (*KILLED, "build")]
    done = {place_of(x) for x in fates if x["step"] == step}
    if step == "quick":
        return {"over": over, "places": sorted(done)}
    last = {}
    for fate in fates:
        last[place_of(fate)] = fate["how"]
    alive = {name_of(x) for x in survivors(ends.values(), justified)}
    places = {x for x, how in last.items() if how == "survived" and x[:3] in alive}
    if step == "simulate":  # slow, and one program shows what another would
        first = {name_of(x): place_of(x) for x in reversed(fates) if place_of(x) in places}
        seen = {x[:3] for x in done}
        places = {place for name, place in first.items() if name not in seen}
    return {"over": over, "places": sorted(places - done)}


def environment_of(step, folder, scratch):
    """The environment of a step's workers, with a compiler's cache of their own."""
    if step != "simulate":
        return dict(os.environ) | {"POCL_CACHE_DIR": scratch}
    runtime = runtimes.probe(runtimes.load("oclgrind", folder), folder, os.environ, scratch)
    return runtimes.environment_of(runtime, folder, os.environ, scratch)

"""The process of tools/mutate that computes: it forks children, which judge mutants in turn.

Several children run at a time, each with some mutants of one program; whatever survives in one
program waits for the next that has its line. What became of each mutant is told on standard
output, one JSON object a line; standard input has an object of `over`, the keys of mutants whose
end is known, and `places`, [key, digest of a program] where they are not to be judged (quick) or
are to be (others). The steps:

    quick      the cases, on the device that CLMATMUL_DEVICE means
    native     the cases, of NVIDIA's kernels, on this machine's processor (native_device.py)
    compile    is the optimised machine code that of the kernel as it was, byte for byte? (PoCL)
    simulate   small cases on Oclgrind, which is asked for findings after each
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mutants import mutants  # noqa: E402
from mutate_cases import emulating, targets  # noqa: E402
from mutate_children import Child, news, result  # noqa: E402
from mutate_judge import fates  # noqa: E402
from mutate_run import LISTED, reasons  # noqa: E402
from native_device import profile_of_h200  # noqa: E402

from clmatmul import probes, selection  # noqa: E402
from clmatmul.device_profile import DeviceProfile  # noqa: E402
from clmatmul.variants import variant_names  # noqa: E402

# Of computing, for a mutant: a loop without an end is a fault that is found.
SECONDS = {"quick": 10, "native": 40, "compile": 60, "simulate": 200}
# Mutants that a child judges: no runtime gives all memory of a program back.
MOST = {"quick": 80, "native": 80, "compile": 80, "simulate": 20}


@dataclass(frozen=True)
class Fate:
    """What became of a mutant in a step.

    how: build, wrong, crash, hang, simulator (found), same (machine code) or survived.
    """

    variant: str
    kind: str
    config: str
    entry: str
    place: str
    end: int  # see Mutant
    operator: str
    number: int
    before: str
    after: str
    key: str
    how: str
    note: str
    step: str
    text: str  # a digest of the program


@dataclass(eq=False)
class Program:
    """A program of one kernel, with the mutants that it has, and those that wait to be judged."""

    target: object
    text: str
    entry: str
    mutants: dict  # key → Mutant
    other: str = ""  # the configuration, if one before it has the same text
    waiting: list = field(default_factory=list)
    checked: bool = False  # as it is
    failed: str = ""  # why nothing can be judged by it: what is wrong with it as it is

    @cached_property
    def digest(self):
        return hashlib.sha256((self.text + self.other).encode()).hexdigest()[:10]

    @property
    def variant(self):
        return self.target.config.variant

    def keep(self, part):
        """Forget all mutants but this part of all."""
        most = part * 0x10000
        self.mutants = {k: x for k, x in self.mutants.items() if int(k[:4], 16) < most}

    def fate(self, key, how, note, step):
        x = self.mutants[key]
        return asdict(
            Fate(
                self.variant, self.target.kind.key, str(self.target.config), self.entry, x.place,
                x.end, x.operator, x.number, x.before.strip(), x.after.strip(), key, how, note,
                step, self.digest,
            )
        )  # fmt: skip


def programs_of(names, profile, profile_of_cpu=None):
    """Every Program of these kernels on a device; those of CPUs by another profile, if given.

    One text with other numbers of parts of k, or of tiles that are not cut, is another Program.
    """
    found = []
    for name in names:
        seen = {}
        cpu = profile_of_cpu and name.startswith("cpu_")
        for target in targets(name, profile_of_cpu if cpu else profile):
            for text, (entry, places) in target.programs().items():
                config = str(target.config)
                if config not in seen.setdefault(text, []):
                    seen[text].append(config)
                    listed = {x.key: x for x in mutants(text, places)}
                    other = config if len(seen[text]) > 1 else ""
                    found.append(Program(target, text, entry, listed, other))
    return found


class Schedule:
    """Which mutants are judged next, and in which program.

    A mutant that survives is tried in the next program that has it, of another kernel or step of
    one if there is any, the shortest first, and in no more than `limit` programs. `record` is told
    what became of it.
    """

    def __init__(self, programs, given, step, limit, record, options=()):
        self.programs, self.step, self.limit, self.record = programs, step, limit, record
        self.options = options  # of the compiler
        self.justified = reasons()
        over, listed = set(given["over"]), {tuple(x) for x in given["places"]}
        self.tries, homes = Counter(), {}
        for program in programs:
            for key in program.mutants:
                if key not in over and ((key, program.digest) in listed) == (step in LISTED):
                    homes.setdefault(key, []).append(program)
        for found in homes.values():
            found.sort(key=lambda program: len(program.text))  # what a build takes
            if step == "simulate":  # slow: those without a batch first
                found.sort(key=lambda program: program.target.kind.batch_rank)
        self.homes = {key: _spread(found) for key, found in homes.items()}
        for key in self.homes:
            self.go_on(key)

    def go_on(self, key):
        """Let a mutant wait for the next program that has it, if there is one."""
        self.homes[key] = [x for x in self.homes[key] if not x.failed]
        if self.homes[key] and self.tries[key] < self.limit:
            self.homes[key].pop(0).waiting.append(key)
            self.tries[key] += 1

    def give_up(self, program, keys, why):
        """Judge nothing more by a program that fails as it is: others have its mutants."""
        program.failed = why
        waiting, program.waiting = [*keys, *program.waiting], []
        for key in waiting:
            self.tries[key] -= 1
            self.go_on(key)

    def take(self, jobs):
        """The next Task for a child, of mutants that were tried least; None if none waits."""
        full = [x for x in self.programs if x.waiting]
        if not full:
            return None
        program = min(full, key=lambda x: (self.tries[x.waiting[0]], -len(x.waiting)))
        each = sum(len(x.waiting) for x in full) // (3 * jobs)
        count = min(max(each, 4), MOST[self.step])
        keys, program.waiting = program.waiting[:count], program.waiting[count:]
        return Task(self, program, keys)

    def judged(self, program, key, how, note):
        fate = program.fate(key, how, note, self.step)
        self.record(fate)
        again = ("same",) if self.step == "compile" else ("survived", "same", "build")
        if how in again and not any(x.covers(fate) for x in self.justified):
            self.go_on(key)


def _spread(programs):
    """First one program of each kernel's entry points, then one of each configuration, then all."""
    seen, ranks = set(), {}
    for program in programs:
        name = program.variant, program.entry
        whole = *name, str(program.target.config)
        ranks[program] = (name in seen) + (whole in seen)
        seen |= {name, whole}
    return sorted(programs, key=ranks.get)


class Task:
    """Mutants of a program, which a child judges in turn, behind the program as it is."""

    def __init__(self, schedule, program, keys):
        self.schedule, self.program, self.left = schedule, program, keys
        self.first = not program.checked and schedule.step != "compile"
        program.checked = True
        self.done = 0

    def work(self):
        changes = [self.program.mutants[x].applied(self.program.text) for x in self.left]
        if self.first:
            changes.insert(0, self.program.text)
        step, options = self.schedule.step, self.schedule.options
        return fates(self.program.target, self.program.text, changes, step, options)

    def got(self, how, note):
        """What became of the next; a crash may be by what an earlier one did: it is tried again."""
        if how == "crash" and self.done:
            return
        self.done += 1
        if self.first:
            self.first = False
            if how != "survived":
                self.schedule.give_up(self.program, self.left, f"{how} {note}")
                self.left = []
        elif self.left:
            self.schedule.judged(self.program, self.left.pop(0), how, note)

    def over(self):
        """Whatever was not judged waits once more."""
        self.program.waiting[:0] = self.left


def run(schedule, jobs, devices):
    """Judge all that waits, by so many children at a time, which take turns on the devices."""
    running, free = {}, list(range(jobs))
    try:
        while True:
            while free and (task := schedule.take(jobs)):
                slot = free.pop()
                child = Child(_on(devices, slot, task), SECONDS[schedule.step])
                running[child] = slot, task
            if not running:
                return
            for child, found in news(list(running)):
                slot, task = running[child]
                for how, note in found:
                    task.got(how, note)
                if child.over or not task.left:
                    task.over()
                    child.end()
                    del running[child]
                    free.append(slot)
    finally:
        for child in running:
            child.end()


def _on(devices, slot, task):
    def work():
        if devices:
            os.environ["CLMATMUL_DEVICE"] = devices[slot % len(devices)]
        return task.work()

    return work


def profile_here():
    """The device's profile, as JSON, with what variants may ask of it."""
    device = selection.resolve()
    probes.ensure_usual(device)
    return device.profile.to_json()


def profile_of_child():
    """The device's DeviceProfile, found by a child: this process never touches OpenCL."""
    text = result(profile_here, SECONDS["simulate"])
    if isinstance(text, list):
        raise SystemExit(f"no device: {text[1]}")
    return DeviceProfile.from_json(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--step", choices=SECONDS, default="quick")
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    parser.add_argument("--devices", nargs="*", default=[])
    parser.add_argument("--programs", type=int, default=1, help="in which a mutant is tried")
    parser.add_argument("--sample", type=float, default=1, help="this part of all mutants")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--build-options", default="", help="more, for the compiler")
    options = parser.parse_args()
    os.environ["CLMATMUL_CACHE"] = "0"  # each program is used by one process
    profile = profile_of_h200() if options.step == "native" else profile_of_child()
    if options.emulate:
        profile = emulating(profile)
    given = json.load(sys.stdin)
    names = options.variants or variant_names()
    native_cpu = options.step == "native" and any(x.startswith("cpu_") for x in names)
    programs = programs_of(names, profile, profile_of_child() if native_cpu else None)
    for program in programs:
        program.keep(options.sample)

    def record(fate):
        print(json.dumps(fate), flush=True)

    more = tuple(options.build_options.split())
    schedule = Schedule(programs, given, options.step, options.programs, record, more)
    run(schedule, options.jobs, options.devices)
    failed = [x for x in programs if x.failed]
    for x in failed:
        print(f"a kernel fails as it is: {x.target.config} {x.target.kind.key} {x.entry}: "
              f"{x.failed}", file=sys.stderr)  # fmt: skip
    sys.exit(2 if failed else 0)


if __name__ == "__main__":
    main()

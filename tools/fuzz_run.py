"""Random products against the reference; the work of tools/fuzz."""

import argparse
import contextlib
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import runtimes
from conformance_run import commit, end_group, progress, signal_name

TOOLS = Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS.parent))  # clmatmul, installed or not
SHARD = 500  # products that share a process and its programs
SILENT_SECONDS = 240  # after which a product is taken to hang
MOST_SIMPLER = 60  # products that are tried to make a failure smaller
MOST_MINIMISED = 5  # failures for which that is done
MOST_FAILURES = 30  # after which a run ends: its faults have one cause, or the kernels do not build


@dataclass(frozen=True)
class Failure:
    """A product that went wrong: what was said, and the smallest one that still does."""

    shard: int
    index: int
    fault: str
    product: str
    smallest: str
    smallest_fault: str


@dataclass(frozen=True)
class Part:
    """One shard that was run to its end."""

    shard: int
    products: int
    programs: int
    seconds: float
    commit: str
    device: str


class Journal:
    """What was done, a JSON line each, so that a run goes on where it was cut short."""

    def __init__(self, path, about):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        events = [json.loads(line) for line in lines]
        self.parts = [Part(**e["part"]) for e in events if "part" in e]
        self.failures = [Failure(**e["failure"]) for e in events if "failure" in e]
        before = [e["about"] for e in events if "about" in e]
        if before and before[0] != about:
            raise ValueError(f"{path} is of another run: {before[0]}, not {about}")
        if not before:
            self._write({"about": about})

    def add(self, kind, value):
        (self.parts if kind == "part" else self.failures).append(value)
        self._write({kind: asdict(value)})

    def _write(self, event):
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")


class Worker:
    """A fuzz_worker process, and what it tells."""

    def __init__(self, environment, *arguments, text=""):
        self.process = subprocess.Popen(
            [sys.executable, str(TOOLS / "fuzz_worker.py"), *arguments], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode())
            self.process.stdin.close()

    def told(self, silent_seconds):
        """Each object that it tells; then one with its `end`: why it ended, '' if as it should."""
        out, rest = self.process.stdout.fileno(), b""
        try:
            while True:
                if not select.select([out], [], [], silent_seconds)[0]:
                    yield {"end": f"no answer for {silent_seconds} s"}
                    return
                data = os.read(out, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    # A compiler may write to standard output, too.
                    with contextlib.suppress(ValueError):
                        yield json.loads(line)
            status = self.process.wait()
            how = signal_name(-status) if status < 0 else f"exit status {status}"
            yield {"end": f"the process ended with {how}" if status else ""}
        finally:
            end_group(self.process)


class Fuzz:
    """A run: its options, where it computes, what it found."""

    def __init__(self, options, environment, journal):
        self.options = options
        self.environment = environment
        self.journal = journal
        self.shards = -(-options.problems // SHARD)
        self.programs = max(options.programs // self.shards, 1)

    def run(self):
        """Every shard that the journal does not have; stops at --minutes."""
        done = {part.shard for part in self.journal.parts}
        for shard in range(self.shards):
            if shard in done:
                continue
            if time.monotonic() > self.options.deadline:
                progress("time is up: the same command goes on from here")
                return
            self.run_shard(shard)

    def run_shard(self, shard):
        start, first, built, device = time.monotonic(), 0, 0, ""
        known = {f.index for f in self.journal.failures if f.shard == shard}
        count = min(SHARD, self.options.problems - shard * SHARD)
        while True:
            at, worker = first, self.worker(shard, first, count)
            for told in worker.told(SILENT_SECONDS):
                if told.get("error"):
                    raise SystemExit(f"fuzz: {told['error']}")
                if told.get("fault") and told["at"] not in known:
                    known.add(told["at"])
                    self.found(shard, told["at"], told["fault"], told["product"])
                at = told["at"] if told.get("at") is not None else at
                built, device = built + told.get("programs", 0), told.get("device") or device
            if not told["end"]:
                break
            if at not in known:
                self.found(shard, at, told["end"], self.describe(shard, at))
            first = at + 1
        seconds = round(time.monotonic() - start, 1)
        self.journal.add("part", Part(shard, count, built, seconds, commit(), device))
        progress(f"{self.total()} [{seconds:.0f} s for the last {count}]")

    def worker(self, shard, first, count, *more):
        values = dict(seed=self.options.seed, shard=shard, programs=self.programs, first=first,
                      count=count)  # fmt: skip
        words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        words += ["--variants", ",".join(self.options.variants)]
        return Worker(self.environment, *words, *more)

    def describe(self, shard, index):
        worker = self.worker(shard, 0, 0, "--describe", str(index))
        found = [told["product"] for told in worker.told(SILENT_SECONDS) if told.get("product")]
        return found[0] if found else ""

    def found(self, shard, index, fault, product):
        progress(f"WRONG: shard {shard}, product {index}: {fault}")
        smallest, its_fault = product, fault
        if len(self.journal.failures) < MOST_MINIMISED:
            smallest, its_fault = minimised(product, fault, self.environment)
        self.journal.add("failure", Failure(shard, index, fault, product, smallest, its_fault))
        progress(reproduction(smallest, its_fault))
        if len(self.journal.failures) >= MOST_FAILURES:
            raise SystemExit(f"fuzz: {MOST_FAILURES} products were wrong; that is enough")

    def total(self):
        parts = self.journal.parts
        products, programs = sum(p.products for p in parts), sum(p.programs for p in parts)
        wrong = len(self.journal.failures)
        return f"{products} products over {programs} programs: {wrong} wrong"


def fault_of(product, environment):
    """The fault of one product, computed in a process of its own; None if it is right."""
    fault = None
    for told in Worker(environment, "--product", text=product).told(SILENT_SECONDS):
        fault = told.get("end") or told.get("fault") or fault
    return fault


def minimised(text, fault, environment):
    """(product, fault): the simplest one found that is still wrong, in MOST_SIMPLER runs."""
    from fuzz_problems import Product, simplest

    if not text:
        return text, fault
    product, tried = Product.from_json(text), set()
    while True:
        for simpler in simplest(product):
            line = simpler.to_json()
            if line in tried:
                continue
            if len(tried) >= MOST_SIMPLER:
                return product.to_json(), fault
            tried.add(line)
            found = fault_of(line, environment)
            if found:
                product, fault = simpler, found
                break
        else:
            return product.to_json(), fault


def reproduction(product, fault):
    """Text to paste: the fault, the product in words, the command that computes it again."""
    from fuzz_problems import Product

    if not product:
        return f"  {fault} (its product could not be described)"
    return (
        f"  {fault}\n  {Product.from_json(product)}\n"
        f"  tools/fuzz --product - <<'END'\n{product}\nEND"
    )


def environment_for(options, scratch):
    """The processes' environment; UnavailableError."""
    if not options.on:
        return dict(os.environ)
    folder = options.runtimes.absolute()
    runtime = runtimes.load(options.on, folder)
    runtime = runtimes.probe(runtime, folder, os.environ, scratch)
    return runtimes.environment_of(runtime, folder, os.environ, scratch)


def parser():
    """The command line."""
    result = argparse.ArgumentParser(
        prog="tools/fuzz",
        description="Compute random products by random kernels and compare them with the "
        "reference: every kind of problem and every valid configuration may be drawn. The same "
        "seed and numbers draw the same products on the same device.",
        epilog="Exit status: 0 if every product was right; 1 if one was wrong; 2 for a wrong "
        "command line or a device that is not there; 3 if --minutes ended it early.",
    )
    add = result.add_argument
    add("--problems", type=int, default=1000, help="products (default: %(default)s)")
    add("--programs", type=int, default=100,
        help="programs that they share, about (default: %(default)s)")  # fmt: skip
    add("--seed", type=int, help="a whole number (default: a random one, which is printed)")
    add("--variants", nargs="+", metavar="NAME", default=[], help="only these kernels")
    add("--journal", type=Path, metavar="FILE",
        help="keep what was done: the same command goes on where it was cut short")  # fmt: skip
    add("--minutes", type=float, default=1e6, help="begin no shard after so long")
    add("--runtimes", type=Path, metavar="DIR", default=runtimes.default_folder(),
        help="folder of the runtimes (default: %(default)s)")  # fmt: skip
    add("--on", metavar="NAME", choices=sorted(runtimes.IMPLEMENTATIONS),
        help="one of its runtimes (default: the device that CLMATMUL_DEVICE means)")  # fmt: skip
    add("--product", metavar="FILE", help="compute the one product in a file (- for stdin)")
    return result


def main(arguments=None):
    """Run; the exit status."""
    cli = parser()
    options = cli.parse_args(arguments)
    options.deadline = time.monotonic() + 60 * options.minutes
    if options.problems < 1 or options.programs < 1:
        cli.error("--problems and --programs must be at least 1")
    with tempfile.TemporaryDirectory(prefix="clmatmul-fuzz-") as scratch:
        try:
            environment = environment_for(options, scratch)
        except runtimes.UnavailableError as error:
            cli.error(str(error))
        if options.product:
            return run_one(options.product, environment)
        if options.seed is None:
            options.seed = random.SystemRandom().randrange(2**31)
        progress(f"seed {options.seed}")
        about = {x: getattr(options, x) for x in ("seed", "problems", "programs", "variants")}
        about["on"] = options.on or os.environ.get("CLMATMUL_DEVICE", "")
        try:
            journal = Journal(options.journal, about)
        except (OSError, ValueError) as error:
            cli.error(f"--journal: {error}")
        fuzz = Fuzz(options, environment, journal)
        fuzz.run()
    print(f"seed {options.seed}: {fuzz.total()}")
    if journal.failures:
        return 1
    return 0 if len(journal.parts) == fuzz.shards else 3


def run_one(file, environment):
    """Compute one product and say how it went; the exit status."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    fault = fault_of(text.strip(), environment)
    print(fault or "right")
    return 1 if fault else 0

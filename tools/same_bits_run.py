"""Reproducible products on several OpenCL implementations: are they the same, bit for bit?

Each implementation of a folder of runtimes (see `runtimes.py`) computes the same random products
in a process of its own, with `reproducible=True`, and a digest of each result is compared::

    tools/same_bits --only pocl-3.0,intel --problems 200
    tools/same_bits --here > digests.jsonl     # this machine's default device alone
    tools/same_bits --expect digests.jsonl     # … and whether others give the same
    tools/same_bits --keep FOLDER              # goes on where an earlier run was ended

The products are of every size class (one element, vectors, small, medium, long sums, batches,
large), of every floating dtype and layout, with and without an epilogue, and some with NaN,
infinities and subnormal numbers. Those from the 201st on are larger than a simulator can do.
float64 is left out where a device has none.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
SEED = 20261130
# (m, n, k) are drawn up to these; batches besides.
CLASSES = {
    "element": (1, 1, 40), "row": (1, 60, 50), "column": (60, 1, 50), "small": (12, 12, 12),
    "medium": (60, 70, 50), "long": (5, 6, 900), "batch": (9, 10, 11), "large": (130, 120, 90),
}  # fmt: skip
ROUND = 200  # problems of these, then
BEYOND = {"largest": (520, 600, 700), "longest": (40, 50, 9000)}
DTYPES = ("float32", "float32", "float16", "complex64", "float64")
EPILOGUES = ("none", "none", "scaled", "relu", "gelu_tanh", "gelu", "silu", "sigmoid", "tanh",
             "expression")  # fmt: skip


def problems(count, seed=SEED):
    """(name, function that computes the product) of `count` random products."""
    for i in range(count):
        rng = np.random.default_rng((seed, i))
        classes = list(CLASSES if i < ROUND else BEYOND)
        kind = classes[i % len(classes)]
        dtype = DTYPES[i // len(classes) % len(DTYPES)]
        yield f"{i}:{kind}:{dtype}", dtype, make(rng, kind, dtype)


def make(rng, kind, dtype):
    """A function that computes one random product."""
    import clmatmul

    limits = (CLASSES | BEYOND)[kind]
    m, n, k = (int(rng.integers(1, most + 1)) for most in limits)
    if kind == "large" or kind in BEYOND:
        m, n, k = limits
    batch = (3,) if kind == "batch" else ()
    layout = rng.integers(4)
    a = values(rng, batch + (m, k), dtype)
    b = values(rng, (k, n), dtype)
    if layout & 1:
        a = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout & 2:
        b = np.asfortranarray(b)
    if rng.random() < 0.2:  # NaN, infinity, and numbers below the least normal one
        a.reshape(-1)[: 1 + a.size // 50] = rng.choice([np.nan, np.inf, 1e-40])
    name = EPILOGUES[int(rng.integers(len(EPILOGUES)))]
    keywords = dict(reproducible=True)
    if name == "scaled":
        keywords.update(alpha=0.7, beta=-1.3, c=values(rng, (m, n), dtype))
    elif name == "expression":
        epilogue = clmatmul.Epilogue(expression="acc > row ? acc * 1.7 : floor(acc) - col")
        keywords.update(epilogue=epilogue)
    elif name != "none":
        bias = values(rng, (n,), "float32")
        keywords.update(epilogue=clmatmul.Epilogue(bias=bias, activation=name))
    if dtype == "complex64" and name not in ("none", "scaled"):
        keywords.pop("epilogue", None)
    c = keywords.pop("c", None)
    return lambda: clmatmul.gemm(a, b, c, **keywords)


def values(rng, shape, dtype):
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    if dtype == "complex64":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def digests(count, known=()):
    """(name, digest) of each result on the default device but those whose names are `known`;
    None where it lacks the dtype."""
    import clmatmul

    with np.errstate(all="ignore"):
        for name, dtype, compute in problems(count):
            if name in known:
                continue
            if dtype == "float64" and not clmatmul.default_device().fp64:
                yield name, None
                continue
            result = np.ascontiguousarray(compute())
            yield name, hashlib.sha256(result.tobytes()).hexdigest()[:16]


def read(text):
    """name → digest, from the lines that `--here` prints; they need not be complete, and a driver
    may have printed others between."""
    lines = (line for line in text.splitlines() if line.startswith('["') and line.endswith("]"))
    return dict(map(json.loads, lines))


def on_runtime(name, folder, count, kept):
    """The digests of a runtime, computed in a process of its own.

    kept: a file that has some of them, perhaps, and gets the others; they must be of these sources.
    """
    import runtimes

    kept.touch()
    with tempfile.TemporaryDirectory(prefix="clmatmul-same-bits-") as scratch:
        runtime = runtimes.probe(runtimes.load(name, folder), folder, os.environ, scratch)
        environment = runtimes.environment_of(runtime, folder, os.environ, scratch)
        environment["PYTHONPATH"] = os.pathsep.join([str(TOOLS.parent), str(TOOLS)])
        environment["CLMATMUL_VERIFY"] = "0"
        command = [sys.executable, str(TOOLS / "same_bits"), "--here", f"--problems={count}",
                   f"--but={kept}"]  # fmt: skip
        with kept.open("a", encoding="utf-8") as lines:
            print(file=lines, flush=True)  # ends a line that a process could not
            subprocess.run(command, env=environment, stdout=lines, check=True)
    return read(kept.read_text(encoding="utf-8"))


def compare(found):
    """One line for each implementation; True if all that computed a product agree."""
    names = sorted({name for digest in found.values() for name in digest})
    agree = True
    for who, digest in found.items():
        others = [found[x] for x in found if x != who]
        differing = [
            name
            for name in names
            if digest.get(name) and any(x.get(name) not in (None, digest[name]) for x in others)
        ]
        done = sum(digest.get(name) is not None for name in names)
        agree = agree and not differing
        tail = f"; {len(differing)} differ from another: {', '.join(differing[:8])}"
        print(f"{who}: {done} products{tail if differing else ', the same bits as the others'}")
    return agree


def main(argv=None):
    import runtimes

    parser = argparse.ArgumentParser(prog="same_bits", description=__doc__.splitlines()[0])
    parser.add_argument("--runtimes", type=Path, default=runtimes.default_folder())
    parser.add_argument("--only", default="", help="implementations, with commas between")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument(
        "--here", action="store_true", help="print this machine's digests, a line each"
    )
    parser.add_argument("--expect", type=Path, action="append", default=[], help="such a file")
    parser.add_argument("--but", type=Path, help="with --here: a file of digests to leave out")
    parser.add_argument("--keep", type=Path, help="a folder for digests, to go on from later")
    options = parser.parse_args(argv)
    if options.here:
        known = read(options.but.read_text(encoding="utf-8")) if options.but else ()
        for line in digests(options.problems, known):
            print(json.dumps(line), flush=True)
        return 0
    found = {str(path): read(path.read_text()) for path in options.expect}
    names = options.only.split(",") if options.only else sorted(runtimes.IMPLEMENTATIONS)
    with tempfile.TemporaryDirectory(prefix="clmatmul-digests-") as passing:
        folder = options.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            kept = folder / f"{name}.jsonl"
            try:
                found[name] = on_runtime(name, options.runtimes, options.problems, kept)
            except (runtimes.UnavailableError, subprocess.CalledProcessError) as error:
                print(f"{name}: not available: {error}")
    return 0 if compare(found) and len(found) > 1 else 1

"""Compiles every portable kernel with the compilers of GPUs that are not here.

    python tools/offline_compile.py --fetch FOLDER       get the compilers (Debian 12, no root)
    python tools/offline_compile.py --compilers FOLDER   compile, and print the table
    python tools/offline_compile.py --compilers FOLDER --write docs/portability.md

What is compiled for a device is what the library would choose for it: each variant's proposals
for a few problems, by a profile of such a device. A kernel that does not compile, or that spills
registers to memory, makes the exit code 1.
"""

import argparse
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from offline_compilers import Compilers, UnavailableError, fetch, targets  # noqa: E402

from clmatmul.config import TileConfig  # noqa: E402
from clmatmul.errors import ConfigError  # noqa: E402
from clmatmul.explanation import plain_problem  # noqa: E402
from clmatmul.plan import make_plan, render  # noqa: E402
from clmatmul.variants import all_variants  # noqa: E402

PORTABLE = ("naive", "tiled", "register_blocked", "line_dot", "line_sweep", "line_fill")
# (m, n, k, layout, batch): what a user multiplies, from large squares to vectors.
_SHAPES = (
    (4096, 4096, 4096, "NN", ()), (4096, 4096, 4096, "TT", ()), (512, 512, 512, "NN", ()),
    (64, 64, 64, "NN", (1024,)), (4096, 16, 4096, "NN", ()), (16, 4096, 4096, "NN", ()),
    (128, 128, 65536, "NN", ()), (1, 8192, 8192, "NN", ()), (1, 8192, 8192, "NT", ()),
    (8, 8192, 8192, "NT", ()), (4096, 4, 4096, "TN", ()), (4096, 4096, 1, "NN", ()),
)  # fmt: skip
_FEWER_SHAPES = (_SHAPES[0], _SHAPES[1], _SHAPES[4], _SHAPES[7], _SHAPES[8], _SHAPES[11])
DTYPES = ("float32", "float64", "complex64", "bfloat16", "int8")
_BEGIN, _END = "<!-- table: tools/offline_compile.py -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Row:
    """A kernel compiled for a target."""

    target: object
    config: TileConfig
    dtype: str
    entry: str
    compiled: object

    @property
    def good(self):
        return not self.compiled.error and not self.compiled.spilled


def kernels(target, dtypes):
    """(config, dtype, entry, work-items, text) of every program that the defaults lead to."""
    seen = set()
    for dtype in dtypes:
        if dtype == "float64" and not target.profile.fp64:
            continue
        for m, n, k, layout, batch in _SHAPES if dtype == "float32" else _FEWER_SHAPES:
            problem = plain_problem(m, n, k, dtype, layout, batch)
            for config in _defaults(problem, target.profile):
                try:
                    plan = make_plan(problem, target.profile, config)
                except ConfigError:
                    continue  # the walk over choices passes it over too
                for launch, text in zip(plan.launches, render(plan), strict=True):
                    if launch.source_key not in seen:
                        seen.add(launch.source_key)
                        yield plan.config, dtype, launch.entry, launch.local_size, text


def _defaults(problem, profile):
    for variant in all_variants():
        # of few terms, the kernel that is made for them alone
        if problem.k == 1 and variant.name != "line_fill":
            continue
        if variant.name in PORTABLE and not variant.unmet(problem.kind, profile):
            for _rank, values, _why in variant.header["propose"](problem, profile):
                yield variant.complete(TileConfig.of(variant.name, **values))


def compile_all(compilers, chosen, dtypes, say=lambda text: None):
    """A Row for every kernel of every target; UnavailableError before anything is compiled."""
    for compiler in sorted({x.compiler for x in chosen}):
        compilers.check(compiler)
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for target in chosen:
            jobs = [
                (config, dtype, entry,
                 pool.submit(compilers.compile, target, text, local[0] * (local + (1,))[1]))
                for config, dtype, entry, local, text in kernels(target, dtypes)
            ]  # fmt: skip
            done = [Row(target, c, d, e, job.result()) for c, d, e, job in jobs]
            rows += done
            say(f"{target.name}: {len(done)} kernels, {sum(not x.good for x in done)} bad")
    return rows


def short(config):
    """A configuration in few words: tile, micro-tile and what else decides about registers."""
    v = config.values()
    if config.variant == "register_blocked":
        more = "".join(
            f" {name} {v[name]}" for name in ("prefetch", "unroll", "slices") if v[name] != 1
        )
        sizes = (v[x] for x in ("tile_m", "tile_n", "tile_k", "micro_m", "micro_n"))
        return "register_blocked {}×{}×{}, {}×{}".format(*sizes) + more
    inside = " ".join(f"{name} {x}" for name, x in v.items() if name != "splits")
    return f"{config.variant} {inside}"


def table(rows):
    """The table as Markdown: a line a kernel of float32, and what was bad of the others."""
    names = list(dict.fromkeys(x.target.name for x in rows))
    lines = ["| kernel | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    found = {}
    for x in rows:
        if x.dtype == "float32" and x.entry != "reduce":
            key = short(x.config)
            found.setdefault(key, {}).setdefault(x.target.name, x.compiled)
    for key in sorted(found):
        cells = [_cell(found[key].get(name)) for name in names]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    lines += ["", "| target | " + " | ".join(DTYPES) + " |", "|---|" + "---|" * len(DTYPES)]
    for name in names:
        cells = []
        for dtype in DTYPES:
            of = [x for x in rows if x.target.name == name and x.dtype == dtype]
            bad = sum(not x.good for x in of)
            cells.append(f"{len(of)} kernels, {bad} bad" if of else "no float64")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(compiled):
    if compiled is None:
        return ""
    if compiled.error:
        return "**fails**"
    spilled = f"**spills {compiled.spilled}**" if compiled.spilled else "0"
    registers = "" if compiled.registers is None else f"{compiled.registers} / "
    return f"{registers}{spilled} / {compiled.local_bytes} / {compiled.occupancy}"


def write_table(file, text):
    """Put the table between its marks in a document."""
    old = file.read_text()
    pattern = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    if not pattern.search(old):
        raise SystemExit(f"offline_compile: {file} has no place for the table ({_BEGIN})")
    file.write_text(pattern.sub(lambda _: f"{_BEGIN}\n{text}\n{_END}", old))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fetch", type=Path, metavar="FOLDER", help="unpack the compilers there")
    parser.add_argument("--compilers", type=Path, metavar="FOLDER", help="where they are unpacked")
    parser.add_argument("--target", action="append", help="part of a target's name")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into a document")
    options = parser.parse_args(arguments)
    if options.fetch:
        fetch(options.fetch)
        return 0
    wanted = options.target or [""]
    chosen = [x for x in targets() if any(word in x.name for word in wanted)]
    try:
        rows = compile_all(
            Compilers(options.compilers), chosen, options.dtype or DTYPES,
            say=lambda text: print(text, file=sys.stderr),
        )  # fmt: skip
    except UnavailableError as error:
        print(f"offline_compile: {error}", file=sys.stderr)
        return 2
    text = table(rows)
    if options.write:
        write_table(options.write, text)
    else:
        print(text)
    for x in rows:
        if not x.good:
            why = x.compiled.error or f"spills {x.compiled.spilled}"
            print(f"{x.target.name}, {x.dtype}, {x.entry}, {x.config}: {why}", file=sys.stderr)
    return int(not all(x.good for x in rows))


if __name__ == "__main__":
    sys.exit(main())

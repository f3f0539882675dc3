"""Markdown tables of what `tools/peer_bench.py` measured, for docs/performance*.md.

    python tools/peer_tables.py products rows.json        one line a product
    python tools/peer_tables.py kinds suite.json          geometric means of kinds of shapes
    python tools/peer_tables.py suite suite.json          one line a shape, both dtypes side by side

rows.json, suite.json: what `--json` of that tool wrote, one or more files.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import geometric_mean

_KINDS = {
    "4 GFLOP and more": lambda r: 2 * r["m"] * r["n"] * r["k"] >= 4e9,
    "less than 4 GFLOP": lambda r: True,
}
_SPECIAL = {
    "batches": lambda r: r["batch"] > 1,
    "matrix times vector (m or n is 1)": lambda r: min(r["m"], r["n"]) == 1,
    "at most 64 rows or columns": lambda r: min(r["m"], r["n"]) <= 64,
}
_DTYPES = ("float32", "bfloat16")


def served_by(config):
    """A configuration in a few words."""
    variant, _, rest = config.rstrip(")").partition("(")
    values = dict(x.strip().split("=") for x in rest.split(",") if x)
    text = f"`{variant}`"
    if "tile_m" in values:
        text += f" {values['tile_m']}×{values['tile_n']}"
    if int(values.get("splits", 1)) > 1:
        text += f", k in {values['splits']} parts"
        text += " of the rest" * (int(values.get("wave", 0)) > 0)
        text += ", all add up" * (values.get("adders") == "all")
    if int(values.get("walkers", 0)) > 0:
        text += ", groups walk"
    return text


def size_of(row):
    lead = f"{row['batch']} × " if row["batch"] > 1 else ""
    if row["batch"] == 1 and row["m"] == row["n"] == row["k"]:
        return str(row["m"])
    return f"{lead}{row['m']} × {row['n']} × {row['k']}"


def products(rows):
    head = (
        "dtype", "m × n × k", "layout", "what serves", "ours", "cuBLAS", "ratio", "least–most",
        "by events", "as called", "without events", "error ÷ allowed",
    )  # fmt: skip
    lines = [
        (
            row["dtype"] + (" as TF32" if row["precision"] == "high" else "")
            + (", bias and GELU" if row["epilogue"] else ""),
            size_of(row), row["layout"], served_by(row["config"]), f"{row['tflops']:.1f}",
            f"{row['peer_tflops']:.1f}", f"{row['ratio']:.3f}",
            f"{row['low']:.2f}–{row['high']:.2f}", f"{row['ratio_events']:.2f}",
            f"{row['ratio_span']:.2f}", f"{row['ratio_bare']:.2f}", f"{row['error']:.2f}",
        )
        for row in rows
    ]  # fmt: skip
    return table(head, lines)


def kind_of(row):
    return next(name for name, holds in {**_SPECIAL, **_KINDS}.items() if holds(row))


def kinds(rows):
    keys = ("ratio", "ratio_events", "ratio_span", "ratio_bare")
    names = ("shapes", "ratio", "by events", "as called", "without events", "least as called")
    head = [
        "",
        *(f"{dtype}: {names[0]}" if x == names[0] else x for dtype in _DTYPES for x in names),
    ]
    lines = []
    for kind in (*_KINDS, *reversed(_SPECIAL), "**all**"):
        line = [kind]
        for dtype in _DTYPES:
            of = [r for r in rows if r["dtype"] == dtype and kind in (kind_of(r), "**all**")]
            line.append(str(len(of)))
            line += [f"{geometric_mean(r[key] for r in of):.2f}" if of else "" for key in keys]
            line.append(f"{min(r['ratio_span'] for r in of):.2f}" if of else "")
        lines.append(line)
    return table(head, lines)


def suite(rows):
    names = ("ours", "cuBLAS", "ratio", "as called", "without events", "variant")
    head = ["shape", "batch×m×n×k", "layout"]
    head += [f"{dtype}: ours" if x == "ours" else x for dtype in _DTYPES for x in names]
    shapes = {}
    for r in rows:
        key = (r["name"], r["batch"], r["m"], r["n"], r["k"], r["layout"])
        shapes.setdefault(key, {})[r["dtype"]] = r
    lines = []
    for key, found in sorted(shapes.items()):
        line = [key[0], "×".join(map(str, key[1:5])), key[5]]
        for dtype in _DTYPES:
            r = found.get(dtype)
            line += [""] * len(names) if r is None else [
                f"{r['us']:.1f}", f"{r['peer_us']:.1f}", f"{r['ratio']:.2f}",
                f"{r['ratio_span']:.2f}", f"{r['ratio_bare']:.2f}", r["config"].split("(")[0],
            ]  # fmt: skip
        lines.append(line)
    return table(head, lines)


def table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(x)} |\n".replace("|  |", "| |") for x in rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=("products", "kinds", "suite"))
    parser.add_argument("rows", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    rows = [row for file in options.rows for row in json.loads(file.read_text())]
    sys.stdout.write({"products": products, "kinds": kinds, "suite": suite}[options.table](rows))


if __name__ == "__main__":
    main()

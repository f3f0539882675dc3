"""The tables of docs/performance*.md, made from a benchmark's rows."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import peer_tables  # noqa: E402

CONFIG = "nv_async(along=0, splits=3, tile_m=64, tile_n=128, walkers=0, wave=0)"


def row(dtype="float32", m=2048, n=2048, k=2048, batch=1, span=1.0, name="s", **changes):
    return dict(
        name=name, dtype=dtype, batch=batch, m=m, n=n, k=k, layout="NT", precision="highest",
        epilogue="", config=CONFIG, us=10.0, peer_us=12.5, tflops=40.04, peer_tflops=38.8,
        ratio=1.25, low=1.0, high=1.5, ratio_events=1.5, ratio_span=span, ratio_bare=1.125,
        error=0.25,
    ) | changes  # fmt: skip


def cells(text):
    return [[x.strip() for x in line.strip("|\n").split("|")] for line in text.splitlines()]


def test_products():
    head, _, plain, tf32, gelu = cells(
        peer_tables.products(
            [row(), row(m=4, batch=3, precision="high"), row("bfloat16", epilogue="gelu")]
        )
    )
    assert plain == [
        "float32", "2048", "NT", "`nv_async` 64×128, k in 3 parts", "40.0", "38.8", "1.250",
        "1.00–1.50", "1.50", "1.00", "1.12", "0.25",
    ]  # fmt: skip
    assert len(head) == len(plain)
    assert tf32[:2] == ["float32 as TF32", "3 × 4 × 2048 × 2048"]
    assert gelu[0] == "bfloat16, bias and GELU"


def test_what_serves():
    assert peer_tables.served_by("line_fill(lanes=128)") == "`line_fill`"
    rest = CONFIG.replace("wave=0", "wave=2").replace("walkers=0", "walkers=4")
    assert peer_tables.served_by(rest).endswith("k in 3 parts of the rest, groups walk")
    assert peer_tables.served_by(CONFIG[:-1] + ", adders=all)").endswith("3 parts, all add up")


def test_kinds():
    rows = [
        row(span=2.0), row(span=0.5), row("bfloat16", m=1), row("bfloat16", m=512, n=512),
        row("bfloat16", n=64), row("bfloat16", batch=2, m=1),
    ]  # fmt: skip
    found = {line[0]: line[1:] for line in cells(peer_tables.kinds(rows))[2:]}
    assert found["4 GFLOP and more"][:6] == ["2", "1.25", "1.50", "1.00", "1.12", "0.50"]
    for kind in list(found)[1:5]:
        assert (found[kind][0], found[kind][6]) == ("0", "1")
    assert (found["**all**"][0], found["**all**"][6]) == ("2", "4")


def test_suite(tmp_path, capsys):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([row(name="b"), row("bfloat16", name="b"), row(name="a")]))
    peer_tables.main(["suite", str(file)])
    head, _, a, b = cells(capsys.readouterr().out)
    assert (a[0], b[0]) == ("a", "b") and len(head) == len(a) == len(b)
    assert a[3:9] == ["10.0", "12.5", "1.25", "1.00", "1.12", "nv_async"] and a[9] == ""
    assert b[9:] == a[3:9]

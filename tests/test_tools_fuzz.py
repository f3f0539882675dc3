"""tools/fuzz: the same numbers draw the same products, and a wrong kernel is found and shown."""

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import fuzz_problems  # noqa: E402
import fuzz_run  # noqa: E402
from fuzz_problems import Product, Shard, draw_kind, draw_recipe, simplest  # noqa: E402

from clmatmul import templates  # noqa: E402
from clmatmul.variants import all_variants  # noqa: E402


@pytest.fixture
def shard(device):
    pytest.importorskip("ml_dtypes")
    return Shard(7, 3, 12, device.profile)


def products(shard, count=150):
    return [shard.product(i) for i in range(count)]


def test_numbers_decide_everything(shard, device):
    again = Shard(7, 3, 12, device.profile)
    assert again.keys == shard.keys
    assert products(again, 20) == products(shard, 20)
    assert shard.product(5) == products(shard, 20)[5], "whatever was drawn before"
    assert products(Shard(8, 3, 12, device.profile), 20) != products(shard, 20)


def test_a_shard_keeps_to_its_programs(shard, device):
    assert 1 <= len(shard.keys) <= 12
    needed = [p.source_keys(device.profile) for p in products(shard)]
    assert frozenset().union(*needed) <= shard.keys


def test_products_are_of_every_kind(device):
    """What a kernel's text and its launches may depend on is drawn in all its values."""
    pytest.importorskip("ml_dtypes")
    rng = random.Random(1)
    kinds = [draw_kind(rng, device.profile) for _ in range(1500)]
    for name, least in (("alpha", 3), ("beta", 3), ("activation", 8), ("batch_rank", 4),
                        ("index", 2), ("reproducible", 2), ("compute", 5), ("aux", 4),
                        ("expression", 4), ("precision", 3)):  # fmt: skip
        assert len({getattr(k, name) for k in kinds}) >= least, name
    assert len({k.a.dtype for k in kinds}) >= 13
    assert {k.b.order for k in kinds} == {"row", "column", "strided"}
    assert any(k.a.conjugate for k in kinds)
    for part in ("bias", "residual", "row_scale", "col_scale"):
        assert any(getattr(k, part) for k in kinds)
    recipes = [draw_recipe(rng, device.profile) for _ in range(60)]
    offered = {v.name for v in all_variants() if v.name in {c.variant for _, c in recipes}}
    assert len(offered) >= 4
    assert len({config for _, config in recipes}) > 40


def test_a_device_without_float64_gets_no_such_product(device):
    pytest.importorskip("ml_dtypes")
    rng, profile = random.Random(2), replace(device.profile, fp64=False)
    assert not any(draw_kind(rng, profile).needs_fp64 for _ in range(500))


def test_sizes_are_bounded(shard):
    for p in products(shard):
        m, n, k = p.size
        count = 1
        for x in p.batch:
            count *= x
        assert m * n * max(k, 1) * count <= fuzz_problems.MOST_TERMS
        assert max(m * n, m * k, k * n) * count <= fuzz_problems.MOST_ELEMENTS


def test_a_product_is_written_and_read(shard):
    for p in products(shard, 60):
        again = Product.from_json(p.to_json())
        assert again.to_json() == p.to_json()
        assert again.kind == p.kind and again.config == p.config
    with pytest.raises(ValueError, match="no product"):
        Product.from_json('{"kind": {}}')


def test_simpler_products_end(shard):
    """Whatever is wrong, making a product simpler comes to an end."""
    for p in products(shard, 10):
        steps = 0
        while (simpler := next(simplest(p), None)) is not None:
            p, steps = simpler, steps + 1
            assert steps < 200
        assert p.size in ((1, 1, 1), (1, 1, 0)) and p.batch == ()


def test_minimised_keeps_what_is_wrong(monkeypatch, shard):
    """A fault of all products with k > 4 and float32 results is shown with k = 5."""
    chosen = next(p for p in products(shard, 150) if p.size[2] > 8 and p.batch)
    calls = []

    def fault(text, environment):
        calls.append(text)
        return "wrong" if Product.from_json(text).size[2] > 4 else None

    monkeypatch.setattr(fuzz_run, "fault_of", fault)
    monkeypatch.setattr(fuzz_run, "MOST_SIMPLER", 500)
    smallest, said = fuzz_run.minimised(chosen.to_json(), "at first", {})
    smallest = Product.from_json(smallest)
    assert smallest.size == (1, 1, 5) and smallest.batch == () and said == "wrong"
    assert len(calls) == len(set(calls))
    monkeypatch.setattr(fuzz_run, "MOST_SIMPLER", 0)
    few, said = fuzz_run.minimised(chosen.to_json(), "at first", {})
    assert (few, said) == (chosen.to_json(), "at first")


@pytest.fixture
def wrong_kernel(tmp_path, monkeypatch):
    """A variant that leaves out the last of many terms, offered for sums of float32 only."""
    source = (TOOLS.parent / "kernels" / "naive.cl.mako").read_text()
    broken = source.replace("i < k;", "i < k - (k > 20);").replace(
        "REQUIRES = ()", "REQUIRES = (\"kind.compute == 'float32'\", \"kind.alpha != 'zero'\")"
    )
    assert broken.count("k > 20") == 1 and "kind.compute" in broken
    (tmp_path / "wrong.cl.mako").write_text(broken)
    monkeypatch.setenv("CLMATMUL_KERNEL_PATH", str(tmp_path))
    templates.variant_files.cache_clear()
    yield
    templates.variant_files.cache_clear()


def test_a_wrong_kernel_is_found_and_made_small(
    wrong_kernel, device, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(fuzz_run, "MOST_SIMPLER", 6)
    monkeypatch.setattr(fuzz_run, "MOST_MINIMISED", 1)
    pytest.importorskip("ml_dtypes")
    journal = tmp_path / "journal.jsonl"
    words = ["--problems", "40", "--programs", "3", "--seed", "11", "--variants", "wrong",
             "--journal", str(journal)]  # fmt: skip
    assert fuzz_run.main(words) == 1
    failures = [
        json.loads(x)["failure"] for x in journal.read_text().splitlines() if "failure" in x
    ]
    assert failures and all("wrong(" in f["product"] for f in failures)
    smallest = Product.from_json(failures[0]["smallest"])
    found = Product.from_json(failures[0]["product"])
    assert sum(smallest.size) < sum(found.size) or smallest.kind != found.kind
    assert smallest.size[2] > 20
    said = capsys.readouterr()
    assert failures[0]["smallest"] in said.err, "ready to be pasted"
    product = tmp_path / "product.json"
    product.write_text(failures[0]["smallest"])
    assert fuzz_run.main(["--product", str(product)]) == 1
    assert capsys.readouterr().out.strip() == failures[0]["smallest_fault"]
    # Nothing is done twice.
    assert fuzz_run.main(words) == 1
    assert "40 products" in capsys.readouterr().out


def test_a_crash_is_laid_to_its_product(monkeypatch, device, tmp_path):
    """The worker dies in one product: it is described, and those after it are computed."""
    pytest.importorskip("ml_dtypes")
    fake = tmp_path / "fuzz_worker.py"
    fake.write_text(
        "import json, os, sys\n"
        "def tell(**x): print(json.dumps(x), flush=True)\n"
        "def value(name): return int(sys.argv[sys.argv.index(name) + 1])\n"
        "if '--describe' in sys.argv:\n    tell(product='')\n    sys.exit()\n"
        "for i in range(value('--first'), value('--count')):\n"
        "    tell(at=i)\n"
        "    if i == 4: os.abort()\n"
        "tell(done=True, programs=3, device='fake')\n"
    )
    monkeypatch.setattr(fuzz_run, "TOOLS", tmp_path)
    journal = tmp_path / "journal.jsonl"
    words = ["--problems", "9", "--programs", "3", "--seed", "1", "--journal", str(journal)]
    assert fuzz_run.main(words) == 1
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    (failure,) = [e["failure"] for e in events if "failure" in e]
    assert failure["index"] == 4 and "SIGABRT" in failure["fault"]
    (part,) = [e["part"] for e in events if "part" in e]
    assert part["products"] == 9 and part["programs"] == 3


def test_variants_that_are_not_there_are_told(capsys):
    pytest.importorskip("ml_dtypes")
    with pytest.raises(SystemExit, match="none is called quick"):
        fuzz_run.main(["--problems", "5", "--seed", "2", "--variants", "quick"])


def test_a_journal_of_another_run_is_refused(tmp_path, capsys):
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"about": {"seed": 1}}\n')
    with pytest.raises(SystemExit):
        fuzz_run.main(["--seed", "2", "--journal", str(journal)])
    assert "another run" in capsys.readouterr().err


def test_the_script_can_be_started():
    assert os.access(TOOLS / "fuzz", os.X_OK)

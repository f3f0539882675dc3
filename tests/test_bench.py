"""bench: what it times, in which order, and that no wrong result is ever timed as if right."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import skip_without_fp64
from processes import environment

import clmatmul
from clmatmul import bench as benching
from clmatmul import bench_clblast, bench_contestants, bench_torch, walk
from clmatmul.bench import bench
from clmatmul.bench_contestants import Contestant, Product, race, timed_calls
from clmatmul.bench_results import OURS
from clmatmul.bench_suites import Entry
from clmatmul.cli.main import main
from clmatmul.element_types import numpy_dtype
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.sample import Verdict
from clmatmul.tune import tune


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bench_contestants, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(bench_contestants, "_TURN_NS", 1)


# ---- turns ----------------------------------------------------------------------------------


def contestant(name, log):
    return Contestant(
        name, lambda: log.append(name), lambda: log.append(f"{name} read"),
        lambda result: Verdict(None, 0.5), lambda: log.append(f"{name} reset"),
    )  # fmt: skip


def test_contestants_take_turns_and_are_checked_after_each():
    log = []
    a, b = contestant("a", log), contestant("b", log)
    race((a, b), 3, 60)

    def turn(name):  # two calls at least
        return [f"{name} reset", name, name, f"{name} read"]

    warm_up = turn("a") + turn("b")
    assert log == warm_up + turn("a") + turn("b") + turn("b") + turn("a") + turn("a") + turn("b")
    assert [len(x) for x in a.turns] == [2, 2, 2]
    assert a.worst == 0.5 and a.fault is None


def test_the_first_fault_is_kept():
    verdicts = iter([Verdict(None, 0.1), Verdict("wrong", None), Verdict("other", None)])
    found = Contestant("x", lambda: None, lambda: None, lambda result: next(verdicts))
    for _ in range(3):
        found.check()
    assert found.fault == "wrong" and found.worst == 0.1


def test_a_turn_has_enough_calls(monkeypatch):
    clock = iter(range(0, 10**9, 1_000_000))
    monkeypatch.setattr(bench_contestants.time, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(bench_contestants, "_TURN_NS", 5e6)
    assert timed_calls(lambda: None) == [1e6] * 5
    assert timed_calls(lambda: next(clock)) == [2e6] * 3
    monkeypatch.setattr(bench_contestants, "_TURN_NS", 1)
    assert timed_calls(lambda: None) == [1e6] * 2
    monkeypatch.setattr(bench_contestants, "_LONG_NS", 1e6)
    assert timed_calls(lambda: None) == [1e6]


def test_time_limits_the_rounds():
    found = contestant("a", [])
    race((found,), 50, 1e-9)
    assert len(found.turns) == 3
    found = contestant("a", [])
    race((found,), 2, 1e-9)
    assert len(found.turns) == 2


# ---- contestants ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        Entry(9, 11, 13),
        Entry(9, 11, 13, layout="TT", out_order="F"),
        Entry(17, 1, 23, layout="TN"),
        Entry(6, 5, 7, "complex64", "NT", batch=(3,)),
        Entry(6, 5, 7, "int8", "TN", accumulate="int32"),
        Entry(5, 6, 7, "bfloat16"),
        Entry(5, 6, 7, "bool", batch=(2, 3)),
    ],
    ids=lambda x: x.name,
)
def test_all_contestants_compute_the_same_product(device, entry):
    if entry.dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    product = Product(device, entry)
    a, b = product.a.host, product.b.host
    assert a.dtype == numpy_dtype(entry.dtype) and a.shape == (*entry.batch, entry.m, entry.k)
    assert (a.strides[-2] == a.itemsize) == (entry.layout[0] == "T")
    ours = [product.launches(), product.device_arrays(), product.host_arrays()]
    assert [x.name for x in ours] == list(OURS)
    wide = {"bool": bool, "int8": np.int32}.get(entry.dtype, np.complex128)
    expected = np.matmul(a.astype(wide), b.astype(wide))
    for each in ours:
        each.turn()
        assert each.fault is None and 0 <= each.worst <= 1
        result = each._result()
        assert result.dtype == product.out.host.dtype and result.shape == expected.shape
        np.testing.assert_allclose(result.astype(wide), expected, rtol=1e-4, atol=1e-4)


def test_a_result_that_is_not_written_is_a_fault(device):
    product = Product(device, Entry(6, 6, 6))
    idle = product._on_device("idle", lambda: None)
    idle.turn()
    assert "unwritten" in idle.fault
    idle = product._on_host("idle", lambda: product.out.host)
    idle.turn()
    assert "unwritten" in idle.fault


def test_numpy_fills_an_output_by_columns(device):
    product = Product(device, Entry(6, 7, 8, out_order="F"))
    numpy = product.numpy()
    numpy.turn()
    assert numpy.fault is None and numpy._result() is product.out.host
    assert product.out.host.flags.f_contiguous


def test_a_row_for_each_entry(device):
    told, begun = [], []
    entries = [Entry(24, 24, 24), Entry(7, 33, 12, "int32", against="float32", suite="types")]
    found = bench(entries, rounds=3, device=device, told=told.append, begun=begun.append)
    assert tuple(told) == found.rows and begun == entries
    first, second = found.rows
    assert first.baseline == "numpy" and second.baseline == "own float32"
    assert list(first.ratios) == list(OURS) and list(second.ratios) == ["launches", "device"]
    for row in found.rows:
        assert 0 <= row.error_ratio <= 1 and row.baseline_fault is None
        assert row.origin in ("tuned", "shipped", "nearest", "heuristic", "safe")
        assert set(row.times) == {*OURS, "baseline"}
        for figures in row.times.values():
            assert 0 < figures.best_ns <= figures.median_ns and figures.calls == 6
        for name, ratio in row.ratios.items():
            assert ratio.best == row.times["baseline"].best_ns / row.times[name].best_ns
            assert ratio.rounds.rounds == 3
    assert first.flops == 2 * 24**3 and second.flops == 2 * 7 * 33 * 12
    assert found.profile == device.profile and found.versions["numpy"] == np.__version__
    assert set(found.means) == {"sizes", "types", "overall"}


def test_what_cannot_be_timed_is_left_out_with_a_reason(device, monkeypatch):
    monkeypatch.setattr(benching, "left_out", lambda entry, profile: f"no {entry.dtype}")
    found = bench([Entry(8, 8, 8)], rounds=1, device=device)
    assert found.rows == () and found.left_out == ((Entry(8, 8, 8), "no float32"),)
    assert found.to_dict()["left_out"][0]["reason"] == "no float32"


def test_what_was_timed_before_an_interrupt_is_kept(device):
    def begun(entry):
        if entry.m == 9:
            raise KeyboardInterrupt

    found = bench([Entry(8, 8, 8), Entry(9, 9, 9)], rounds=1, device=device, begun=begun)
    assert found.interrupted and [row.entry.m for row in found.rows] == [8]


@pytest.fixture
def own_database(tmp_path, monkeypatch):
    """A database of the test's own, forgotten afterwards."""
    with monkeypatch.context() as patched:
        patched.setenv("CLMATMUL_DB", str(tmp_path))
        walk.forget()
        yield
    walk.forget()


def test_the_origin_of_a_tuned_choice_is_shown(device, own_database):
    tune((19, 23, 29), device.profile, budget="1trials", variants=["naive"])
    (row,) = bench([Entry(19, 23, 29)], rounds=1, device=device).rows
    assert row.origin == "tuned"


def test_a_wrong_result_ends_the_benchmark(device, monkeypatch):
    call = clmatmul.MatMul.__call__

    def wrong(self, a, b, out=None):
        result = call(self, a, b, out)
        if isinstance(result, np.ndarray):
            result[-1, -1] += 100
        return result

    monkeypatch.setattr(clmatmul.MatMul, "__call__", wrong)
    with pytest.raises(VerificationError, match="16×16×16 float32 NN, host: error is"):
        bench([Entry(16, 16, 16)], rounds=1, device=device)


def test_a_wrong_baseline_is_told(device, monkeypatch):
    plain = np.matmul
    monkeypatch.setattr(Product, "numpy", lambda self: self._on_host(
        "numpy", lambda: plain(self.a.host, self.b.host) + 1))  # fmt: skip
    (row,) = bench([Entry(16, 16, 16)], rounds=1, device=device).rows
    assert "error is" in row.baseline_fault


@pytest.mark.parametrize(
    "keywords, words",
    [
        ({"rounds": 0}, "rounds=0 must be at least 1"),
        ({"seconds": 0}, "more than 0"),
        ({"baseline": "mkl"}, "none of numpy, clblast, torch"),
    ],
)
def test_arguments_are_checked(device, keywords, words):
    with pytest.raises(ArgumentError, match=words):
        bench([Entry(8, 8, 8)], device=device, **keywords)


# ---- CLBlast --------------------------------------------------------------------------------


def clblast():
    try:
        return bench_clblast.load()
    except ArgumentError:
        pytest.skip("CLBlast is not installed")


@pytest.mark.parametrize(
    "entry, expected",
    [
        (Entry(2, 3, 4), (101, 111, 111, 4, 3, 3)),
        (Entry(2, 3, 4, layout="TN"), (101, 112, 111, 2, 3, 3)),
        (Entry(2, 3, 4, layout="NT"), (101, 111, 112, 4, 4, 3)),
        (Entry(2, 3, 4, layout="TT"), (101, 112, 112, 2, 4, 3)),
        (Entry(2, 3, 4, out_order="F"), (102, 112, 112, 4, 3, 2)),
        (Entry(2, 3, 4, layout="TT", out_order="F"), (102, 111, 111, 2, 4, 2)),
    ],
)
def test_layouts_in_clblasts_words(entry, expected):
    assert bench_clblast.arguments_of(entry) == expected


class FakeCLBlast:
    """Notes what it is asked for, as numbers."""

    def __init__(self, status=0):
        self.calls, self._status = [], status

    def __getattr__(self, name):
        def function(*arguments):
            self.calls.append((name, [getattr(x, "value", x) for x in arguments]))
            return self._status

        return function


def test_what_clblast_is_asked_for():
    library = FakeCLBlast()
    bench_clblast.gemm(library, Entry(2, 3, 4, "float64"), 50, 60, 70, 80)
    bench_clblast.gemm(library, Entry(2, 3, 4, batch=(9,)), 50, 60, 70, 80)
    (name, arguments), (batched, more) = library.calls
    assert name == "CLBlastDgemm"
    assert arguments[:17] == [101, 111, 111, 2, 3, 4, 1, 60, 0, 4, 70, 0, 3, 0, 80, 0, 3]
    assert len(arguments) == 19 and arguments[-1] is None
    assert batched == "CLBlastSgemmStridedBatched"
    assert more[6:21] == [1, 60, 0, 4, 8, 70, 0, 3, 12, 0, 80, 0, 3, 6, 9]


def test_clblast_refuses():
    with pytest.raises(clmatmul.errors.UnsupportedError, match="CLBlastSgemm refused.* -1001"):
        bench_clblast.gemm(FakeCLBlast(-1001), Entry(2, 3, 4), 1, 2, 3, 4)


@pytest.mark.parametrize(
    "entry, words",
    [(Entry(2, 2, 2, "int32"), "int32"), (Entry(2, 2, 2, batch=(2, 2)), "one batch dimension")],
)
def test_what_clblast_does_not_have(entry, words):
    assert words in bench_clblast.unsupported(entry)
    assert bench_clblast.unsupported(Entry(2, 2, 2, "complex128", batch=(3,))) is None


def test_clblast_is_the_baseline_on_the_same_buffers(device, monkeypatch):
    """With a library that copies a right result: what it is given is what it works on."""
    answer = {}

    def gemm(library, entry, queue, a, b, out):
        assert len({queue, a, b, out}) == 4 and all(isinstance(x, int) for x in (queue, a, b, out))
        product = answer["product"]
        result = np.ascontiguousarray(np.matmul(product.a.host, product.b.host))
        device.write(product.queue, product.out.buffer, result)

    plain = Product.clblast

    def noted(self, library):
        answer["product"] = self
        return plain(self, library)

    monkeypatch.setattr(bench_clblast, "load", lambda path: path)
    monkeypatch.setattr(bench_clblast, "gemm", gemm)
    monkeypatch.setattr(Product, "clblast", noted)
    found = bench([Entry(12, 13, 14), Entry(8, 8, 8, "int16")], rounds=2, baseline="clblast",
                  library="file", device=device)  # fmt: skip
    (row,) = found.rows
    assert row.baseline == "clblast" and row.baseline_fault is None
    assert list(row.ratios) == ["launches", "device"]
    assert found.left_out[0][1] == "CLBlast has no product of int16"


def test_clblast_is_missing(monkeypatch):
    monkeypatch.setattr(bench_clblast.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(bench_clblast, "_NAMES", ("lib-that-is-not-there.so",))
    with pytest.raises(ArgumentError, match="not installed here.*apt install libclblast1"):
        bench_clblast.load()
    with pytest.raises(ArgumentError, match="/nowhere/x.so.*--clblast-library"):
        bench_clblast.load("/nowhere/x.so")


def test_clblast_found_by_name(monkeypatch):
    loaded = []
    monkeypatch.setattr(bench_clblast.ctypes.util, "find_library", lambda name: f"lib{name}.so.9")
    monkeypatch.setattr(bench_clblast.ctypes, "CDLL", lambda name: loaded.append(name) or "it")
    assert bench_clblast.load() == "it" and loaded == ["libclblast.so.9"]
    assert bench_clblast.load("/own/lib.so") == "it" and loaded[1] == "/own/lib.so"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_clblast_itself(device, dtype):
    skip_without_fp64(device, dtype)
    library = clblast()
    for entry in (
        Entry(65, 33, 17, dtype, "TN"),
        Entry(65, 33, 17, dtype, "NT", out_order="F"),
        Entry(9, 10, 11, dtype, batch=(3,)),
    ):
        found = Product(device, entry).clblast(library)
        found.turn()
        assert found.fault is None, entry.name


# ---- the command line -----------------------------------------------------------------------


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "clmatmul", "bench", *arguments], capture_output=True, text=True,
        env=environment(), timeout=120,
    )  # fmt: skip


@pytest.fixture
def tiny_suites(monkeypatch):
    """Suites of two products, for a run in this process."""
    from clmatmul import bench_suites

    suites = {
        "square": ("two sizes", lambda: [Entry(8, 8, 8), Entry(9, 9, 9)]),
        "types": ("one", lambda: [Entry(8, 8, 8, "int32", against="float32")]),
    }
    monkeypatch.setattr(bench_suites, "SUITES", suites)


def test_the_table(device):
    process = command("--sizes", "8,16x24x32", "--rounds", "2")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0].startswith("device  ") and device.profile.driver_version in lines[0]
    assert "numpy" in lines[1] and "2 rounds" in lines[1]
    assert lines[3] == "sizes" and lines[4].split()[:3] == ["product", "against", "its"]
    assert lines[5].split()[:4] == ["8×8×8", "float32", "NN", "numpy"]
    assert lines[6].split()[:3] == ["16×24×32", "float32", "NN"]
    assert lines[7].startswith("geometric mean against numpy: launches ")
    assert process.stderr == "" and "\x1b" not in process.stdout


def test_json(device):
    process = command("--sizes", "8", "--dtypes", "float32,int16", "--rounds", "1", "--json")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["schema"] == 1 and found["command"] == "bench" and found["baseline"] == "numpy"
    assert set(found) == {
        "schema", "command", "device", "driver", "device_key", "versions", "baseline", "rounds",
        "interrupted", "rows", "left_out", "geometric_means",
    }  # fmt: skip
    assert [row["dtype"] for row in found["rows"]] == ["float32", "int16"]
    row = found["rows"][0]
    assert set(row) == {
        "case", "suite", "batch", "m", "n", "k", "dtype", "layout", "out_order", "accumulate",
        "against", "baseline", "config", "origin", "flops", "times", "ratios", "error_ratio",
        "baseline_fault",
    }  # fmt: skip
    host = row["times"]["host"]
    assert host["gflops"] == pytest.approx(2 * 8**3 / host["median_ns"])
    assert host["gflops_best"] == pytest.approx(2 * 8**3 / host["best_ns"])
    assert set(row["ratios"]["device"]) == {
        "best", "median", "low", "high", "spread", "rounds", "verdict",
    }  # fmt: skip


def test_suites_into_a_file_and_compared(device, tiny_suites, tmp_path, capsys):
    file = tmp_path / "run.json"
    options = ["bench", "--suite", "types,square", "--rounds", "1"]
    assert main([*options, "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("geometric mean against own float32") == 2 and "\noverall\n" in shown
    run = json.loads(file.read_text())
    assert [row["suite"] for row in run["rows"]] == ["types", "square", "square"]

    def scaled(factor):
        for row in run["rows"]:
            for ratio in row["ratios"].values():
                ratio["best"] *= factor
        file.write_text(json.dumps(run))

    scaled(1e-4)
    assert main([*options, "--compare", str(file)]) == 0
    assert "0 of 3 slower by more than 10%" in capsys.readouterr().out
    scaled(1e12)
    assert main([*options, "--compare", str(file), "--tolerance", "0.5", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["slower"] == 3 and found["tolerance"] == 0.5
    assert main([*options, "--compare", str(file)]) == 1
    assert capsys.readouterr().out.count("SLOWER") == 3


def test_suites_are_listed_without_a_device():
    process = subprocess.run(
        [sys.executable, "-m", "clmatmul", "bench", "--list", "--suite", "square,types"],
        capture_output=True, text=True, timeout=60,
        env=environment(OCL_ICD_VENDORS="/nowhere", OCL_ICD_FILENAMES="", CLMATMUL_DEVICE="none"),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    lines = [line.split() for line in process.stdout.splitlines()]
    assert lines[0][0] == "suite" and {x[0] for x in lines[1:]} == {"square", "types"}
    assert ["square", "1024×1024×1024", "float64", "NN", "the", "baseline"] in lines


def test_the_list_as_json(capsys):
    assert main(["bench", "--list", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert {x["suite"] for x in cases} == {
        "square", "ragged", "skinny", "small", "batched", "layouts", "types",
    }  # fmt: skip


def test_interrupted(monkeypatch, capsys, device):
    def stop(entry):
        raise KeyboardInterrupt

    monkeypatch.setattr("clmatmul.cli.bench._begin", stop)
    assert main(["bench", "--sizes", "8", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["interrupted"] is True


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--sizes", "8,x"], "'x' is neither a size nor MxNxK"),
        (["--sizes", "8x9"], "'8x9' is neither"),
        (["--sizes", "0"], "is not from 1"),
        (["--sizes", ""], "'' is neither"),
        (["--dtypes", "float32,float7"], "float7"),
        (["--rounds", "0"], "no number from 1"),
        (["--layout", "AB"], "invalid choice"),
        (["--suite", "squares"], "'squares' is unknown; there are square, ragged"),
        (["--suite", "small", "--sizes", "8"], "leave --sizes out"),
        (["--suite", "small", "--layout", "NT"], "leave --layout out"),
        (["--baseline", "mkl"], "invalid choice"),
        (["--baseline", "clblast", "--clblast-library", "/nowhere/x"], "apt install libclblast1"),
        (["--seconds-per-case", "0"], "above 0"),
        (["--seconds-per-case", "inf"], "above 0"),
        (["--tolerance", "1"], "below 1"),
        (["--tolerance", "x"], "'x' is no number"),
        (["--compare", "/nowhere/run.json"], "/nowhere/run.json"),
        (["--json", "/nowhere/run.json"], "/nowhere/run.json: No such file"),
    ],
)
def test_mistakes(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and words in captured.err
    assert len(captured.err.splitlines()) == 1


# ---- torch ----------------------------------------------------------------------------------


class FakeTensor:
    """An array with the few methods of torch's that are used."""

    def __init__(self, array):
        self.array = np.array(array, order="K")

    def to(self, where):
        assert where == "cpu"
        return self

    def cpu(self):
        return self

    def fill_(self, value):
        self.array.fill(value)

    def numpy(self):
        return self.array


class FakeTorch:
    """torch as far as a product needs it; off: what is added to every element."""

    __version__ = "0.fake"

    def __init__(self, off=0):
        self.off = off
        self.cuda = SimpleNamespace(is_available=lambda: False)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
        self.from_numpy = FakeTensor

    def matmul(self, a, b, out):
        np.matmul(a.array, b.array, out=out.array)
        out.array += self.off


@pytest.mark.parametrize("off, fault", [(0, None), (7, "error is")])
def test_torch_is_the_baseline(device, monkeypatch, off, fault):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(off))
    entries = [Entry(12, 13, 14, layout="NT", out_order="F"), Entry(8, 8, 8, "int16"),
               Entry(5, 6, 7, "float64", batch=(2,))]  # fmt: skip
    found = bench(entries, rounds=2, baseline="torch", device=device)
    assert [x.baseline for x in found.rows] == ["torch"] * 2
    assert found.versions["torch"] == "0.fake"
    assert list(found.rows[0].ratios) == ["launches", "device"]
    for row in found.rows:
        assert row.baseline_fault is None if fault is None else fault in row.baseline_fault
    assert found.left_out[0][1] == "torch has no fast product of int16"


def test_torch_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(ArgumentError, match="not installed here.*pip install torch"):
        bench([Entry(2, 2, 2)], baseline="torch")


@pytest.mark.parametrize(
    "entry, words",
    [(Entry(2, 2, 2, "bfloat16"), "rounds"), (Entry(2, 2, 2, accumulate="float64"), "itself")],
)
def test_what_torch_does_not_have(entry, words):
    assert words in bench_torch.unsupported(entry)

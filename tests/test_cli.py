"""The command line: results, exit codes, one clear line for each mistake, clean output."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import clmatmul
from clmatmul.cli import main as cli_main
from clmatmul.cli.main import available, exit_code, main
from clmatmul.cli.output import Table, plain_table
from clmatmul.errors import DatabaseError, NoDeviceError, VerificationError
from clmatmul.matrix_files import read_matrix

A, B = "1 4; 2 5; 3 6", "7 8 9; 10 11 12"
LESSON = np.array([[47, 52, 57], [64, 71, 78], [81, 90, 99]])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """run(*argv) → (exit code, standard output, standard error)."""

    def call(*argv):
        code = main([str(x) for x in argv])
        return code, *capsys.readouterr()

    return call


def parsed(text):
    """The rows of numbers in piped output."""
    return np.array([[complex(x) for x in line.split()] for line in text.splitlines()])


# ---- multiply and scale ---------------------------------------------------------------------


def test_multiply_text(run):
    assert run("multiply", A, B) == (0, "47 52 57\n64 71 78\n81 90 99\n", "")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt", ".mtx"])
def test_multiply_files(run, here, suffix):
    if suffix == ".mtx":
        pytest.importorskip("scipy.io")
    clmatmul.matrix_files.write_matrix("b.npy", read_matrix(B))
    assert run("multiply", A, "b.npy", "-o", f"c{suffix}") == (0, "", "")
    assert np.array_equal(read_matrix(f"c{suffix}"), LESSON)


def test_multiply_what_other_tools_wrote(run, here, rng):
    """A sparse Matrix Market file of scipy times a data frame of pandas."""
    sio, sparse = pytest.importorskip("scipy.io"), pytest.importorskip("scipy.sparse")
    pandas = pytest.importorskip("pandas")
    a = sparse.random_array((40, 30), density=0.2, rng=rng)
    b = rng.standard_normal((30, 20))
    sio.mmwrite("a.mtx", a)
    pandas.DataFrame(b, columns=[f"x{i}" for i in range(20)]).to_csv("b.csv")
    code, out, err = run("multiply", "a.mtx", "b.csv")
    assert (code, err) == (0, "")
    assert np.allclose(parsed(out), a.toarray() @ b, rtol=1e-13, atol=1e-13)


def test_all_parts_of_the_formula(run):
    a, b, c = "1+2j 3", "1 2", "1j"
    argv = ["multiply", a, b, "--alpha", "-1+2j", "--beta", "-.5", "--c", c]
    code, out, _ = run(*argv, "--conjugate-transpose-b")
    assert code == 0
    assert parsed(out)[0, 0] == (-1 + 2j) * (1 + 2j + 6) - 0.5j
    assert run("multiply", "1 2; 3 4", "1 0; 0 1", "--transpose-a")[1] == "1 3\n2 4\n"
    assert run("multiply", "1 2", "--c", "5", "3; 4")[1] == "16\n"  # beta is 1 if c is given


def test_integers_by_real_numbers_are_real(run):
    assert run("multiply", "1 2", "3; 4", "--alpha", "0.5")[1] == "5.5\n"
    assert run("multiply", "1 2", "3; 4", "--alpha", "2j")[1] == "22j\n"
    assert run("scale", "0.5", "1 2")[1] == "0.5 1.0\n"
    assert run("scale", "-1e-1", "10 20")[1] == "-1.0 -2.0\n"


def test_options_of_text_files(run, here):
    (here / "a.txt").write_text("name|u|v\nx|1|2\ny|3|4\n")
    found = run("multiply", "a.txt", "1 0; 0 1", "--delimiter", "|", "--header", "--index")
    assert found == (0, "1 2\n3 4\n", "")
    np.savez("m.npz", first=[[1.0]], second=[[2.0]])
    assert run("multiply", "m.npz:first", "m.npz", "--key", "second")[1] == "2.0\n"


def test_standard_input(run, here, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 4\n2 5\n3 6\n")))
    assert run("multiply", "-", B)[1] == "47 52 57\n64 71 78\n81 90 99\n"


def test_dtype_and_config(run, here):
    config = "tiled(tile_m=2, tile_n=2, tile_k=2)"
    argv = ["multiply", A, B, "--dtype", "float32", "--config", config, "-o", "c.npy", "--json"]
    code, out, _ = run(*argv)
    found = json.loads(out)
    assert code == 0
    assert found["config"] == "tiled(tile_k=2, tile_m=2, tile_n=2)"
    assert found["origin"] == "forced"
    assert found["output"] == "c.npy" and "result" not in found
    assert np.load("c.npy").dtype == np.float32


def test_products_without_elements(run, here):
    np.save("a.npy", np.zeros((2, 0)))
    np.save("b.npy", np.zeros((0, 3)))
    assert run("multiply", "a.npy", "b.npy")[1] == "0.0 0.0 0.0\n" * 2


# ---- mistakes -------------------------------------------------------------------------------

CSV = {"good.csv": "1,2\n3,4\n"}
MALFORMED = {
    "no operands off a terminal": (["multiply"], {}, "needs two matrices"),
    "one operand": (["multiply", "1 2"], {}, "1 given"),
    "three operands": (["multiply", "1", "2", "3"], {}, "3 given"),
    "no such file": (["multiply", "a.csv", "1"], {}, "a.csv: no such file"),
    "a folder": (["multiply", "d.npy/", "1"], {}, "no such file"),
    "unknown suffix": (["multiply", "./a.xlsx", "1"], {"a.xlsx": "1"}, "unknown kind of file"),
    "ragged": (["multiply", "a.csv", "1"], {"a.csv": "1,2\n3\n"}, "a.csv, line 2: 1 element"),
    "not a number": (["multiply", "a.csv", "1"], {"a.csv": "1,2\n3,x\n"}, "line 2, element 2"),
    "empty file": (["multiply", "a.csv", "1"], {"a.csv": ""}, "a.csv: the file is empty"),
    "binary as text": (["multiply", "a.csv", "1"], {"a.csv": "\0\1"}, "binary data"),
    "not a NumPy file": (["multiply", "a.npy", "1"], {"a.npy": "hello, you"}, "not a NumPy file"),
    "not a zip": (["multiply", "a.npz", "1"], {"a.npz": "hello, you"}, "not an .npz archive"),
    "bad banner": (["multiply", "a.mtx", "1"], {"a.mtx": "%%MatrixMarket x\n"}, "line 1"),
    "Matrix Market cut short": (
        ["multiply", "a.mtx", "1"],
        {"a.mtx": "%%MatrixMarket matrix array real general\n9 9\n1\n"},
        "cut short",
    ),
    "bad text": (["multiply", "1 2; 3", "1"], {}, "row 2: 1 element"),
    "two standard inputs": (["multiply", "-", "-"], {}, "one matrix only"),
    "key without .npz": (["multiply", "1", "2", "--key", "x"], {}, "no matrix here"),
    "shapes": (["multiply", "good.csv", "1 2 3"], CSV, "shapes (2, 2) and (1, 3)"),
    "c does not broadcast": (["multiply", "good.csv", "good.csv", "--c", "1 2 3"], CSV, "(1, 3)"),
    "beta without c": (["multiply", "1", "2", "--beta", "2"], {}, "name it with --c"),
    "alpha": (["multiply", "1", "2", "--alpha", "two"], {}, "'two' is not a number"),
    "dtype": (["multiply", "1", "2", "--dtype", "quad"], {}, "'quad' is none of bool"),
    "loss": (["multiply", "1.5", "2", "--dtype", "int8"], {}, "int8 cannot hold"),
    "delimiter": (["multiply", "good.csv", "2", "--delimiter", "ab"], CSV, "delimiter 'ab'"),
    "config": (["multiply", "1", "2", "--config", "what?"], {}, "config='what?'"),
    "variant": (["multiply", "1", "2", "--config", "magic"], {}, "no such variant"),
    "parameter": (["multiply", "1", "2", "--config", "naive(x=1)"], {}, "no parameter x"),
    "value": (["multiply", "1", "2", "--config", "tiled(tile_m=3)"], {}, "tile_m=3"),
    "unknown option": (["multiply", "1", "2", "--fast"], {}, "--fast"),
    "two transposes": (
        ["multiply", "1", "2", "--transpose-a", "--conjugate-transpose-a"], {}, "not allowed with",
    ),
    "factor": (["scale", "x", "1"], {}, "'x' is not a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_one_clear_line_for_each_mistake(run, here, monkeypatch, case):
    import io

    argv, files, reason = MALFORMED[case]
    if any(word.endswith(".mtx") for word in argv):
        pytest.importorskip("scipy.io")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    for name, content in files.items():
        (here / name).write_text(content)
    code, out, err = run(*argv, "-o", "out.npy")
    assert code == 2
    assert out == ""
    assert err.startswith("clmatmul") and err.count("\n") == 1 and err.endswith("\n")
    assert reason in err
    assert "Traceback" not in err
    assert sorted(os.listdir(here)) == sorted(files)


@pytest.mark.parametrize("target", ["out.xlsx", "missing/out.npy", "."])
def test_the_target_is_checked_before_anything_is_read(run, here, target):
    code, out, err = run("multiply", "no-such-file.npy", "1", "-o", target)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "no-such-file" not in err


@pytest.mark.parametrize("argv", [["explain", "0", "1", "1"], ["explain", "1", "1"], ["fly"]])
def test_usage_errors(run, argv):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "--help" in err


def test_no_such_device(run):
    code, out, err = run("multiply", "1", "2", "--device", "no such device")
    assert (code, out) == (3, "")
    assert "no device matches 'no such device'" in err and "Traceback" not in err
    assert run("--device", "no such device", "devices")[0] == 3


def test_debug_shows_where(run):
    code, _, err = run("multiply", "1", "x.csv", "--debug")
    assert code == 2
    assert "Traceback" in err and err.endswith("clmatmul: error: x.csv: no such file\n")


def test_exit_codes_of_errors():
    kinds = (NoDeviceError, clmatmul.UnsupportedError, VerificationError, DatabaseError)
    assert [exit_code(kind("")) for kind in kinds] == [3, 4, 5, 6]
    assert exit_code(clmatmul.ConfigError("x", ["y"])) == 2
    assert exit_code(clmatmul.LaunchError("")) == 1


def test_interrupted(run, monkeypatch):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_main, "_dispatch", interrupt)
    assert run("devices") == (130, "", "clmatmul: interrupted\n")


def test_warnings_go_to_standard_error(run, here):
    (here / "a.csv").write_text("0,1,2\n3,4,5\n")
    identity = "1 0 0; 0 1 0; 0 0 1"
    code, out, err = run("multiply", "a.csv", identity)
    assert (code, out) == (0, "0 1 2\n3 4 5\n")
    assert err.startswith("clmatmul: warning: a.csv, line 1")
    assert run("multiply", "a.csv", identity, "--quiet")[2] == ""


# ---- what is said about the machine ---------------------------------------------------------


def test_start_names_the_device_and_three_commands(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert clmatmul.default_device().title in out
    assert out.count("\n  clmatmul ") == 3


def test_devices(run):
    _, out, _ = run("devices")
    assert len(out.splitlines()) == 1 + len(clmatmul.devices())
    assert "*" in out
    _, out, _ = run("devices", "--json")
    found = json.loads(out)
    assert [x["name"] for x in found["devices"]] == [x.name for x in clmatmul.devices()]
    assert found["devices"][found["default"]]["name"] == clmatmul.default_device().name


def test_info_has_what_a_bug_report_needs(run, tmp_path, monkeypatch):
    drivers = tmp_path / "vendors"
    drivers.mkdir()
    (drivers / "broken.icd").write_text("/nowhere/libbroken.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(drivers))
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path))
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "some.best.jsonl").write_text("not a record\n")
    code, out, err = run("info")
    assert code == 0
    for text in (clmatmul.__version__, np.__version__, sys.version.split()[0], "pyopencl",
                 "broken.icd", "/nowhere/libbroken.so", "cannot open shared object",
                 clmatmul.default_device().driver_version, str(tmp_path / "tuning"),
                 "some.best.jsonl", "0 records", "CLMATMUL_DB"):  # fmt: skip
        assert text in out
    found = json.loads(run("info", "--json")[1])
    assert found["drivers"][0]["problem"]
    assert found["tuning_records"] == [{"file": "some.best.jsonl", "records": 0, "problem": ""}]


def test_info_without_a_device_is_no_error(run, monkeypatch):
    monkeypatch.setattr("clmatmul.installed._platforms", lambda: [])
    monkeypatch.setattr("clmatmul.selection._defaults", {})
    code, out, _ = run("info")
    assert code == 0
    assert "No OpenCL device was found" in out
    assert run("devices")[0] == 3
    code, out, _ = run()
    assert code == 3
    assert "No OpenCL device was found" in out


def test_explain(run):
    code, out, _ = run("explain", 20, 30, 40, "--batch", 2, "--layout", "TN", "--dtype", "int8")
    assert code == 0
    assert "2×20×30×40 int8" in out and "choices" in out and "__kernel" not in out
    config = "naive(work_group_size=1)"
    found = json.loads(run("explain", 2, 2, 2, "--config", config, "--json", "--source")[1])
    assert found["chosen"] == config
    assert "__kernel" in found["sources"][0]
    assert "__kernel" in run("explain", 2, 2, 2, "--source")[1]


def test_selfcheck(run, monkeypatch, tmp_path):
    class Report:
        ok = False

        def to_dict(self):
            return {"ok": self.ok}

        def __str__(self):
            return "one kernel is wrong"

    devices = []

    def selfcheck(device):
        devices.append(device)
        return Report()

    monkeypatch.setattr("clmatmul.cli.selfcheck.selfcheck", selfcheck)
    assert run("selfcheck", "--device", "cpu")[:2] == (5, "one kernel is wrong\n")
    code, out, _ = run("selfcheck", "--json")
    assert code == 5 and json.loads(out)["ok"] is False
    monkeypatch.setattr(Report, "ok", True)
    assert run("selfcheck")[0] == 0
    assert devices == ["cpu", None, None]
    file = tmp_path / "report.json"
    code, out, _ = run("selfcheck", "--json", str(file))
    assert code == 0 and "one kernel is wrong" in out and str(file) in out
    assert json.loads(file.read_text())["ok"] is True
    code, _, err = run("selfcheck", "--json", str(tmp_path / "no" / "report.json"))
    assert code == 2 and "cannot be written" in err


# ---- the shape of output --------------------------------------------------------------------

PRINTED = (
    [], ["--help"], ["multiply", "--help"], ["devices"], ["info"], ["explain", "9", "9", "9"],
    ["multiply", A, B], ["scale", "2", A],
)  # fmt: skip


@pytest.mark.parametrize("argv", PRINTED, ids=" ".join)
def test_piped_output_has_no_control_characters(run, argv):
    code, out, _ = run(*argv)
    assert code == 0 and out
    assert all(c == "\n" or c.isprintable() for c in out)


@pytest.mark.parametrize("argv", [x for x in PRINTED if "--help" not in x], ids=" ".join)
def test_json_is_one_object_with_its_schema(run, argv):
    code, out, err = run(*argv, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["schema"] == 1
    assert found["command"] == (argv[0] if argv else "start")


def test_json_has_numbers_that_json_lacks_as_text(run):
    out = run("scale", "1", "nan inf -inf 1.5", "--json")[1]
    assert json.loads(out)["result"] == [["nan", "inf", "-inf", 1.5]]
    out = run("scale", "1", "1+2j 3", "--json")[1]
    assert json.loads(out)["result"] == [[[1, 2], [3, 0]]]


def test_help_tells_the_exit_codes_and_every_command(run):
    out = run("--help")[1]
    for code in (0, 1, 2, 3, 4, 5, 6, 130):
        assert f"\n  {code} " in out
    for command in available():
        assert f"\n    {command.name} " in out


def test_a_command_is_offered_only_if_its_module_is_there(monkeypatch):
    gone = cli_main.Command("gone", "clmatmul.no_such_package.gone", "x")
    monkeypatch.setattr(cli_main, "COMMANDS", (*cli_main.COMMANDS[:1], gone))
    assert [command.name for command in available()] == ["devices"]


def test_plain_tables():
    table = Table(("name", "n"), (("a", "1"), ("long name", "10")), right=("n",))
    assert plain_table(table) == "name        n\na           1\nlong name  10"


def test_options_before_and_after_the_command(run):
    assert json.loads(run("--json", "devices")[1]) == json.loads(run("devices", "--json")[1])


def test_a_narrow_encoding_ends_no_command(monkeypatch):
    import io

    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    assert main(["explain", "9", "9", "9"]) == 0
    assert b"9?9?9 float32" in narrow.buffer.getvalue()


def test_version(run):
    assert run("--version")[1] == f"clmatmul {clmatmul.__version__}\n"


# ---- in a process of its own ----------------------------------------------------------------


def test_broken_pipe_is_quiet(here):
    np.save("a.npy", np.ones((200_000, 1)))
    process = subprocess.Popen(
        [sys.executable, "-m", "clmatmul", "multiply", "a.npy", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(clmatmul.__file__))},
    )
    assert process.stdout.readline() == b"1.0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141

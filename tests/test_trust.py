"""A device that is broken, a cache and a database that lie: the product is right all the same."""

import os
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from extra_variants import kernel_folder, one_item
from processes import environment

import clmatmul
from clmatmul import executable, program_cache, self_check, walk
from clmatmul.database import TuningRecord
from clmatmul.explanation import plain_problem
from clmatmul.variants import load_variant

__all__ = ["kernel_folder"]
A = np.arange(77, dtype="f4").reshape(7, 11)
B = np.arange(55, dtype="f4").reshape(11, 5) - 20


def as_a_new_process():
    executable._programs = executable._Programs()
    program_cache._warned.clear()
    walk.forget()


def warnings_of(caplog):
    return [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]


def record(device, config, **changes):
    """A user's record of the product of A and B."""
    problem = plain_problem(7, 5, 11)
    values = dict(
        device=device.profile.key, kind=problem.kind.key, batch=1, m=7, n=5, k=11, config=config,
        digest="any", median_ns=1.0, samples=9, error_ratio=0.0,
    )  # fmt: skip
    return TuningRecord(**{**values, **changes})


def publish(device, *records):
    file = walk.best_file(device.profile.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(x.to_json() + "\n" for x in records))
    walk.forget()


# ---- a kernel that gives wrong results ------------------------------------------------------


def test_a_wrong_kernel_is_quarantined_with_one_warning(kernel_folder, caplog, monkeypatch):
    """Offered first for every product; its sums leave out the last term."""
    kernel_folder("wrong", one_item("wrong", rank=1000, term="k - 1"))
    for scale in (1, 2, 3):
        assert np.array_equal(clmatmul.matmul(A * scale, B), A * scale @ B)
    assert len(warnings_of(caplog)) == 1 and "wrong(unit=1) is passed over" in caplog.text
    two = tuple(load_variant(name) for name in ("naive", "wrong"))
    monkeypatch.setattr(self_check, "all_variants", lambda: two)
    report = clmatmul.selfcheck()
    assert not report.ok and "WRONG: wrong." in str(report)


def test_a_wrong_kernel_in_the_database_is_quarantined(kernel_folder, device, caplog):
    """The user's own record says that it was the fastest, and that it was verified."""
    kernel_folder("wrong", one_item("wrong", rank=0, term="k - 1"))
    config = clmatmul.TileConfig.of("wrong", unit=1)
    publish(device, record(device, config, digest=load_variant("wrong").digest))
    for _ in range(3):
        assert np.array_equal(clmatmul.matmul(A, B), A @ B)
    assert len([x for x in warnings_of(caplog) if "is passed over" in x]) == 1


# ---- a database that lies -------------------------------------------------------------------


@pytest.mark.parametrize("config", [
    clmatmul.TileConfig.of("tiled", tile_m=8, tile_n=8, tile_k=10**9),
    clmatmul.TileConfig.of("tiled", tile_m=-8, tile_n=0, tile_k=8),
    clmatmul.TileConfig.of("tiled", tile_m="8); system(\"x\"", tile_n=8, tile_k=8),
    clmatmul.TileConfig.of("no_such_kernel", unit=1),
    clmatmul.TileConfig.of("../../etc/passwd"),
    clmatmul.TileConfig.of("tiled", surprise=1),
], ids=["huge", "negative", "text", "unknown", "path", "parameter"])  # fmt: skip
@pytest.mark.parametrize("exact", [True, False])
def test_a_record_of_a_configuration_that_cannot_be(kernel_folder, device, caplog, config, exact):
    known = config.variant in ("tiled",)
    digest = load_variant("tiled").digest if known and exact else "another"
    size = {} if exact else {"m": 8, "n": 6}
    publish(device, record(device, config, digest=digest, **size))
    plan = clmatmul.MatMul(A, B)
    assert np.array_equal(plan(A, B), A @ B) and plan.config != config
    assert len(warnings_of(caplog)) <= 1


@pytest.mark.parametrize("content", [
    b"", b"\0" * 1000, b"{" * 100_000, b"[" * 100_000 + b"\n", b'{"schema": 1}\n' * 50,
    b"\xff\xfe\xfd\n", b'{"schema": 1, "config": {"variant": "tiled"}}',
    b"c__builtin__\neval\n(S'1/0'\ntR.",
])  # fmt: skip
def test_a_database_that_is_none(kernel_folder, device, caplog, content):
    file = walk.best_file(device.profile.key)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    walk.forget()
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)
    assert len(warnings_of(caplog)) <= 1


def test_a_database_larger_than_any_is_not_read(kernel_folder, device, caplog):
    file = walk.best_file(device.profile.key)
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    walk.forget()
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)
    assert len(warnings_of(caplog)) == 1 and "larger than any" in caplog.text


def test_times_that_lie_choose_at_worst_a_slow_kernel(kernel_folder, device):
    config = clmatmul.TileConfig.of("naive", work_group_size=1)
    lie = record(device, config, digest=load_variant("naive").digest, median_ns=1e-300)
    publish(device, lie, replace(lie, median_ns=2.0**60, m=8))
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)


# ---- a cache that is damaged, or not one's own ----------------------------------------------


@pytest.mark.parametrize("ending", [".bin", ".json", ".cl", ".verified"])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_truncated_cache(kernel_folder, caplog, ending, left):
    """Every file of a kind cut to nothing, to half, to all but its last byte.

    A program that cannot be trusted is built again; there is at most one warning of all this.
    """
    as_a_new_process()
    assert np.array_equal(clmatmul.MatMul(A, B, config="tiled")(A, B), A @ B)
    files = list(program_cache.cache_folder().glob(f"*/*{ending}"))
    assert files
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[: (0, len(data) // 2, max(len(data) - 1, 0))[left]])
    as_a_new_process()
    before = executable.build_count
    for _ in range(3):
        assert np.array_equal(clmatmul.MatMul(A, B, config="tiled")(A, B), A @ B)
    assert executable.build_count == before + (ending in (".bin", ".json"))
    assert len(warnings_of(caplog)) <= 1


def test_random_damage_to_the_cache(kernel_folder, rng):
    for _ in range(6):
        as_a_new_process()
        assert np.array_equal(clmatmul.MatMul(A, B, config="naive")(A, B), A @ B)
        for file in program_cache.cache_folder().glob("*/*.*"):
            data = bytearray(file.read_bytes())
            for at in rng.integers(0, max(len(data), 1), 3):
                data[at : at + 1] = bytes(rng.integers(0, 256, 1, np.uint8))
            file.write_bytes(data)


@pytest.mark.skipif(os.name != "posix", reason="folders have no owner and mode")
def test_cache_folders_are_private(kernel_folder):
    as_a_new_process()
    assert np.array_equal(clmatmul.MatMul(A, B, config="naive")(A, B), A @ B)
    programs = program_cache.cache_folder()
    for folder in (programs, *(x for x in programs.iterdir() if x.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) & 0o022 == 0


@pytest.mark.skipif(os.name != "posix", reason="folders have no owner and mode")
def test_programs_that_others_could_have_put_there_are_not_loaded(kernel_folder, caplog):
    """A binary is code: from a folder that others may write to, none is taken."""
    as_a_new_process()
    assert np.array_equal(clmatmul.MatMul(A, B, config="naive")(A, B), A @ B)
    program_cache.cache_folder().chmod(0o777)
    as_a_new_process()
    before = executable.build_count
    for _ in range(2):
        assert np.array_equal(clmatmul.MatMul(A, B, config="naive")(A, B), A @ B)
    assert executable.build_count == before + 1
    assert len(warnings_of(caplog)) == 1 and "others may write" in caplog.text


def test_no_module_of_the_package_unpickles_or_runs_what_it_reads():
    """Anything else than JSON, text and NumPy's plain arrays would run code of a file."""
    code = """
import sys, ast, pathlib, clmatmul
for file in pathlib.Path(clmatmul.__file__).parent.rglob("*.py"):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [getattr(node, "module", None) or "", *(x.name for x in node.names)]
            assert not {"pickle", "marshal", "shelve", "dill", "yaml"} & set(names), file
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            # The headers of kernels are code, and come with the package.
            assert name != "exec" or file.name == "templates.py", file
            assert name != "eval" or file.name == "variants.py", file
            for word in node.keywords:
                if word.arg == "allow_pickle":
                    assert getattr(word.value, "value", True) is False, file
"""
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True,
                         text=True)  # fmt: skip
    assert run.returncode == 0, run.stderr

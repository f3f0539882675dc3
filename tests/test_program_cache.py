"""Built programs on disk: warm hits, damage, unwritable folders, several processes."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import clmatmul
from clmatmul import executable, program_cache, walk

ROOT = Path(clmatmul.__file__).parent.parent
CALL = """
import sys, numpy as np, clmatmul
from clmatmul import executable
a = np.arange(12, dtype="f4").reshape(3, 4)
plan = clmatmul.MatMul(a, a.T, config="naive(work_group_size=8)")
assert np.array_equal(plan(a, a.T), a @ a.T)
print(executable.build_count, "mako" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CLMATMUL_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache" / "programs"
    monkeypatch.undo()
    forget()


def forget():
    """As a new process: no program, no route, no warning given yet."""
    executable._programs = executable._Programs()
    program_cache._warned.clear()
    walk.forget()


def naive(a, b):
    """By a kernel that is one program, whatever would be chosen here."""
    return clmatmul.MatMul(a, b, config="naive(work_group_size=8)")(a, b)


def product():
    """A small product, and how many programs were built for it."""
    a = np.arange(12, dtype="f4").reshape(3, 4)
    before = executable.build_count
    assert np.array_equal(naive(a, a.T), a @ a.T)
    return executable.build_count - before


def process(code=CALL):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, cwd=ROOT)  # fmt: skip


def entries(folder, ending):
    return sorted(folder.glob(f"*/*{ending}"))


def test_a_warm_hit_needs_no_mako_and_no_build(folder):
    for expected in ("1 True\n", "0 False\n"):
        run = process()
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
        assert out == expected


def test_the_source_lies_beside_the_binary(folder):
    assert product() == 1
    (binary,), (source,), (about,) = (entries(folder, x) for x in (".bin", ".cl", ".json"))
    assert "__kernel" in source.read_text()
    assert binary.stem == source.stem == about.stem
    described = json.loads(about.read_text())["about"]
    assert described["entry"] in source.read_text() and "float32" in described["kind"]
    assert entries(folder, ".verified")
    assert {x.suffix for x in folder.glob("*/*")} == {".bin", ".cl", ".json", ".verified"}
    forget()
    assert product() == 0


@pytest.mark.parametrize("damage", [
    ("bin", b""), ("bin", b"garbage"), ("bin", None), ("json", b"{"), ("json", b"[1]"),
    ("json", b'{"schema": 1}'), ("json", b"\xff\xfe"), ("json", None),
    ("json", b'{"schema": 99, "sha256": ""}'),
])  # fmt: skip
def test_damaged_entries_are_built_again(folder, damage):
    product()
    ending, content = damage
    (file,) = entries(folder, f".{ending}")
    whole = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    forget()
    assert product() == 1
    assert ending == "json" or file.read_bytes()[:20] == whole[:20]
    forget()
    assert product() == 0


def test_a_truncated_binary_is_built_again(folder):
    product()
    (file,) = entries(folder, ".bin")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    forget()
    assert product() == 1


def test_a_binary_that_the_driver_refuses_is_built_again(folder, caplog):
    """Intact as a file, but made by something else."""
    product()
    (file,) = entries(folder, ".bin")
    program_cache.write(file.stem, b"\x7fELF of another world", "", {})
    forget()
    with caplog.at_level(logging.INFO, "clmatmul"):
        assert product() == 1
    assert "the driver refused entry" in caplog.text
    forget()
    assert product() == 0


@pytest.mark.parametrize("where", ["cache", "programs"])
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, caplog, where):
    """A file stands where a folder should be: it works, with one warning."""
    cache = tmp_path / "cache"
    if where == "programs":
        cache.mkdir()
        (cache / "programs").write_text("")
    else:
        cache.write_text("")
    monkeypatch.setenv("CLMATMUL_CACHE_DIR", str(cache))
    forget()
    try:
        assert product() == 1
        a = np.ones((3, 3), "f8")
        assert np.array_equal(naive(a, a), a @ a)
    finally:
        monkeypatch.undo()
        forget()
    warnings = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(warnings) == 1
    assert str(cache) in warnings[0] and "CLMATMUL_CACHE_DIR" in warnings[0]


def test_entries_are_renamed_into_place(folder, monkeypatch):
    """Nobody sees half an entry: files get their name when they are whole, the description last."""
    order = []
    replace = os.replace

    def recorded(source, target):
        content = Path(source).read_bytes()
        replace(source, target)
        order.append(Path(target).suffix)
        assert Path(target).read_bytes() == content

    monkeypatch.setattr(os, "replace", recorded)
    program_cache.write("ab" * 32, b"binary", "source", {})
    assert order == [".cl", ".bin", ".json"]
    assert program_cache.read("ab" * 32) == b"binary"
    assert not [x for x in folder.rglob("*") if x.name.startswith(".")]


def test_a_failed_write_leaves_nothing(folder, monkeypatch, caplog):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    program_cache.write("cd" * 32, b"binary", "source", {})
    assert [x for x in folder.rglob("*") if x.is_file()] == []
    assert "No space left on device" in caplog.text
    assert program_cache.read("cd" * 32) is None


def test_several_processes_at_once(folder):
    """All build or read, all are right, and the entry is whole."""
    running = [process() for _ in range(3)]
    for run in running:
        out, err = run.communicate(timeout=200)
        assert run.returncode == 0, err
    forget()
    assert product() == 0


def test_several_threads_build_once(folder):
    before = executable.build_count
    a = np.ones((5, 6), "i2")
    gate, results = threading.Barrier(6), []

    def work():
        gate.wait()
        results.append(naive(a, a.T).tobytes())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(set(results)) == 1
    assert executable.build_count - before == 1


def test_key_covers_all_that_decides_the_binary(monkeypatch):
    def key(*changes):
        base = ["source", ("-cl-std=CL1.2",), None, "device"]
        for i, value in changes:
            base[i] = value
        return program_cache.program_key(*base)

    keys = {key(), key((0, "other")), key((1, ())), key((2, "step")), key((3, "driver 2"))}
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    keys.add(key())
    assert len(keys) == 6


def test_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("CLMATMUL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    if sys.platform == "linux":
        assert program_cache.cache_folder() == Path("/somewhere/clmatmul/programs")
    assert program_cache.cache_folder().name == "programs"


def test_nothing_is_kept_or_used_when_it_is_turned_off(monkeypatch, tmp_path):
    monkeypatch.setenv("CLMATMUL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CLMATMUL_CACHE", "0")
    walk.forget()
    a = np.ones((3, 4), "i2")
    assert (clmatmul.matmul(a, a.T) == 4).all()
    assert not any(tmp_path.rglob("*.*"))
    program_cache.mark_verified("ab" * 32)
    assert not program_cache.is_verified("ab" * 32)
    assert program_cache.read("ab" * 32) is None

"""Falling through the choices: the product is right whatever a fast variant does."""

import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from extra_variants import SPLIT_K, kernel_folder, one_item

import clmatmul
from clmatmul import choose, executable, walk
from clmatmul import device as devices
from clmatmul.choose import SAFE
from clmatmul.database import TuningRecord
from clmatmul.errors import BuildError, ConfigError, LaunchError, VerificationError
from clmatmul.explanation import plain_problem
from clmatmul.variants import load_variant

__all__ = ["kernel_folder"]
A = np.arange(15, dtype="f4").reshape(3, 5)
B = np.arange(20, dtype="f4").reshape(5, 4)
BIG = """__local float big[40000000];
    big[get_local_id(0)] = k;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (big[get_local_id(0)] != k) return;"""
FAULTY = {
    "does_not_build": (BuildError, dict(body="this is no C;")),
    "wrong_numbers": (VerificationError, dict(term="k - 1")),
    "wrong_place": (VerificationError, dict(sum_="sum + (acc_t)(row == 1)")),
    "writes_too_much": (VerificationError, dict(body="out[out_offset - 1] = 3;")),
    "too_much_local": (LaunchError, dict(body=BIG)),
    "too_wide": (LaunchError, dict(local=64)),
}  # fmt: skip


@pytest.fixture
def fresh_programs(monkeypatch):
    """No program of an earlier test: a program asks for its limits once, when it is built."""
    monkeypatch.setattr(executable, "_programs", executable._Programs())


@pytest.fixture
def add_faulty(kernel_folder, device, monkeypatch):
    def add(name, rank=1000):
        error, faults = FAULTY[name]
        kernel_folder(name, one_item(name, rank=rank, **faults))
        if name == "too_wide":
            limits = devices.Device.kernel_limits

            def narrow(self, kernel):
                group, *others = limits(self, kernel)
                return (
                    (min(group, 32), *others) if kernel.function_name == name else (group, *others)
                )

            monkeypatch.setattr(devices.Device, "kernel_limits", narrow)
        return error

    return add


def offer_only(monkeypatch, *names):
    """Leave out variants whose large texts take seconds to build."""
    offered = tuple(load_variant(name) for name in names)
    monkeypatch.setattr(choose, "all_variants", lambda: offered)


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_variant_is_passed_over(add_faulty, caplog, name):
    add_faulty(name)
    for _ in range(3):
        assert np.array_equal(clmatmul.matmul(A, B), A @ B)
    warnings = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(warnings) == 1 and f"{name}(unit=1) is passed over: " in warnings[0]
    text = clmatmul.MatMul(A, B).explain()
    assert f"passed over: {name}(unit=1): " in text
    listed = [x for x in text.splitlines() if re.search(r"\d\. ", x)]
    assert f"1. {name}(unit=1) [heuristic" in listed[0]
    assert f"{SAFE} [safe" in listed[-1]
    assert clmatmul.MatMul(A, B).config.variant != name


@pytest.mark.parametrize("name", FAULTY)
def test_a_forced_faulty_variant_is_an_error(add_faulty, caplog, name):
    error = add_faulty(name)
    with pytest.raises(error, match=rf"{name}\(unit=1\)"):
        clmatmul.MatMul(A, B, config=name)
    assert not caplog.records
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)


def test_the_build_error_carries_log_and_source(add_faulty):
    add_faulty("does_not_build")
    with pytest.raises(BuildError) as caught:
        clmatmul.MatMul(A, B, config="does_not_build")
    error = caught.value
    assert "this is no C;" in error.source and error.log
    (line,) = (x for x in error.numbered_source.splitlines() if "this is no C;" in x)
    assert re.match(r" *\d+  ", line)


def test_the_safe_choice_is_the_last_resort(add_faulty, kernel_folder, monkeypatch, fresh_programs):
    """Everything else fails, in one way or another: the product is right all the same."""
    add_faulty("wrong_numbers")
    offer_only(monkeypatch, "naive", "tiled", "wrong_numbers")

    def strict(self, kernel):
        naive = kernel.function_name in ("naive", "wrong_numbers")
        return 1, 0 if naive else 2**40, 0

    monkeypatch.setattr(devices.Device, "kernel_limits", strict)
    plan = clmatmul.MatMul(A.astype("i2"), B.astype("i2"))
    assert plan.choice.origin == "safe" and plan.config == SAFE
    assert np.array_equal(plan(A.astype("i2"), B.astype("i2")), A @ B)


def test_when_nothing_can_serve_every_reason_is_given(monkeypatch, kernel_folder, fresh_programs):
    offer_only(monkeypatch, "naive", "tiled")
    monkeypatch.setattr(devices.Device, "kernel_limits", lambda self, kernel: (1, 2**40, 0))
    with pytest.raises(LaunchError) as caught:
        clmatmul.matmul(A.astype("u2"), B.astype("u2"))
    text = str(caught.value)
    assert "no kernel could serve 3×4×5 uint16" in text
    assert f"{SAFE} [safe" in text and "needs 1099511627776 bytes of local memory" in text


def test_known_false_limits_only_log(kernel_folder, device, monkeypatch, caplog, fresh_programs):
    """A runtime that says 32 for every kernel, and runs 256."""
    profile = replace(device.profile, unreliable=("kernel_work_group_size",))
    monkeypatch.setitem(device.__dict__, "profile", profile)
    monkeypatch.setattr(devices.Device, "kernel_limits", lambda self, kernel: (32, 0, 0))
    with caplog.at_level(logging.DEBUG, "clmatmul"):
        plan = clmatmul.MatMul(A, B, config="naive(work_group_size=64)")
    assert np.array_equal(plan(A, B), A @ B)
    assert "known to be false" in caplog.text
    assert not [x for x in caplog.records if x.levelname == "WARNING"]


def test_a_kernel_that_fails_while_running_is_passed_over(kernel_folder, monkeypatch, caplog):
    kernel_folder("crashing", one_item("crashing", rank=1000))
    read = devices.Device.read

    def failing(self, queue, buffer, host, *arguments, **keywords):
        if any(frame.config.variant == "crashing" for frame in running):
            raise clmatmul.DeviceError("a kernel failed: OUT_OF_RESOURCES")
        return read(self, queue, buffer, host, *arguments, **keywords)

    running = []
    check = walk.first_use_check

    def watched(device, plan, executable):
        running.append(plan)
        try:
            check(device, plan, executable)
        finally:
            running.pop()

    monkeypatch.setattr(walk, "first_use_check", watched)
    monkeypatch.setattr(devices.Device, "read", failing)
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)
    assert "crashing(unit=1) is passed over: a kernel failed" in caplog.text


def test_the_first_use_check_builds_and_checks_the_products_own_programs(kernel_folder, device):
    """A variant with one program for few terms and another, faulty, for many."""
    text = one_item("mixed", rank=1000, term='(${"k" if entry == "few" else "k - 1"})')
    text = text.replace('entry="mixed"', 'entry="few" if problem.k < 4 else "many"')
    kernel_folder("mixed", text)
    before = executable.build_count
    plan = clmatmul.MatMul(A[:, :3], B[:3])
    assert plan.config.variant == "mixed" and executable.build_count - before == 1
    assert np.array_equal(plan(A[:, :3], B[:3]), A[:, :3] @ B[:3])
    plan = clmatmul.MatMul(A, B)
    assert plan.config.variant != "mixed" and np.array_equal(plan(A, B), A @ B)


def test_memory_limit(kernel_folder):
    text = SPLIT_K.replace(
        "%>", "\n\ndef propose(problem, profile):\n    yield 1000, {}, 'test'\n%>", 1
    )
    kernel_folder("split_k", text)
    assert clmatmul.MatMul(A, B).config.variant == "split_k"
    limited = clmatmul.MatMul(A, B, memory_limit=100)
    assert limited.config.variant != "split_k"
    assert np.array_equal(limited(A, B), A @ B)
    with pytest.raises(ConfigError, match="workspace <= memory_limit: 144 > 100 bytes"):
        clmatmul.MatMul(A, B, config="split_k", memory_limit=100)


def test_verification_can_be_switched_off(add_faulty, monkeypatch):
    add_faulty("wrong_place")
    monkeypatch.setenv("CLMATMUL_VERIFY", "0")
    got = clmatmul.matmul(A, B)
    assert np.array_equal(got - A @ B, [[0] * 4, [1] * 4, [0] * 4])


def test_a_users_record_is_used(kernel_folder, device):
    problem = plain_problem(3, 4, 5)
    config = clmatmul.TileConfig.of("tiled", tile_m=1, tile_n=2, tile_k=4)
    record = TuningRecord(
        device=device.profile.key, kind=problem.kind.key, batch=1, m=3, n=4, k=5, config=config,
        digest=load_variant("tiled").digest, median_ns=5.0,
    )  # fmt: skip
    file = walk.best_file(device.profile.key)
    file.parent.mkdir(parents=True)
    file.write_text(record.to_json() + "\n")
    walk.forget()
    plan = clmatmul.MatMul(A, B)
    assert plan.config == config and plan.choice.origin == "tuned"
    assert "[tuned: recorded" in plan.explain()


def test_routes_are_kept_and_bounded(kernel_folder, monkeypatch):
    monkeypatch.setattr(walk, "_MAX_ROUTES", 3)
    for m in range(1, 8):
        clmatmul.matmul(np.ones((m, 3), "f4"), np.ones((3, 3), "f4"))
    assert len(walk._routes) == 3
    walked = []
    monkeypatch.setattr(walk, "_walk", lambda *arguments: walked.append(arguments))
    clmatmul.matmul(np.ones((7, 3), "f4"), np.ones((3, 3), "f4"))
    assert not walked


# ---- new variants ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i8", "c8", "f2"])
def test_several_launches_end_to_end(kernel_folder, rng, dtype):
    kernel_folder("split_k", SPLIT_K)
    a = rng.integers(-4, 5, (4, 7, 50)).astype(dtype)
    b = rng.integers(-4, 5, (50, 9)).astype(dtype)
    c = rng.integers(-4, 5, (4, 7, 9)).astype(dtype)
    for pieces in (1, 2, 5):
        config = f"split_k(pieces={pieces})"
        assert np.array_equal(clmatmul.MatMul(a, b, config=config)(a, b), a @ b)
        plan = clmatmul.MatMul(a, b, c=c, alpha=2, beta=3, config=config)
        assert np.array_equal(plan(a, b, c=c), 2 * (a @ b) + 3 * c)
    assert "launch sum_pieces" in plan.explain() and "launch add_pieces" in plan.explain()
    assert plan.source.count("__kernel") == 2


def test_a_file_dropped_into_the_kernels_folder(tmp_path):
    """Found, chosen when forced, and tested by the suite, with no other edit."""
    root = Path(clmatmul.__file__).resolve().parent.parent
    if not (root / "setup.cfg").is_file():
        pytest.skip("not a checkout")
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("clmatmul", "kernels", "tests"):
        shutil.copytree(root / name, tmp_path / name, ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    (tmp_path / "kernels" / "dropped_in.cl.mako").write_text(one_item("dropped_in"))
    env = {**os.environ, "CLMATMUL_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}
    code = f"""
import numpy as np, clmatmul
assert clmatmul.__file__.startswith({str(tmp_path)!r})
a = np.eye(3, dtype="f4")
plan = clmatmul.MatMul(a, a, config="dropped_in(unit=2)")
assert plan.config.variant == "dropped_in" and (plan(a, a) == a).all()
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True,
                         text=True)  # fmt: skip
    assert run.returncode == 0, run.stderr
    chosen = "dropped_in and (test_batches or test_no_terms or test_wide)"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
               "tests/test_kernels.py", "-k", chosen]  # fmt: skip
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert int(re.search(r"(\d+) passed", run.stdout).group(1)) >= 5

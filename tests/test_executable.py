"""Executables: post-build steps, chains of launches, arguments, threads."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from extra_variants import SPLIT_K, kernel_folder, one_item

import clmatmul
from clmatmul import executable, walk
from clmatmul.errors import BuildError, LaunchError
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan
from clmatmul.variants import load_variant

__all__ = ["kernel_folder"]
A = np.arange(15, dtype="f4").reshape(3, 5)
B = np.arange(20, dtype="f4").reshape(5, 4)


def plan_of(name, device, **keywords):
    return make_plan(plain_problem(3, 4, 5, **keywords), device.profile, load_variant(name).default)


def fresh():
    executable._programs = executable._Programs()


# ---- post-build steps -----------------------------------------------------------------------


def test_a_post_build_step_is_called_on_the_binary(kernel_folder, device, monkeypatch):
    step = 'POST_BUILD = "identity"\ndef post_build(binary, profile):\n    return binary'
    kernel_folder("stepping", one_item("stepping", header=step))
    seen = []
    header = load_variant("stepping").header
    original = header["post_build"]

    def watched(binary, profile):
        seen.append((len(binary), profile))
        return original(binary, profile)

    monkeypatch.setitem(header, "post_build", watched)
    plan = clmatmul.MatMul(A, B, config="stepping")
    assert np.array_equal(plan(A, B), A @ B)
    assert len(seen) == 1 and seen[0][0] > 100 and seen[0][1] == device.profile
    # The changed binary is what is kept: the next process finds it and needs no step.
    fresh()
    walk.forget()
    before = executable.build_count
    assert np.array_equal(clmatmul.MatMul(A, B, config="stepping")(A, B), A @ B)
    assert len(seen) == 1 and executable.build_count == before


def test_a_post_build_step_that_fails_names_itself(kernel_folder):
    step = (
        'POST_BUILD = "retarget"\ndef post_build(binary, profile):\n    raise ValueError("no PTX")'
    )
    kernel_folder("stepping", one_item("stepping", header=step, rank=1000))
    with pytest.raises(BuildError, match="post-build step retarget: no PTX"):
        clmatmul.MatMul(A, B, config="stepping")
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)


def test_a_post_build_step_that_returns_nonsense(kernel_folder):
    step = 'POST_BUILD = "spoil"\ndef post_build(binary, profile):\n    return b"nonsense"'
    kernel_folder("stepping", one_item("stepping", header=step, rank=1000))
    with pytest.raises(BuildError):
        clmatmul.MatMul(A, B, config="stepping")
    assert np.array_equal(clmatmul.matmul(A, B), A @ B)


def test_the_step_is_part_of_the_programs_key(kernel_folder, device):
    def key(step):
        header = f'POST_BUILD = "{step}"\ndef post_build(binary, profile):\n    return binary'
        kernel_folder("stepping", one_item("stepping", header=header))
        return executable.build(device, plan_of("stepping", device)).programs[0].key

    assert key("one") != key("two")


# ---- chains of launches ---------------------------------------------------------------------


def test_a_chain_on_an_out_of_order_queue(kernel_folder, device):
    """Each launch waits for the one before it; the event handed back is the last one's."""
    import pyopencl as cl
    import pyopencl.array as cl_array

    kernel_folder("split_k", SPLIT_K)
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(device.context, device.cl_device, properties=properties)
    gate = cl.UserEvent(device.context)
    a, b = cl_array.to_device(queue, A), cl_array.to_device(queue, B)
    plan = clmatmul.MatMul(a, b, config="split_k(pieces=3)")
    results = [plan(a, b, wait_for=[gate]) for _ in range(5)]
    assert not any(x.events[-1].command_execution_status == 0 for x in results)
    gate.set_status(cl.command_execution_status.COMPLETE)
    for result in results:
        result.events[-1].wait()
        assert np.array_equal(result.get(), A @ B)


def test_every_launch_is_recorded(kernel_folder, device):
    kernel_folder("split_k", SPLIT_K)
    runs = executable.build(device, plan_of("split_k", device))
    buffers = {"a": device.upload(A), "b": device.upload(B), "out": device.allocate(48)}
    events = []
    last, keep = runs(device.queue(), {x: (y, 0) for x, y in buffers.items()}, record=events)
    assert len(events) == 2 and events[-1] is last
    out = np.empty((3, 4), "f4")
    device.read(device.queue(), buffers["out"], out, wait_for=[last])
    assert np.array_equal(out, A @ B)
    assert "partial" in keep[1]


def test_a_given_workspace_is_used(kernel_folder, device):
    kernel_folder("split_k", SPLIT_K)
    plan = plan_of("split_k", device)
    runs = executable.build(device, plan)
    buffers = {"a": device.upload(A), "b": device.upload(B), "out": device.allocate(48)}
    scratch = device.upload(np.full(plan.workspace_bytes // 4, np.nan, "f4"))
    last, _ = runs(device.queue(), {x: (y, 0) for x, y in buffers.items()},
                   workspace={"partial": scratch})  # fmt: skip
    partial = np.empty((3, 3, 4), "f4")
    device.read(device.queue(), scratch, partial, wait_for=[last])
    assert np.array_equal(partial.sum(axis=0), A @ B)


# ---- launching ------------------------------------------------------------------------------


def test_offsets_are_arguments(device):
    memory = np.concatenate([np.zeros(7, "f4"), A.ravel(), np.zeros(2, "f4"), B.ravel()])
    buffer, out = device.upload(memory), device.upload(np.full(20, -1, "f4"))
    runs = executable.build(device, plan_of("naive", device))
    last, _ = runs(device.queue(), {"a": (buffer, 7), "b": (buffer, 24), "out": (out, 3)})
    got = np.empty(20, "f4")
    device.read(device.queue(), out, got, wait_for=[last])
    assert np.array_equal(got[3:15].reshape(3, 4), A @ B)
    assert (got[:3] == -1).all() and (got[15:] == -1).all()


def test_what_the_runtime_refuses_is_a_launch_error(device, monkeypatch):
    runs = executable.build(device, plan_of("naive", device))
    with pytest.raises(LaunchError, match=r"naive\(work_group_size=1\) could not be started"):
        runs(device.queue(), {"a": ("no buffer", 0), "b": ("no buffer", 0), "out": ("no", 0)})


def test_threads_have_kernels_of_their_own(device):
    """Setting a kernel's arguments is the one call that threads must not share."""
    (program,) = executable.build(device, plan_of("naive", device)).programs
    kernels = [program.kernel(), program.kernel()]
    thread = threading.Thread(target=lambda: kernels.append(program.kernel()))
    thread.start()
    thread.join()
    assert kernels[0] is kernels[1] is not kernels[2]


def test_equal_plans_share_programs(device):
    one = executable.build(device, plan_of("naive", device))
    other = executable.build(device, make_plan(plain_problem(9, 9, 9), device.profile,
                                               load_variant("naive").default))  # fmt: skip
    assert one.programs[0] is other.programs[0]
    assert one.programs[0].limits[0] >= 1


# ---- few programs -----------------------------------------------------------------------------


@pytest.fixture
def nothing_built(tmp_path, monkeypatch):
    """As in a new process with an empty cache; gives the number of programs built since."""
    monkeypatch.setenv("CLMATMUL_CACHE_DIR", str(tmp_path))
    fresh()
    walk.forget()
    before = executable.build_count
    return lambda: executable.build_count - before


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_hundred_shapes_need_four_programs(rng, nothing_built, layout):
    for _ in range(100):
        m, n, k = (int(x) for x in rng.integers(2, 300, 3))
        a = np.ones((m, k), "f4") if layout[0] == "N" else np.ones((k, m), "f4").T
        b = np.ones((k, n), "f4") if layout[1] == "N" else np.ones((n, k), "f4").T
        assert (clmatmul.matmul(a, b) == k).all()
    assert nothing_built() <= 4


def test_a_hundred_batches_need_four_programs(rng, nothing_built):
    for _ in range(100):
        batch, m, n, k = (int(x) for x in rng.integers(2, 60, 4))
        a, b = np.ones((batch, m, k), "f4"), np.ones((batch, k, n), "f4")
        assert (clmatmul.matmul(a, b) == k).all()
    assert nothing_built() <= 4


def test_what_a_driver_keeps_for_itself_is_not_counted(device):
    """NVIDIA's driver reports a KiB more than a kernel declares: 48 KiB are still 48 KiB."""
    plan = plan_of("naive", device)
    found = SimpleNamespace(limits=(0, device.profile.usable_local_bytes + 1024, 0))
    nvidia = replace(device.profile, family="nvidia")
    executable._check_limits(nvidia, plan, plan.launches[0], found)
    with pytest.raises(LaunchError, match="bytes of local memory"):
        executable._check_limits(device.profile, plan, plan.launches[0], found)


def test_counters_are_zero_and_an_in_order_queue_keeps_its_own(device):
    queues = [cl.CommandQueue(device.context, device.cl_device) for _ in range(2)]
    first, waiting = device.counters(queues[0], 12)
    assert waiting == []
    assert device.counters(queues[0], first.size)[0] is first
    assert device.counters(queues[1], 12)[0] is not first
    larger, _ = device.counters(queues[0], first.size + 4)
    host = np.empty(larger.size, np.uint8)
    device.read(queues[0], larger, host)
    assert not host.any()


def test_counters_of_an_out_of_order_queue_are_new_each_time(device):
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.cl_device.queue_properties & properties:
        pytest.skip("the device has no such queues")
    queue = cl.CommandQueue(device.context, device.cl_device, properties)
    first, waiting = device.counters(queue, 12)
    assert len(waiting) == 1
    assert device.counters(queue, 12)[0] is not first

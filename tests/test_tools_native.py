"""NVIDIA's kernels on this machine's processor: they are right in whatever order things go, and
stay within their buffers; and what is wrong in a kernel shows."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kinds import aligned, plain_kind, test_configs

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import native_device  # noqa: E402
from native_device import WAYS, Finding, NativeDevice  # noqa: E402
from native_text import UnknownInstruction, native_text  # noqa: E402

from clmatmul import trial  # noqa: E402
from clmatmul.cases import make_case  # noqa: E402
from clmatmul.device import CompileFailure  # noqa: E402
from clmatmul.errors import ConfigError  # noqa: E402
from clmatmul.plan import make_plan  # noqa: E402
from clmatmul.trial import check_case, check_sizes  # noqa: E402
from clmatmul.variants import load_variant  # noqa: E402

pytestmark = pytest.mark.skipif(bool(native_device.missing()), reason="no compiler for it")


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return NativeDevice(native_device.profile_of_h200(), tmp_path_factory.mktemp("native"))


@pytest.fixture
def here(native, monkeypatch):
    """Products are checked on this machine's processor; whatever is changed of it is put back."""
    monkeypatch.setattr(trial, "devices", SimpleNamespace(wait=lambda events: None))
    monkeypatch.setenv("CLMATMUL_CACHE", "0")
    profile = native.profile
    yield
    native.profile = profile


@pytest.mark.parametrize("variant", ["nv_async", "nv_mma", "nv_mma_f64", "nv_wgmma"])
def test_kernels_are_right_in_every_order_and_stay_in_their_buffers(native, rng, variant, here):
    header = load_variant(variant).header
    dtype, layout = header.get("TEST_DTYPE", "float32"), header.get("TEST_LAYOUT", "NN")
    plain = plain_kind(dtype, layout, batch_rank=1)
    kinds = [plain] if variant != "nv_mma" else []
    for alignment in {16, header.get("TEST_ALIGNMENT", 1)}:
        kinds.append(aligned(plain, alignment))
    if variant == "nv_wgmma":  # a tile inside the result has a text of its own, with a bias held
        kinds.append(replace(kinds[-1], activation="gelu", bias="float32", residual="float32"))
    ran = 0
    configs = test_configs(variant)
    walking = [x for x in configs[2:] if x.values().get("walkers")]
    for config in (*configs[:2], *walking):
        for kind in kinds:
            for size in check_sizes(config)[:3]:
                native.runs = ran
                try:
                    case = make_case(kind, *size, "exact", rng)
                    assert check_case(native, config, case).fault is None
                except ConfigError:
                    continue
                ran += 1
    assert ran >= WAYS


def test_consumers_take_turns(native, rng, here):
    """Of nv_wgmma: on a device of one unit a group has nine tiles, of more phases than stages."""
    config = next(x for x in test_configs("nv_wgmma") if x.values()["stages"] == 6)
    native.profile = replace(native.profile, compute_units=1)
    case = make_case(aligned(plain_kind("float16", "NN"), 16), 261, 131, 771, "exact", rng)
    (launch,) = make_plan(case.problem, native.profile, config).launches
    assert dict(launch.values)["work"] == 9 and launch.global_size == launch.local_size
    for way in range(WAYS):
        native.runs = way
        assert check_case(native, config, case).fault is None


def test_operands_are_rounded_to_the_nearest(native, rng, here):
    """Of nv_mma: whole numbers of 11 bits, and a little less, are the same to TF32."""
    kind = aligned(plain_kind("float32", "NT", precision="high"), 16)
    for name in "ab":
        case = make_case(kind, 70, 133, 40, f"ids_{name}", rng)
        case.memory[name].view[...] *= 1 - 2**-13
        assert check_case(native, test_configs("nv_mma")[0], case).fault is None


def test_parts_of_k_that_wait_for_each_other(native, rng, here):
    """Whoever gives up, takes that back or comes last: each slice of a tile is added up once."""
    config = next(x for x in test_configs("nv_mma") if x.values()["splits"] == 15)
    kind = aligned(plain_kind("float16", "NN", c="float16", beta="general"), 64)
    case = make_case(kind, 33, 30, 480, "exact", rng, in_place=True)
    for run in range(12 * WAYS):
        native.runs = run
        assert check_case(native, config, case).fault is None


HEAD = "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void one(__global uint *to,"
HEAD += " __global const uint *from, const int n) { const int item = get_local_id(0);\n"


def run(native, body, way=0, groups=1, words=64, items=64):
    """What a kernel of 64 work-items a group leaves in `to`, of so many words; from has 0, 1, 2…"""
    text = HEAD.replace("(64, 1, 1)", f"({items}, 1, 1)") + body + "}"
    call = native.kernel(native.compile(text, ()), "one", [None, None, np.int32])
    to = native.upload(np.zeros(words, np.uint32))
    native.runs = way
    numbers = native.upload(np.arange(words, dtype=np.uint32))
    native.launch(None, call, [to, numbers, words], (items * groups,), (items,), ())
    found = np.empty(words, np.uint32)
    native.read(None, to, found)
    return found.tolist()


LOCAL = "__local uint tiles[64] __attribute__((aligned(16)));\n"
COPY = (
    'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((uint)(size_t)(tiles + item)), '
    '"l"(from + item) : "memory"); asm volatile("cp.async.commit_group;" ::: "memory"); '
)
WAIT = 'asm volatile("cp.async.wait_group {};" ::: "memory"); '
BARRIER = "barrier(CLK_LOCAL_MEM_FENCE); "
TURNED = "to[item] = tiles[63 - item];"
BACKWARDS = list(range(63, -1, -1))


def test_a_kernel_that_is_right(native):
    for way in range(WAYS):
        assert run(native, LOCAL + COPY + WAIT.format(0) + BARRIER + TURNED, way) == BACKWARDS


@pytest.mark.parametrize("body", [COPY + WAIT.format(0) + TURNED, COPY + BARRIER + TURNED,
                                  COPY + WAIT.format(1) + BARRIER + TURNED])  # fmt: skip
def test_a_missing_barrier_and_a_missing_wait_show_in_some_order(native, body):
    found = [run(native, LOCAL + body, way) for way in range(WAYS)]
    assert any(x != BACKWARDS for x in found)


def test_a_warp_that_is_far_ahead_of_others(native):
    """Lanes of a warp have met, but no warps."""
    meet = 'asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); '
    body = LOCAL + "tiles[item] = from[item]; " + meet + TURNED
    assert any(run(native, body, way) != BACKWARDS for way in range(WAYS))


@pytest.mark.parametrize("body, what", [
    ("to[item] = from[item + 1];", "read outside (4 bytes, 0 behind a buffer's end"),
    ("to[item - 1] = 1;", "wrote outside"),
    (LOCAL + COPY.replace("tiles + item", "tiles + item + 1"), "wrote outside local memory"),
    (LOCAL + COPY.replace("from + item", "from + item + 1"), "read outside"),
    (LOCAL + COPY.replace("from + item", "(ulong)from + 2"), "is not aligned"),
    (LOCAL + "__local uint *next = tiles + 1; next[item] = 1;", "wrote outside"),
    ("uint a[2]; for (int i = 0; i <= n - 62; i++) a[i] = i; to[item] = a[1];", "index outside"),
    ('uint x = 0; if (item) asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); to[item] = x;',
     "wait for what never comes"),
])  # fmt: skip
def test_what_a_device_may_not_let_see(native, body, what):
    with pytest.raises(Finding, match=what.replace("(", r"\(")):
        run(native, body)


@pytest.mark.parametrize("items", [64, 256])
def test_groups_side_by_side_see_what_others_left(native, items):
    """In one of the ways a group that polls lets others go on; alone it would wait for ever."""
    body = ('atomic_add((volatile __global uint *)to, item == 0 ? 1u : 0u); uint seen = 0; '
            'for (int i = 0; i < 9 && seen < 2; i++) asm volatile("ld.relaxed.gpu.global.u32 %0, '
            '[%1];" : "=r"(seen) : "l"(to) : "memory"); to[1] = seen;')  # fmt: skip
    assert run(native, body, way=4, groups=2, items=items)[:2] == [2, 2]


def test_groups_that_come_late(native):
    """Others wait for some groups: not at all, nearly as long as parts of k do, or longer."""
    body = ('if (item == 0) { atomic_add((volatile __global uint *)to, 1u); uint seen = 0, i = 0; '
            'for (; seen < 9; i++) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) '
            ': "l"(to) : "memory"); to[1 + get_group_id(0)] = i; }')  # fmt: skip
    waited = [max(run(native, body, way, groups=9)[1:10]) for way in range(4, 99, WAYS)]
    assert min(waited) < 4 and len({x for x in waited if 36 < x < 52}) > 2


def test_others_go_on_between_what_a_group_reads_and_what_it_writes(native):
    """A sum that is read and then written loses what others have added meanwhile."""
    body = ('volatile __global uint *sum = (volatile __global uint *)to; if (item == 0) '
            'atomic_xchg(sum, atomic_add(sum, 0u) + 1u);')  # fmt: skip
    assert [run(native, body, way, groups=4)[0] for way in (0, 4)] == [4, 1]


def test_texts_that_are_no_ptx_do_not_build(native):
    for text in (
        "cp.async.ca.shared.global [%0], [%1], 5;",
        "cp.async.wait_grup 0;",
        "mma.sync.aligned.m16n8k7.row.col.f32.f16.f16.f32 {%0}, {%1}, {%2}, {%0};",
        "cp.async.ca.shared.global [%0], [%2], 4;",
        "fence.acq_rel.gpus;",
    ):
        with pytest.raises(UnknownInstruction):
            native_text(f'void one() {{ asm volatile("{text}" :: "r"(x), "l"(y)); }}', "one")
        with pytest.raises(CompileFailure, match="no such instruction"):
            run(native, f'asm volatile("{text}" :: "r"(item), "l"(from));')
    load = 'float x; asm volatile("ld.shared.b32 %0, [%{}];" : "=f"(x) : "r"(item) : "memory");'
    for address in (0, 2):  # a real number, and what is not there
        with pytest.raises(CompileFailure, match="no such instruction"):
            run(native, load.format(address))
    with pytest.raises(CompileFailure, match="undeclared"):
        run(native, "to[item] = nothing;")


def test_machine_code_tells_whether_a_change_is_one(native):
    one, same, other = (
        native.code_of(native.compile(HEAD + x + "}", ()))
        for x in ("to[item] = 2 * item;", "to[item] = item + item;", "to[item] = 3 * item;")
    )
    assert one == same != other

"""NVIDIA's kernels on any device: choice, steps after the build, and `nv_async` itself.

On other devices its PTX instructions are emulated in plain OpenCL C; those of the tensor cores can
be too, but a compiler takes minutes for each such kernel, so they are tested on the card
(test_kernels.py). What emulation cannot show is how fast they are, and a missing wait: copies are
done at once.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kinds import aligned, check, plain_kind, test_configs

from clmatmul import probes, templates
from clmatmul.cases import make_case
from clmatmul.choose import choose
from clmatmul.config import TileConfig
from clmatmul.device import Device, wait
from clmatmul.device_profile import DeviceProfile
from clmatmul.executable import build
from clmatmul.plan import make_plan, render_launch
from clmatmul.reference import apply_activation
from clmatmul.trial import check_sizes
from clmatmul.variants import load_variant

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("no_binaries")]
ALL_FOUND = {"static_local_bytes": 231424, "wgmma": 1}
EMULATED = Path(__file__).with_name("emulated_ptx.mako")
VARIANTS = ("nv_async", "nv_mma_f64", "nv_mma")


@pytest.fixture(scope="module")
def nvidia(device):
    """The device under test in the guise of an NVIDIA one."""
    if not device.profile.fp64:
        pytest.skip("the device has no float64, in which PTX is emulated")
    found = Device(device.cl_device)
    found.profile = replace(device.profile, family="nvidia", compute_units=3).with_probes(
        compute_capability=90, static_local_bytes=231424
    )
    return found


@pytest.fixture(autouse=True)
def emulated(device, monkeypatch):
    """parts/ptx.mako is the emulating one while a test runs, but on NVIDIA's own devices."""
    if device.profile.family == "nvidia":
        yield
        return
    text = templates.text

    def patched(name):
        return EMULATED.read_text() if name == "parts/ptx.mako" else text(name)

    monkeypatch.setattr(templates, "text", patched)
    templates._lookup.cache_clear()
    yield
    templates._lookup.cache_clear()


KINDS = {
    "nv_async": [
        *(plain_kind("float32", layout) for layout in ("NN", "NT", "TN", "TT", "SS")),
        plain_kind("float32", "NN", "T"),
        plain_kind("int32", "TN", batch_rank=1),
        plain_kind("float32", "NT", alpha="general", beta="general", c="float32", bias="float32",
                   residual="float32", row_scale="float32", col_scale="float32",
                   activation="relu", batch_rank=2, index="long"),
    ],
    "nv_mma_f64": [plain_kind("float64", layout) for layout in ("NN", "TT")],
    "nv_mma": [plain_kind("float16")],
}  # fmt: skip


def check_all(nvidia, config, kinds, rng, data=("ids_a", "ids_b", "exact", "special")):
    for kind in kinds:
        assert not load_variant(config.variant).unmet(kind, nvidia.profile)
        served = 0
        for size in (*check_sizes(config), (45, 70, 33)):
            for x in data:
                if x != "special" or kind.compute == "float32" and kind.activation == "none":
                    served += check(nvidia, config, kind, size, x, rng) is not None
        assert served


def test_asynchronous_copies(nvidia, rng):
    """One element at a time, and sixteen bytes; with all terms at once, and with k split."""
    config = test_configs("nv_async")[0]
    check_all(nvidia, config, [KINDS["nv_async"][0]], rng)
    check_all(nvidia, test_configs("nv_async")[1], [aligned(KINDS["nv_async"][2], 64)], rng)


def test_parts_of_the_last_tiles_alone(nvidia, rng):
    """Tiles of full waves in one piece, the others cut: with three units, all but one or two."""
    config = test_configs("nv_async")[2]
    assert config.values()["wave"] == 1
    check_all(nvidia, config, [KINDS["nv_async"][1]], rng, data=("ids_a", "exact"))


def test_parts_come_last_behind_several_waves(nvidia, rng):
    """15 tiles on three units with room for two each: 12 whole ones, then the parts of three."""
    config = test_configs("nv_async")[2].with_values(wave=2)
    kind, size = KINDS["nv_async"][1], (70, 80, 40)
    case = make_case(kind, *size, "exact", rng, with_result=False)
    (launch,) = make_plan(case.problem, nvidia.profile, config).launches
    values = dict(launch.values)
    assert (values["whole"], values["parts_from"], values["splits"]) == (12, 12, 2)
    for data in ("ids_a", "ids_b", "exact"):
        assert check(nvidia, config, kind, size, data, rng) is not None


def test_groups_walk_from_tile_to_tile(nvidia, rng):
    """Six groups, or fewer, so that each has two tiles: of all matrices of a batch, and of one."""
    config = test_configs("nv_async")[3]
    assert config.values()["walkers"] == 2
    kind = aligned(plain_kind("float32", "NN", batch_rank=1), 64)
    case = make_case(kind, 70, 40, 20, "exact", rng, with_result=False, batch=(5,))
    (launch,) = make_plan(case.problem, nvidia.profile, config).launches
    assert launch.global_size == (6 * 32,) and dict(launch.values)["walking"] == 6
    for size in (*check_sizes(config), (70, 40, 20)):
        for data in ("ids_a", "ids_b", "exact", "special"):
            assert check(nvidia, config, kind, size, data, rng) is not None
    assert check(nvidia, config, kind, (33, 17, 50), "ids_b", rng, repeated=("a",)) is not None
    check_all(nvidia, config, [KINDS["nv_async"][7]], rng, data=("ids_a", "exact"))


@pytest.mark.parametrize("splits, walkers", [(1, 2), (3, 0)])
def test_lines_are_kept_as_they_lie(nvidia, rng, splits, walkers):
    """Sixteen bytes of a row of A, and of a column of B, where they run along the terms."""
    config = test_configs("nv_async")[3].with_values(along=1, splits=splits, walkers=walkers)
    kind = aligned(KINDS["nv_async"][1], 64)
    check_all(nvidia, config, [kind], rng)
    other = aligned(KINDS["nv_async"][2], 64)  # columns of A
    reasons = load_variant("nv_async").reject(
        config, make_case(other, 70, 40, 20, "exact", rng, with_result=False).problem,
        nvidia.profile,
    )  # fmt: skip
    assert any("a_lines" in x for x in reasons)


def test_parts_share_out_evenly():
    """All terms are in the parts, and no unit gets more than with parts of one length."""
    terms_of_parts = load_variant("nv_async").header["terms_of_parts"]
    for k in (200, 2048, 4096, 10_000):
        for tiles in (1, 68, 116, 131, 132, 300):
            for asked in (2, 3, 4, 7, 16):
                even = -(-k // asked // 16) * 16
                splits = -(-k // even)
                if splits == 1:
                    continue
                terms, heaviest = terms_of_parts(k, splits, tiles, 132, 3, 16)
                assert terms % 16 == 0 and (splits - 1) * terms < k <= splits * terms
                count = -(-tiles * splits // 132)
                assert heaviest <= even * count * 12 / (9 + min(count, 3))
                assert heaviest >= tiles * k / 132
    assert terms_of_parts(2048, 4, 116, 132, 3, 16) == (624, 1872)


def test_parts_of_two_queues_at_once(nvidia, rng):
    """Parts of k meet in counters and sums that launches share: each queue has its own.

    All launches are under way before anyone waits; of each result every element is compared.
    """
    config = test_configs("nv_async")[1]
    assert config.values()["splits"] == 3
    kind = aligned(KINDS["nv_async"][2], 64)
    sides = [make_case(kind, 70, 50, 200, "exact", rng) for _ in range(2)]
    runs = build(nvidia, make_plan(sides[0].problem, nvidia.profile, config))
    assert runs.plan.counter_bytes and runs.plan.workspace_bytes
    queues = [nvidia.queue(), nvidia.profiling_queue()]
    launched = []
    for _ in range(12):
        for case, queue in zip(sides, queues, strict=True):
            given = {x: (nvidia.upload(y.cells), y.offset) for x, y in case.memory.items()}
            last, keep = runs(queue, given)
            launched.append((case, given["out"][0], queue, last, keep))
    for case, out, queue, last, _ in launched:
        cells = np.empty_like(case.memory["out"].cells)
        nvidia.read(queue, out, cells, wait_for=[last])
        assert case.judge(cells)[0] is None


def test_parts_that_are_not_all_there_at_once(device, rng):
    """Of 2048 groups a few hundred run at a time: those give up, and who comes last does it all.

    The second product finds the counters as the first one left them.
    """
    if device.profile.family != "nvidia":
        pytest.skip("a compiler takes minutes for this kernel with its instructions emulated")
    config = test_configs("nv_mma")[3].with_values(tile_n=64, warp_n=32, splits=128)
    assert config.values()["adders"] == "all"
    kind = aligned(KINDS["nv_mma"][0], 64)
    for data in ("exact", "ids_a"):
        assert check(device, config, kind, (250, 256, 16384), data, rng) is not None


@pytest.mark.parametrize("tile_n, stages", [(256, 4), (192, 5), (64, 8)])
@pytest.mark.parametrize("splits, wave", [(1, 0), (2, 1)])
def test_consumers_take_turns(device, nvidia, rng, tile_n, stages, splits, wave):
    """With three units each group has several tiles, of more phases than stages, and of fewer."""
    kind = aligned(plain_kind("float16", "NN"), 16)
    if device.profile.family == "nvidia":
        probes.ensure(device, kind)
    if not device.profile.probe("wgmma"):
        pytest.skip("the device has no wgmma, and its emulation would take minutes to compile")
    nvidia.learn({"wgmma": 1})
    config = TileConfig.of(
        "nv_wgmma", tile_m=128, tile_n=tile_n, bytes_k=128, stages=stages, group_rows=4,
        splits=splits, wave=wave,
    )  # fmt: skip
    case = make_case(kind, 620, 1000, 1300, "exact", rng, with_result=False)
    launch = make_plan(case.problem, nvidia.profile, config).launches[-1]
    assert dict(launch.values)["work"] > 2 * launch.global_size[0] // launch.local_size[0]
    for k in (1300, 64 * stages, 64 * stages + 1, 70 * splits):
        for data in ("ids_a", "ids_b", "exact"):
            assert check(nvidia, config, kind, (620, 1000, k), data, rng) is not None


@pytest.mark.slow
def test_parts_add_up_together(nvidia, rng):
    """Each part adds up a slice of the tile: blocks of 128 sums, here fewer and more than parts.

    Few groups run at a time on most devices, so that others give up and leave theirs to the last.
    """
    small = dict(tile_m=16, tile_n=32, bytes_k=64, warp_m=16, warp_n=16, stages=2, group_rows=4)
    kind = aligned(KINDS["nv_mma"][0], 64)
    for splits in (3, 12):
        config = TileConfig.of("nv_mma", adders="all", splits=splits, wave=0, **small)
        for size in ((33, 50, 400), (16, 32, 500), (40, 70, 1000)):
            for data in ("exact", "ids_a", "ids_b"):
                assert check(nvidia, config, kind, size, data, rng) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "which", "alignment"),
    [("nv_async", 0, 1), ("nv_async", 1, 64)],
)
def test_tiles_and_layouts(nvidia, rng, variant, which, alignment):
    """Every layout, and all that can be fused. A compiler takes minutes for some of them."""
    kinds = [aligned(kind, alignment) for kind in KINDS[variant]]
    check_all(nvidia, test_configs(variant)[which], kinds, rng)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
@pytest.mark.parametrize("layout", ["N", "T"])
def test_packing(nvidia, rng, dtype, layout):
    """Lines of A with their terms side by side, whatever the order in which A is stored.

    Of nv_wgmma's launches the first, which needs no instruction of NVIDIA's own.
    """
    precision = "high" if dtype == "float32" else "highest"
    kind = replace(plain_kind(dtype, layout + "T", batch_rank=1), precision=precision)
    profile = nvidia.profile.with_probes(wgmma=1)
    for m, k in ((64, 64), (70, 129), (1, 63), (130, 300)):
        case = make_case(kind, m, 5, k, "ids_a", rng, with_result=False)
        plan = make_plan(case.problem, profile, test_configs("nv_wgmma")[0])
        launch, source = plan.launches[0], case.memory["a"]
        assert launch.entry == "pack_a"
        size = next(x.bytes for x in plan.workspace if x.name == "packed_a")
        packed, cells = nvidia.allocate(size), np.empty(size, np.uint8)
        given = {**dict(launch.values), "a": nvidia.upload(source.cells), "a_offset": source.offset,
                 "packed_a": packed}  # fmt: skip
        program = nvidia.compile(render_launch(plan, launch), plan.options)
        types = [None if x.role == "buffer" else np.int32 for x in launch.arguments]
        kernel, queue = nvidia.kernel(program, launch.entry, types), nvidia.queue()
        arguments = [given[x.name] for x in launch.arguments]
        nvidia.launch(queue, kernel, arguments, launch.global_size, launch.local_size, [])
        nvidia.read(queue, packed, cells)
        view = source.view
        lines = cells.view(view.dtype).reshape(*view.shape[:-1], -1)
        assert lines.shape[-1] * view.itemsize % 16 == 0
        assert np.array_equal(lines[..., :k], view)


@pytest.mark.parametrize("variant", VARIANTS)
def test_not_offered_elsewhere(device, variant):
    if device.profile.family != "nvidia":
        assert load_variant(variant).unmet(KINDS[variant][0], device.profile)


PTX = b""".version 9.0
.target sm_90, texmode_independent
.entry nv_wgmma(
)
.reqntid 128, 1, 1
{
\t//@wgmma.fence.sync.aligned;
\t//@maxnreg 128;
}
"""


def test_retargeting():
    """Instructions written as comments become instructions, for the target that has them."""
    post_build = load_variant("nv_wgmma").header["post_build"]
    text = post_build(PTX, None).decode()
    assert ".target sm_90a," in text
    assert "\n\twgmma.fence.sync.aligned;" in text
    assert post_build(b".entry add_splits", None) == b".entry add_splits"
    with pytest.raises(ValueError, match="names no target sm_90"):
        post_build(PTX.replace(b"sm_90,", b"sm_100,"), None)
    with pytest.raises(ValueError, match="lost the instructions"):
        post_build(PTX.replace(b"//@", b"// "), None)


@pytest.mark.parametrize("out", ["float16", "bfloat16"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
@pytest.mark.parametrize("text", ["of one number", "of several"])
def test_short_activations(nvidia, text, activation, out):
    """Of every 16-bit number, within a unit in the last place of the exact value; NaN stays NaN.

    Below 2^-111, and of float16 below its normal numbers, an error of what is there is allowed.
    """
    kind = aligned(plain_kind(out, "NN"), 64)
    kind = replace(kind, activation=activation, out=replace(kind.out, dtype=out))
    problem = make_case(kind, 64, 64, 64, "exact", np.random.default_rng(0)).problem
    if text == "of one number":
        plan = make_plan(problem, nvidia.profile, test_configs("nv_mma")[0])
        function = render_launch(plan, plan.launches[0])
        function = function[function.index("static inline float activated") :]
        function = function[: function.index("\n}\n") + 3]
    else:
        part = templates._lookup().get_template("parts/nv_activation.mako")
        steps = part.get_def("activate_each").render(names=["other", "x"], kind=problem.kind)
        function = "static inline float activated(float x) { float other = 2.0f;\n"
        function += steps + "return x; }"
    program = nvidia.compile(
        function + """
        __kernel void each(__global const float *x, __global float *y) {
            y[get_global_id(0)] = activated(x[get_global_id(0)]);
        }""", ("-cl-std=CL1.2",))  # fmt: skip
    x = np.arange(2**16, dtype=np.uint16)
    x = x.view(np.float16).astype("f4") if out == "float16" else (x.astype("u4") << 16).view("f4")
    queue, kernel = nvidia.queue(), nvidia.kernel(program, "each", [None, None])
    found, got = nvidia.allocate(x.nbytes), np.empty_like(x)
    wait([nvidia.launch(queue, kernel, [nvidia.upload(x), found], x.shape, (64,), [])])
    nvidia.read(queue, found, got)
    with np.errstate(all="ignore"):
        exact = apply_activation(x.astype(np.float64), activation)
        digits, least = (10, -14) if out == "float16" else (7, -111)
        unit = 2.0 ** (np.maximum(np.frexp(exact)[1] - 1, least) - digits)
        off = np.abs(got - exact) / unit
    special = ~np.isfinite(exact)
    assert np.array_equal(got[special], exact[special].astype(np.float32), equal_nan=True)
    # rounding to 16 bits adds half a unit
    assert off[~special].max() <= 0.5, x[~special][off[~special].argmax()]


def test_limit_of_registers():
    post_build = load_variant("nv_async").header["post_build"]
    assert ".maxnreg 128\n.reqntid 128, 1, 1\n{" in post_build(PTX, None).decode()
    assert post_build(PTX.replace(b"//@maxnreg", b"//"), None) == PTX.replace(b"//@maxnreg", b"//")
    with pytest.raises(ValueError, match="no line .reqntid"):
        post_build(PTX.replace(b".reqntid", b".maxntid"), None)


def test_every_proposal_is_valid():
    """What the heuristic offers can be planned, with each probe found and with none."""
    path = Path(__file__).with_name("profiles") / "nvidia-h200.json"
    plain = DeviceProfile.from_json(path.read_text())
    hopper = {"compute_capability": 90, "wgmma": 0}
    served = set()
    for found in ({}, {"compute_capability": 80}, hopper, {**hopper, **ALL_FOUND}):
        profile = plain.with_probes(**found)
        for dtype in ("float32", "float64", "float16", "int8"):
            kind = aligned(plain_kind(dtype, "NT"), 64)
            for size in ((1, 1, 1), (300, 40, 2000), (1500, 1500, 700)):
                rng = np.random.default_rng(0)
                problem = make_case(kind, *size, "exact", rng, with_result=False).problem
                choices = choose(problem, profile)
                make_plan(problem, profile, choices[0].config)
                served.add((len(found), choices[0].config.variant))
    assert (3, "nv_wgmma") in served
    assert not any(x.startswith("nv_") for count, x in served if count == 0)
    assert not any(x in ("nv_wgmma", "nv_mma_f64") for count, x in served if count == 1)

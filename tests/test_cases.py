"""Cases made to find faults do find them."""

import itertools

import numpy as np
import pytest
from kinds import plain_kind

from clmatmul import reference
from clmatmul.cases import DATA, edge_sizes, make_case


def right(case):
    """The output's memory as a faultless kernel would leave it."""
    after = case.before.copy()
    fill(case, after, reference.round_to(case.value, case.problem.out.dtype))
    return after


def fill(case, memory, values):
    out = case.memory["out"]
    elements = (*out.operand.batch_strides, out.operand.row_stride, out.operand.col_stride)
    strides = [s * memory.itemsize for s in elements]
    view = np.lib.stride_tricks.as_strided(memory[out.offset :], out.view.shape, strides)
    view[...] = values
    return view


KINDS = {
    "plain": plain_kind(), "transposed": plain_kind("float32", "TT", "T"),
    "strided": plain_kind("float64", "SS", "S"), "integer": plain_kind("int8"),
    "bool": plain_kind("bool"), "complex": plain_kind("complex64", batch_rank=2),
    "everything": plain_kind(
        "float32", alpha="general", beta="general", c="float32", bias="float32",
        residual="float16", row_scale="float32", col_scale="float32", batch_rank=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", KINDS)
def test_a_right_result_has_no_fault(name, data, rng):
    if data == "special" and name in ("integer", "bool"):
        with pytest.raises(ValueError, match="no special values"):
            make_case(KINDS[name], 5, 6, 7, data, rng)
        return
    case = make_case(KINDS[name], 5, 6, 7, data, rng)
    assert case.fault(right(case)) is None


@pytest.mark.parametrize("name", KINDS)
def test_an_untouched_output_is_a_fault(name, rng):
    case = make_case(KINDS[name], 5, 6, 7, "exact", rng)
    assert "elements are wrong" in case.fault(case.before.copy())


@pytest.mark.parametrize("name", KINDS)
def test_one_wrong_element_is_a_fault(name, rng):
    case = make_case(KINDS[name], 5, 6, 7, "exact", rng)
    after = right(case)
    view = fill(case, after, reference.round_to(case.value, case.problem.out.dtype))
    view[..., 2, 3] = view[..., 2, 3] == 0
    assert "elements are wrong; at (" in case.fault(after)


@pytest.mark.parametrize("where", ["before", "gap", "after"])
@pytest.mark.parametrize("name", ["strided", "transposed", "integer"])
def test_a_write_outside_is_a_fault(name, where, rng):
    case = make_case(KINDS[name], 5, 6, 7, "exact", rng)
    after = right(case)
    outside = np.ones(after.shape, bool)
    fill(case, outside, False)
    places = np.flatnonzero(outside)
    inside = places > case.memory["out"].offset
    place = {"before": places[0], "gap": places[inside][0], "after": places[-1]}[where]
    after[place] = 1
    assert f"wrote 1 elements outside the output, first at {place}" == case.fault(after)


@pytest.mark.parametrize("axis", [0, 1])
def test_one_hot_data_prove_addresses(axis, rng):
    """Exchanged rows or columns are seen, also where values could agree by chance."""
    case = make_case(KINDS["plain"], 8, 8, 8, "ids_a" if axis else "ids_b", rng)
    after = case.before.copy()
    fill(case, after, np.roll(reference.round_to(case.value, "float32"), 1, axis))
    assert "are wrong" in case.fault(after)


def test_a_leaking_nan_is_a_fault(rng):
    case = make_case(KINDS["plain"], 6, 6, 6, "special", rng)
    expected = reference.round_to(case.value, "float32")
    clean = np.argwhere(np.isfinite(expected))
    after = case.before.copy()
    leaked = expected.copy()
    leaked[tuple(clean[0])] = np.nan
    fill(case, after, leaked)
    assert "reached another row or column" in case.fault(after)
    fill(case, after, np.where(np.isfinite(expected), expected, 0))
    assert "did not reach" in case.fault(after)


def test_bool_bytes_must_be_zero_or_one(rng):
    case = make_case(KINDS["bool"], 5, 6, 7, "exact", rng)
    after = right(case)
    after.view(np.uint8)[after.view(np.uint8) == 1] = 2
    assert "are wrong" in case.fault(after)


def test_unread_memory_is_poisoned(rng):
    case = make_case(KINDS["strided"], 5, 6, 7, "exact", rng)
    for name in ("a", "b", "out"):
        cells = case.memory[name].cells
        assert np.isnan(cells).any()
    assert np.isnan(case.before).all()
    for name in ("a", "b"):  # inputs end with their last element: a reader beyond is outside
        memory = case.memory[name]
        assert not np.isnan(memory.cells[-1])


def test_cases_repeat():
    one, other = (make_case(KINDS["everything"], 5, 6, 7, "random", np.random.default_rng(3))
                  for _ in range(2))  # fmt: skip
    for name, memory in one.memory.items():
        assert memory.cells.tobytes() == other.memory[name].cells.tobytes()


@pytest.mark.parametrize("name", KINDS)
def test_the_case_is_of_its_kind(name, rng):
    assert make_case(KINDS[name], 5, 6, 7, "exact", rng).problem.kind == KINDS[name]


def test_edge_sizes():
    assert edge_sizes(8) == [1, 2, 3, 7, 8, 9, 17]
    assert edge_sizes(4, 16, limit=16) == [1, 2, 3, 4, 5, 9, 15, 16]


def test_no_array_can_stand_in_for_another(rng):
    """Strides differ wherever they matter; columns of added arrays are near, apart or repeated."""
    parts = dict.fromkeys(("bias", "residual", "row_scale", "col_scale"), "float32")
    kind = plain_kind("float32", "TT", "T", c="float32", alpha="general", beta="general",
                      batch_rank=2, aux="float32", **parts)  # fmt: skip
    names, steps, same = ("a", "b", "out", "c", "residual", "aux"), set(), []
    for size in ((9, 9, 9), (25, 31, 129), (8, 9, 4)):
        memory = make_case(kind, *size, "exact", rng, with_result=False).memory
        strides = {x: memory[x].operand for x in names}
        for reach in (lambda o: max(o.row_stride, o.col_stride), lambda o: o.batch_strides[0]):
            pairs = itertools.combinations(names, 2)
            same.append({(x, y) for x, y in pairs if reach(strides[x]) == reach(strides[y])})
        steps |= {memory[x].operand.col_stride for x in ("c", "residual", "col_scale")}
    assert not set.intersection(*same[::2]) and not set.intersection(*same[1::2])
    assert {1, 2} <= steps <= {0, 1, 2}


@pytest.mark.parametrize("size", [(25, 17, 1), (23, 31, 130)])
@pytest.mark.parametrize("data", ["exact", "ids_a", "ids_b"])
def test_logical_products_are_both_true_and_false(rng, data, size):
    """An "or" of many terms is true whatever one of them is: such data would prove nothing."""
    case = make_case(plain_kind("bool"), *size, data, rng)
    assert 0.1 < case.value.astype(bool).mean() < 0.9

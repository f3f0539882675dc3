"""einsum and multi_dot: products of several arrays, in a good order, two at a time.

Each step is one product on the device (`products.pair`). A sum over a dimension that only one
array has is a product with ones, a diagonal is a view, so that nothing leaves the device.
"""

import importlib.util
from dataclasses import dataclass

import numpy as np

from clmatmul import views
from clmatmul.containers import carried, takes_containers
from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.operands import single_output
from clmatmul.products import Place, common_dtype, dot, host_only, pair, read_operand, scalar

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of their codes


@takes_containers
def einsum(*operands, out=None, dtype=None, order="K", casting="safe", optimize=True, device=None,
           queue=None, wait_for=None):  # fmt: skip
    """Einstein's summation convention, as numpy.einsum: einsum("ij,jk->ik", a, b).

    The arrays are contracted two at a time, in the order that opt_einsum finds if it is
    installed, else numpy.einsum_path; optimize=False: from left to right. optimize may also be
    what numpy.einsum takes there. All is computed in the operands' common dtype, or `dtype`.
    A single array gives a view if nothing is summed. ArgumentError, ShapeError, DtypeError.
    """
    if order not in tuple("KACFkacf"):
        raise ArgumentError(f"order={order!r} is not allowed; allowed are 'K', 'A', 'C' and 'F'")
    equation, arrays = _read(operands)
    out = single_output(out)
    if host_only(*arrays):
        return np.einsum(
            equation.text, *arrays, out=out, dtype=dtype, order=order, casting=casting,
            optimize=optimize,
        )  # fmt: skip
    arrays, common = _cast(arrays, dtype, casting)
    place = Place(device, queue, wait_for)
    terms = [_Term(x, labels) for x, labels in zip(arrays, equation.inputs, strict=True)]
    for positions in _path(equation, arrays, optimize):
        chosen = [terms[i] for i in positions]
        terms = [x for i, x in enumerate(terms) if i not in positions]
        needed = set(equation.output).union(*(x.labels for x in terms))
        terms.append(_contracted(place, chosen, needed, equation.output, common))
    if len(terms) > 1:
        raise ArgumentError(f"optimize={optimize!r} leaves {len(terms)} terms of {equation.text}")
    (last,) = terms
    result = views.permuted(last.array, [last.labels.index(x) for x in equation.output])
    if out is not None:
        return place.store(result, out, casting)
    if result.dtype != common or order not in ("K", "k"):
        whole = order in ("A", "a") and all(x.flags.f_contiguous for x in arrays)
        result = place.copied(result, common, "F" if whole or order in ("F", "f") else "C")
    return scalar(result)


def _cast(arrays, dtype, casting):
    """(arrays, dtype to compute in); with casting='unsafe' host arrays are converted here."""
    common = common_dtype(*arrays)
    wanted = common if dtype is None else np.dtype(dtype)
    if not np.can_cast(common, wanted, casting):
        raise DtypeError(f"cannot cast {common} to {wanted} with casting={casting!r}")
    if casting == "unsafe" and wanted != common:
        arrays = [x.astype(wanted) if isinstance(x, np.ndarray) else x for x in arrays]
    return arrays, wanted


@takes_containers
def multi_dot(arrays, *, out=None, device=None, queue=None, wait_for=None):
    """The product of two or more matrices in the order that takes the fewest multiplications.

    As numpy.linalg.multi_dot: the first and the last may be vectors. out: as for `dot`.
    """
    kinds = [type(x) for x in arrays if carried(x) is not x]
    arrays = [read_operand(carried(x), f"array {i}") for i, x in enumerate(arrays)]
    if len(arrays) < 2:
        raise ShapeError(f"multi_dot of {len(arrays)} arrays; it takes at least two")
    for i, x in enumerate(arrays):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(arrays) - 1)):
            raise ShapeError(
                f"array {i} of multi_dot has shape {tuple(x.shape)}; all must be matrices, the "
                "first and the last may be vectors"
            )
    for i, (x, y) in enumerate(zip(arrays, arrays[1:], strict=False)):
        if x.shape[-1] != y.shape[0]:
            raise ShapeError(
                f"arrays {i} and {i + 1} of multi_dot have shapes {tuple(x.shape)} and "
                f"{tuple(y.shape)}, which do not fit together"
            )
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0], *(x.shape[-1] for x in arrays[:-1])]
    sizes.append(1 if arrays[-1].ndim == 1 else arrays[-1].shape[1])
    splits = best_splits(sizes)

    def product(first, last, out=None):
        if first == last:
            return arrays[first]
        split = splits[first][last]
        left, right = product(first, split), product(split + 1, last)
        return dot(left, right, out, device=device, queue=queue, wait_for=wait_for)

    result = product(0, len(arrays) - 1, out)
    return kinds[0](result) if kinds and out is None else result


def best_splits(sizes):
    """splits[i][j]: after which matrix to split a product of matrices i to j at the least cost.

    Matrix i is (sizes[i], sizes[i + 1]). Dynamic programming over spans; Cormen et al., chapter
    "Dynamic programming".
    """
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    splits = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i][j], splits[i][j] = min(
                (cost[i][s] + cost[s + 1][j] + sizes[i] * sizes[s + 1] * sizes[j + 1], s)
                for s in range(i, j)
            )
    return splits


# ---- reading --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Equation:
    """An einsum with every label written out: one letter a dimension, also for the ellipsis."""

    inputs: tuple
    output: str
    sizes: dict

    @property
    def text(self):
        return ",".join(self.inputs) + "->" + self.output


@dataclass(frozen=True)
class _Term:
    array: object
    labels: str


def _read(operands):
    """(_Equation, arrays) of einsum's arguments in either form."""
    if not operands:
        raise ArgumentError("einsum needs subscripts and operands")
    if isinstance(operands[0], str):
        text, given = operands[0].replace(" ", ""), operands[1:]
    else:
        text, given = _from_lists(operands)
    arrays = [read_operand(x, f"operand {i}") for i, x in enumerate(given)]
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(arrays):
        raise ArgumentError(f"{text!r} has {len(inputs)} terms, and there are {len(arrays)} arrays")
    if set(text.replace("...", "")) - set(_LETTERS + ",->") or "..." in output.replace(
        "...", "", 1
    ):
        raise ArgumentError(f"einsum subscripts {text!r} have characters that are no labels")
    free = [x for x in _LETTERS if x not in text]
    longest = max(
        (x.ndim - len(term) + 3 for x, term in zip(arrays, inputs, strict=True) if "..." in term),
        default=0,
    )
    if longest < 0 or longest > len(free):
        raise ShapeError(f"the ellipsis in {text!r} does not fit the operands' dimensions")
    ellipsis = "".join(free[:longest])
    written = []
    for x, term in zip(arrays, inputs, strict=True):
        if "..." in term:
            count = x.ndim - len(term) + 3
            if count < 0:
                raise ShapeError(f"term {term!r} has more labels than shape {tuple(x.shape)}")
            term = term.replace("...", ellipsis[longest - count :], 1)
        if len(term) != x.ndim:
            raise ShapeError(f"term {term!r} does not fit an array of shape {tuple(x.shape)}")
        written.append(term)
    if arrow:
        output = output.replace("...", ellipsis)
    else:
        every = "".join(written)
        single = sorted(x for x in set(every) if every.count(x) == 1 and x not in ellipsis)
        output = ellipsis + "".join(single)
    if len(set(output)) != len(output) or set(output) - set("".join(written)):
        raise ArgumentError(
            f"the output {output!r} of {text!r} must name labels of the inputs, each once"
        )
    return _Equation(tuple(written), output, _sizes(written, arrays, text)), arrays


def _from_lists(operands):
    """Subscripts as text from einsum(a, [0, 1], b, [1, 2], [0, 2])."""

    count = len(operands) // 2
    lists = [*operands[1 : 2 * count : 2], *operands[2 * count :]]
    for labels in lists:
        if not isinstance(labels, (list, tuple, range, np.ndarray)):
            raise DtypeError(f"einsum needs a string, or arrays each with its labels: {labels!r}")
        wrong = [x for x in labels if x is not Ellipsis and not 0 <= x < len(_LETTERS)]
        if wrong:
            raise ArgumentError(f"einsum label {wrong[0]!r} is not in 0 … {len(_LETTERS) - 1}")
    terms = ["".join("..." if x is Ellipsis else _LETTERS[x] for x in labels) for labels in lists]
    text = ",".join(terms[:count])
    if len(terms) > count:
        text += "->" + terms[-1]
    return text, operands[0 : 2 * count : 2]


def _sizes(terms, arrays, text):
    sizes = {}
    for term, x in zip(terms, arrays, strict=True):
        own = {}
        for label, size in zip(term, x.shape, strict=True):
            if own.setdefault(label, size) != size:
                raise ShapeError(
                    f"term {term!r} collapses label {label!r}, but shape {tuple(x.shape)} has "
                    f"{own[label]} and {size} elements there"
                )
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"{text!r}: label {label!r} stands for {known} and for {size} elements"
                )
    return sizes


# ---- contracting ----------------------------------------------------------------------------


def _path(equation, arrays, optimize):
    """Which terms to contract, step by step, as positions in the list of those that are left."""
    count = len(arrays)
    if count <= 2 or optimize is False:
        return [(0,)] if count == 1 else [(0, 1)] + [(0, count - i) for i in range(2, count)]
    if not isinstance(optimize, (bool, str)):
        return [tuple(x) for x in optimize if not isinstance(x, str)]
    shapes = [tuple(x.shape) for x in arrays]
    method = "auto" if optimize is True else optimize
    if importlib.util.find_spec("opt_einsum"):
        import opt_einsum

        path, _ = opt_einsum.contract_path(equation.text, *shapes, shapes=True, optimize=method)
    else:
        stand_ins = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
        method = method if isinstance(optimize, str) and method != "auto" else "greedy"
        path = np.einsum_path(equation.text, *stand_ins, optimize=method)[0][1:]
    return [tuple(x) for x in path]


def _contracted(place, chosen, needed, output, dtype):
    """One term in place of those chosen, with the labels in `needed` left.

    The last one has its dimensions in the output's order, and is written that way.
    """
    term, *others = chosen
    for i, other in enumerate(others):
        rest = needed.union(*(x.labels for x in others[i + 1 :]))
        term = _simplified(place, term, rest | set(other.labels), dtype)
        other = _simplified(place, other, rest | set(term.labels), dtype)
        labels = [x for x in dict.fromkeys(term.labels + other.labels) if x in rest]
        if set(labels) == set(output):
            labels = list(output)
        array = pair(place, term.array, term.labels, other.array, other.labels, labels, dtype)
        term = _Term(array, "".join(labels))
    return _simplified(place, term, needed, dtype)


def _simplified(place, term, needed, dtype):
    """The term with each label once (diagonals), and only with labels that others need (sums)."""
    array, labels = term.array, term.labels
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            array = views.diagonal(array, first, second)
            labels = "".join(x for i, x in enumerate(labels) if i not in (first, second)) + label
    lonely = [x for x in labels if x not in needed]
    if lonely:
        # A sum is a product with ones: of one element, repeated by strides of 0.
        kept = [x for x in labels if x not in lonely]
        ones = np.ones((1,) * len(lonely), dtype)
        array = pair(place, array, labels, ones, lonely, kept, dtype)
        labels = "".join(kept)
    return _Term(array, labels)

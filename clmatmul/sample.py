"""Whether a product of full size is right, told from some of its rows and columns.

All of a result is judged where float64 can afford it, else its first and last lines and some
between. Around the output lie guard zones, and in it poison: both are looked at in full.
"""

from dataclasses import dataclass

import numpy as np

from clmatmul import cases, reference
from clmatmul.element_types import COMPUTE_TYPES

# Multiply-adds that the oracle spends on a sample: a BLAS serves float64 alone.
_SAMPLE_TERMS = {"float64": 4e8, "complex128": 1e8}
_SAMPLE_TERMS_SLOW = 3e7
_LEAST_LINES = 3


@dataclass(frozen=True)
class Verdict:
    """What a check of one case found: `fault` is None if the result was right."""

    fault: str | None
    error_ratio: float | None


class Sample:
    """Rows and columns of a case's result (all of it, if small), as the oracle has them."""

    def __init__(self, case, rng):
        self._case = case
        p = case.problem
        wide = reference.wide_type(p.compute)
        terms = _SAMPLE_TERMS.get(wide.name if wide else "", _SAMPLE_TERMS_SLOW)
        out = case.memory["out"]
        outside = np.ones(out.cells.shape, bool)
        cases.like(outside, out)[...] = False
        self._outside = np.flatnonzero(outside)
        self._floating = COMPUTE_TYPES[p.compute].kind in ("real", "complex")
        count = p.batch_count
        rows = _lines(p.m, terms / max(count * p.n * p.k, 1), rng)
        self._parts = [self._part(rows, slice(None))]
        if len(rows) < p.m:
            cols = _lines(p.n, terms / max(count * p.m * p.k, 1), rng)
            self._parts.append(self._part(slice(None), cols))

    def _part(self, rows, cols):
        """(index, value, allowed error or None) of the result's lines."""
        p, memory = self._case.problem, self._case.memory
        index = (..., rows, slice(None)) if isinstance(cols, slice) else (..., slice(None), cols)
        a, b = memory["a"].view[..., rows, :], memory["b"].view[..., :, cols]
        a = a.conj() if p.a.conjugate else a
        b = b.conj() if p.b.conjugate else b
        scalars = self._case.scalars
        views = {name: memory[name].view[index] for name, _ in p.epilogue.operands()}
        epilogue = cases.fused_values(p.kind, views, scalars)
        fused = dict(
            alpha={"zero": 0, "one": 1}.get(p.alpha, scalars["alpha"]),
            beta={"zero": 0, "one": 1}.get(p.beta, scalars["beta"]),
            c=memory["c"].view[index] if "c" in memory else None,
            epilogue=epilogue,
            compute=p.compute,
            out=p.out.dtype,
        )
        value = reference.evaluate(a, b, result=p.result, **fused)
        if not self._floating:
            return index, value, None
        return index, value, reference.allowed_error(a, b, value, **fused)

    def judge(self, after):
        """The Verdict on the output's memory after a run: guards, poison, sampled lines."""
        out = self._case.memory["out"]
        changed = _bytes_of(after, self._outside) != _bytes_of(self._case.before, self._outside)
        if changed.any():
            at = self._outside[np.argwhere(changed)[0][0]]
            return Verdict(f"wrote outside the output, at element {at} of its memory", None)
        return self.judge_result(cases.like(after, out))

    def judge_result(self, result):
        """The Verdict on a result, an array of shape (batch…, m, n): poison, sampled lines."""
        if self._floating and np.isnan(result).any():
            return Verdict("left elements of the output unwritten, or wrote NaN", None)
        worst = 0.0
        for index, value, allowed in self._parts:
            if allowed is None:
                wrong = result[index] != reference.round_to(value, result.dtype.name)
                if wrong.any():
                    return Verdict(f"{int(wrong.sum())} of {wrong.size} elements are wrong", None)
                continue
            worst = max(worst, reference.error_ratio(result[index], value, allowed))
        if not worst <= 1:
            return Verdict(f"error is {worst:.3g} times what is allowed", worst)
        return Verdict(None, worst)


def _lines(extent, affordable, rng):
    """Which rows (or columns) to check: all, or the first, the last and some between."""
    count = min(max(int(affordable), _LEAST_LINES), extent)
    if count == extent:
        return np.arange(extent)
    between = rng.choice(np.arange(1, extent - 1), count - 2, replace=False)
    return np.sort(np.concatenate(([0, extent - 1], between)))


def _bytes_of(cells, index):
    return cells.view(np.uint8).reshape(-1, cells.itemsize)[index]

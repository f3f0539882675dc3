"""A pytest plugin: NumPy's products are clmatmul's while NumPy's own tests run.

Used by test_numpy_suite in a process of its own: `python -m pytest -p tests.numpy_patched …`.
What clmatmul itself asks of NumPy (for longdouble and object arrays) stays NumPy's.
"""

import functools
import threading

import numpy as np
from numpy._core import multiarray

import clmatmul

NAMES = ("dot", "vdot", "tensordot", "einsum", "matmul", "vecdot", "matvec", "vecmat")
_inside = threading.local()
calls = dict.fromkeys((*NAMES, "multi_dot"), 0)


class Patched:
    """A callable in a NumPy function's place; no method when it is a class's attribute."""

    def __init__(self, name, original, ours):
        functools.update_wrapper(self, original)
        self.name, self.original, self.ours = name, original, ours

    def __call__(self, *args, **keywords):
        if getattr(_inside, "yes", False):
            return self.original(*args, **keywords)
        _inside.yes = True
        calls[self.name] += 1
        try:
            return self.ours(*args, **keywords)
        finally:
            _inside.yes = False


for _name in NAMES:
    if hasattr(np, _name):  # matvec and vecmat came with NumPy 2.2
        _replaced = Patched(_name, getattr(np, _name), getattr(clmatmul, _name))
        setattr(np, _name, _replaced)
        if hasattr(multiarray, _name):
            setattr(multiarray, _name, _replaced)
np.linalg.multi_dot = Patched("multi_dot", np.linalg.multi_dot, clmatmul.multi_dot)


def pytest_terminal_summary(terminalreporter):
    used = ", ".join(f"{name} {count}" for name, count in calls.items() if count)
    terminalreporter.write_line(f"calls of clmatmul: {used}")

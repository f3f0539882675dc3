"""NumPy's own tests of its products, run against this package.

`TestMatmul` takes the function through a class attribute. `TestMatmulOperator` and
`TestMatmulInplace` run through `Array`. The others call NumPy by name: they run in a process of
their own in which NumPy's products are ours (numpy_patched.py). What differs is in DIFFERENCES,
each with its reason, and must go on differing: a test that passes there has to be taken out.
"""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import clmatmul

test_multiarray = pytest.importorskip("numpy._core.tests.test_multiarray")

# NumPy's own tests that fail here, by what they are about.
DIFFERENCES = {
    "test_vecdot_subclass": "results are plain ndarrays: subclasses of ndarray are not kept",
    "test_vecdot_object_no_conjugate": "object arrays go through numpy.matmul, whose errors differ",
    "test_vecdot_object_breaks_outer_loop_on_error": "object arrays go through numpy.matmul",
    "test_matvec": "vecdot, matvec and vecmat take no axes=; matmul does",
    "test_einsum_0d_out": "NumPy writes float64 into an int64 out here; we keep casting='safe'",
    "test_output_order": "results of several arrays are C-contiguous, also where NumPy's are not",
    "test_path_type_input_invalid": "a path that leaves two terms is a ValueError, no RuntimeError",
    "test_einsum_chunking_precision": "sums are not pairwise: a million terms lose four digits",
}
# Not run: one vector of more bytes than a device allocates at once.
LEFT_OUT = "test_huge_vectordot"
_NUMPY_TESTS = Path(np.__file__).parent


class TestMatmul(test_multiarray.TestMatmul):
    matmul = staticmethod(clmatmul.matmul)


def test_all_of_numpys_matmul_tests_are_there(request, capsys):
    """54 in NumPy 2.4, each of them above."""
    mine = [x for x in request.session.items if "test_numpy_suite.py::TestMatmul::" in x.nodeid]
    if len(request.session.items) == 1 or not mine:
        pytest.skip("TestMatmul is not part of this run")
    with capsys.disabled():
        print(f"\nNumPy's TestMatmul, with clmatmul.matmul: {len(mine)} tests")
    if np.__version__.startswith("2.4."):
        assert len(mine) == 54


# ---- through the array type -----------------------------------------------------------------


def through_array(x):
    """x on the device, if a device can hold its dtype (not longdouble, not object)."""
    if isinstance(x, np.ndarray) and x.dtype.char not in "gGO":
        return clmatmul.Array.from_host(x)
    return x


class TestMatmulOperator(test_multiarray.TestMatmulOperator):
    @staticmethod
    def matmul(a, b):
        result = through_array(a) @ through_array(b)
        return result.to_host()[()] if isinstance(result, clmatmul.Array) else result


class _Start(np.ndarray):
    """What `arange` gives to NumPy's tests: it becomes an Array where they choose its dtype."""

    def astype(self, dtype):
        return clmatmul.Array.from_host(np.asarray(self).astype(dtype))


class TestMatmulInplace:
    """NumPy's test functions, run with an `np` that makes Arrays."""

    numpys = test_multiarray.TestMatmulInplace
    np_of_arrays = types.SimpleNamespace(
        arange=lambda n: np.arange(n).view(_Start),
        ones=lambda shape, dtype: clmatmul.Array.from_host(np.ones(shape, dtype)),
        prod=np.prod, float64=np.float64, testing=np.testing,
    )  # fmt: skip

    def run(self, test, *arguments):
        function = types.FunctionType(
            test.__code__, {**test.__globals__, "np": self.np_of_arrays}, test.__name__
        )
        function(self, *arguments)

    # Each pair is a program of its own: those of mixed dtypes take minutes to build.
    pairs = [
        pytest.param(
            x, id=name,
            marks=() if name[0] == name[-1] or name in ("d-f", "D-e", "l-B") else pytest.mark.slow,
        )
        for name, x in numpys.DTYPES.items() if not set(name) & set("gGO")
    ]  # fmt: skip

    @pytest.mark.parametrize("dtypes", pairs)
    def test_basic(self, dtypes):
        self.run(self.numpys.test_basic, *dtypes)

    @pytest.mark.parametrize("dtype", "gGO")
    def test_dtypes_that_no_device_has(self, dtype):
        with pytest.raises(TypeError, match="has no OpenCL kernel"):
            clmatmul.Array.from_host(np.ones((2, 2), dtype))

    @pytest.mark.parametrize("shapes", numpys.SHAPES.values(), ids=numpys.SHAPES)
    def test_shapes(self, shapes):
        self.run(self.numpys.test_shapes, *shapes)


# ---- in a process of their own --------------------------------------------------------------


def run_numpys(files, select, capsys):
    """Run NumPy's tests with its products replaced; what fails must be what is known to."""
    root = Path(clmatmul.__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.numpy_patched", "-p",
               "no:warnings", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", os.devnull,
               "--rootdir", str(_NUMPY_TESTS), "--tb=line", "-rf",
               *(str(_NUMPY_TESTS / x) for x in files), "-k", select]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    failed = set(re.findall(r"^FAILED \S*::(\w+)", done.stdout, re.MULTILINE))
    summary = done.stdout.strip().splitlines()[-1]
    used = re.findall("calls of clmatmul: .*", done.stdout)
    with capsys.disabled():
        print(f"\nNumPy's {', '.join(files)}: {summary}; {''.join(used)}")
        for name in sorted(failed & set(DIFFERENCES)):
            print(f"  {name}: {DIFFERENCES[name]}")
    assert used, done.stdout[-4000:] + done.stderr[-2000:]
    assert failed <= set(DIFFERENCES), done.stdout[-6000:]
    return int(re.search(r"(\d+) passed", summary)[1]), failed


def test_dot_vdot_tensordot_multi_dot_vecdot(capsys):
    select = (
        "(TestDot or TestVdot or TestTensordot or test_tensordot or TestMultiDot or test_vecdot "
        f"or test_matvec or test_vecmat) and not {LEFT_OUT}"
    )
    files = [f"_core/tests/test_{x}.py" for x in ("multiarray", "numeric", "ufunc")]
    passed, failed = run_numpys([*files, "linalg/tests/test_linalg.py"], select, capsys)
    if np.__version__.startswith("2.4."):
        expected = {x for x in DIFFERENCES if "vecdot" in x or "matvec" in x}
        assert failed == expected and passed == 55


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_einsum(capsys):
    passed, failed = run_numpys(["_core/tests/test_einsum.py"], "test_", capsys)
    if np.__version__.startswith("2.4."):
        expected = {x for x in DIFFERENCES if re.search("einsum|path|order", x)}
        assert failed == expected and passed == 74

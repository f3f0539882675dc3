"""What the tests of matrix files share: a folder of their own, and ways to compare."""

import io
import tracemalloc

import numpy as np
import pytest

from clmatmul.errors import MatrixFileError
from clmatmul.matrix_files import read_matrix

BANNER = "%%MatrixMarket matrix "
LESSON = np.array([[1, 4], [2, 5], [3, 6]])
NUMBER_DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "F", "D"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder, so that messages have short names in them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(found, expected):
    """Equal in shape, dtype and elements, nan and signed zeros included (nan has no sign)."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    for part in ("real", "imag"):
        signs = [
            np.signbit(np.nan_to_num(getattr(array, part).astype(float)))
            for array in (found, expected)
        ]
        np.testing.assert_array_equal(*signs)
    return True


def refusal(*args, **kwargs):
    """The message with which read_matrix refuses: one line of printable text."""
    with pytest.raises(MatrixFileError) as caught:
        read_matrix(*args, **kwargs)
    return one_line(caught)


def one_line(caught):
    message = str(caught.value)
    assert message.isprintable() and message
    return message


def peak_bytes(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def npy(header, data=b"", version=1):
    text = header if isinstance(header, bytes) else header.encode()
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def header(shape, descr="'<f8'", order=False):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


def saved(matrix):
    stream = io.BytesIO()
    np.save(stream, matrix)
    return stream.getvalue()

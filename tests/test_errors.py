"""Errors: what a NumPy user would catch, what they carry, and that they travel."""

import pickle

import pytest

from clmatmul import errors
from clmatmul.config import TileConfig

CONFIG = TileConfig.of("tiled", tile_m=8)
BUILT_IN = {
    errors.ShapeError: ValueError,
    errors.DtypeError: TypeError,
    errors.ArgumentError: ValueError,
    errors.DeviceError: RuntimeError,
    errors.NoDeviceError: errors.DeviceError,
    errors.UnsupportedError: NotImplementedError,
    errors.ConfigError: ValueError,
    errors.BuildError: RuntimeError,
    errors.LaunchError: RuntimeError,
    errors.VerificationError: ArithmeticError,
    errors.DatabaseError: RuntimeError,
}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_kinds(kind):
    assert issubclass(kind, BUILT_IN[kind]) and issubclass(kind, errors.ClmatmulError)


@pytest.mark.parametrize("error", [
    errors.ShapeError("no"),
    errors.ConfigError(CONFIG, ["a <= b: 2 > 1", "c"]),
    errors.TemplateError("naive.cl.mako", 7, "NameError: x"),
    errors.BuildError(CONFIG, "line 2: no", "int a;\nint b"),
])  # fmt: skip
def test_errors_travel_between_processes(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error) and str(other) == str(error)
    assert vars(other) == vars(error)


def test_config_error_lists_every_reason():
    error = errors.ConfigError(CONFIG, ["a <= b: 2 > 1", "c"])
    assert error.reasons == ("a <= b: 2 > 1", "c")
    assert str(error) == "tiled(tile_m=8) cannot be used here: a <= b: 2 > 1; c"


def test_build_error_numbers_the_source():
    error = errors.BuildError(CONFIG, " x" * 4000, "int a;\nint b;")
    assert error.numbered_source == "   1  int a;\n   2  int b;"
    assert len(str(error)) < 4200 and str(error).endswith("…")
    assert "gave no log" in str(errors.BuildError(CONFIG, " ", ""))


def test_template_error_says_where():
    assert str(errors.TemplateError("a.mako", 7, "no")) == "a.mako, line 7: no"
    assert str(errors.TemplateError("a.mako", 0, "no")) == "a.mako: no"

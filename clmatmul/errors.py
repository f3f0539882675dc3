"""Every error that clmatmul raises, each carrying the values that explain it.

All derive from `ClmatmulError`; each also derives from the built-in error that a NumPy user
would expect to catch (`ValueError` for shapes, `TypeError` for dtypes, …).
"""


class ClmatmulError(Exception):
    """Base of all errors of this package."""


class ShapeError(ClmatmulError, ValueError):
    """Shapes that have no product; the message names the shapes and the rule."""


class DtypeError(ClmatmulError, TypeError):
    """A dtype, or a cast between dtypes, that is not allowed here."""


class OperationError(ClmatmulError, TypeError):
    """An operation that clmatmul.Array does not have; says what to do instead."""


class ArgumentError(ClmatmulError, ValueError):
    """A keyword with a value that is not allowed; the message lists what is."""


class DeviceError(ClmatmulError, RuntimeError):
    """Something about devices, queues or contexts is not as the call needs it."""


class NoDeviceError(DeviceError):
    """No OpenCL device fits; says what was sought, what was found and how to get one."""


class UnsupportedError(ClmatmulError, NotImplementedError):
    """The device, or this version, cannot do what was asked; says what can."""


class ConfigError(ClmatmulError, ValueError):
    """A configuration that must not run: `reasons` has every violated constraint."""

    def __init__(self, config, reasons):
        self.config = config
        self.reasons = tuple(reasons)
        super().__init__(f"{config} cannot be used here: " + "; ".join(self.reasons))

    def __reduce__(self):  # errors travel between processes
        return type(self), (self.config, self.reasons)


class TemplateError(ClmatmulError):
    """A kernel template that cannot be read or rendered: file, line, reason."""

    def __init__(self, file, line, reason):
        self.file = file
        self.line = line
        self.reason = reason
        where = f"{file}, line {line}" if line else f"{file}"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self):
        return type(self), (str(self.file), self.line, self.reason)


class BuildError(ClmatmulError, RuntimeError):
    """The device's compiler refused a program: `log`, numbered `source`, `config`."""

    def __init__(self, config, log, source):
        self.config = config
        self.log = log.strip()
        self.source = source
        shown = self.log if len(self.log) < 4000 else self.log[:4000] + " …"
        super().__init__(f"{config} does not build: {shown or 'the compiler gave no log'}")

    def __reduce__(self):
        return type(self), (self.config, self.log, self.source)

    @property
    def numbered_source(self):
        """The source with line numbers, as the log's positions count them."""
        lines = self.source.splitlines()
        return "\n".join(f"{i:4d}  {line}" for i, line in enumerate(lines, 1))


class LaunchError(ClmatmulError, RuntimeError):
    """A kernel could not be started: geometry, limits, the runtime's own word."""


class VerificationError(ClmatmulError, ArithmeticError):
    """A kernel returned a wrong result in a check against the reference."""


class MeasurementError(ClmatmulError, RuntimeError):
    """A time that cannot be true (zero, or above the device's peak), so not recorded."""


class DatabaseError(ClmatmulError, RuntimeError):
    """A tuning database that cannot be read or written: the path and the reason."""


class MatrixFileError(ClmatmulError, ValueError):
    """A matrix file or text that cannot be read or written; one line, with its place."""

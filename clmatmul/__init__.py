"""clmatmul: the matrix product on any OpenCL device.

>>> import numpy as np, clmatmul
>>> clmatmul.matmul(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
array([[1., 2.],
       [3., 4.]])
"""

import logging

from clmatmul import array_api
from clmatmul.api import MatMul, explain, gemm, matmul, scale
from clmatmul.array import Array
from clmatmul.config import TileConfig
from clmatmul.contraction import einsum, multi_dot
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import (
    ArgumentError,
    BuildError,
    ClmatmulError,
    ConfigError,
    DatabaseError,
    DeviceError,
    DtypeError,
    LaunchError,
    MatrixFileError,
    MeasurementError,
    NoDeviceError,
    OperationError,
    ShapeError,
    TemplateError,
    UnsupportedError,
    VerificationError,
)
from clmatmul.packing import pack
from clmatmul.precision import use_precision
from clmatmul.problem import Epilogue
from clmatmul.products import (
    dot,
    matrix_transpose,
    matvec,
    tensordot,
    transpose,
    vdot,
    vecdot,
    vecmat,
)
from clmatmul.selection import default_device, use_device
from clmatmul.selection import list_devices as devices
from clmatmul.self_check import selfcheck
from clmatmul.transfers import count_transfers

__version__ = "0.1.0"

logging.getLogger("clmatmul").addHandler(logging.NullHandler())

__all__ = [
    "ArgumentError", "Array", "BuildError", "ClmatmulError", "ConfigError", "DatabaseError",
    "DeviceError", "DeviceProfile", "DtypeError", "Epilogue", "LaunchError", "MatMul",
    "MatrixFileError", "MeasurementError", "NoDeviceError", "OperationError", "ShapeError",
    "TemplateError", "TileConfig", "UnsupportedError", "VerificationError", "array_api",
    "count_transfers", "default_device", "devices", "dot", "einsum", "explain", "gemm", "matmul",
    "matrix_transpose", "matvec", "multi_dot", "pack", "scale", "selfcheck", "tensordot",
    "transpose", "use_device", "use_precision", "vdot", "vecdot", "vecmat",
]  # fmt: skip

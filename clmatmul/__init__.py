"""clmatmul: the matrix product on any OpenCL device.

>>> import numpy as np, clmatmul
>>> clmatmul.matmul(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]))
array([[1., 2.],
       [3., 4.]])
"""

import logging

from clmatmul.api import MatMul, explain, gemm, matmul, scale
from clmatmul.config import TileConfig
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
    ShapeError,
    TemplateError,
    UnsupportedError,
    VerificationError,
)
from clmatmul.problem import Epilogue
from clmatmul.selection import default_device, use_device
from clmatmul.selection import list_devices as devices
from clmatmul.self_check import selfcheck

__version__ = "0.1.0"

logging.getLogger("clmatmul").addHandler(logging.NullHandler())

__all__ = [
    "ArgumentError", "BuildError", "ClmatmulError", "ConfigError", "DatabaseError", "DeviceError",
    "DeviceProfile", "DtypeError", "Epilogue", "LaunchError", "MatMul", "MatrixFileError",
    "MeasurementError", "NoDeviceError", "ShapeError", "TemplateError", "TileConfig",
    "UnsupportedError", "VerificationError", "default_device", "devices", "explain", "gemm",
    "matmul", "scale",
    "selfcheck", "use_device",
]  # fmt: skip

"""The public functions: read the arguments, walk the line, hand back the result.

NumPy arrays in, NumPy array out, on the default device. pyopencl arrays in, pyopencl array out,
asynchronously on their own queue.
"""

from dataclasses import replace

import numpy as np

from clmatmul.calls import prepare, recipe_of, repeat
from clmatmul.choose import check_device
from clmatmul.config import TileConfig
from clmatmul.containers import carried, takes_containers
from clmatmul.device_arrays import is_device_array
from clmatmul.emulated_calls import EmulatedCall
from clmatmul.errors import ArgumentError, DtypeError, ShapeError
from clmatmul.explanation import explain_problem, plain_problem
from clmatmul.fallbacks import multiply, prepare_any
from clmatmul.kept_launches import KeptLaunches
from clmatmul.operands import host_array, single_output, workspace_parts, workspace_size
from clmatmul.precision import default_precision
from clmatmul.problem import Epilogue
from clmatmul.repeats import follow, follow_on_device, same_form, signature
from clmatmul.request import Request, epilogue_arrays
from clmatmul.selection import resolve
from clmatmul.walk import database_of, find_route


@takes_containers
def matmul(
    x1, x2, /, out=None, *, axes=None, casting="same_kind", order="K", dtype=None, precision=None,
    accumulate=None, reproducible=False, fallback=None, epilogue=None, memory_limit=None,
    device=None, queue=None, wait_for=None,
):  # fmt: skip
    """The matrix product of two arrays, with numpy.matmul's semantics, on an OpenCL device.

    x1: (…, m, k) or (k,); x2: (…, k, n) or (k,); leading dimensions broadcast. The result has
    shape (…, m, n), a vector's dimension left out, and the dtype that NumPy gives. Any strides.

    NumPy arrays (and lists) give a NumPy array, computed on the default device. pyopencl arrays
    give a pyopencl array, on their queue and from their allocator: nothing blocks, pending events
    are waited for, and the result's `.events` has the launch's. One of each: the device's side.

    out: array to fill and return; any strides, may overlap the inputs, batch may be larger.
    axes, casting, order, dtype: as numpy.matmul. precision: how exactly at least: 'highest' (the
    default, see `use_precision`), 'high', 'medium', such as 'TF32_TF32_F32', 'compensated' or
    'emulated' (docs/precision.md). accumulate: a dtype at least as wide as the default
    accumulator. reproducible: the same bits on every device. fallback: 'numpy' computes on the
    host what no device here can, 'emulate' float64 on a device without it. epilogue: an
    `Epilogue`.
    memory_limit: bytes of device workspace. device: as `use_device`. queue: a pyopencl queue.
    wait_for: events to wait for.

    Raises ShapeError (a ValueError), DtypeError (a TypeError), UnsupportedError, NoDeviceError,
    DeviceError, ArgumentError. longdouble and object arrays are computed by NumPy.
    """
    plain = casting == "same_kind" and order == "K" and reproducible is False and not any(
        x is not None
        for x in (axes, dtype, precision, accumulate, epilogue, memory_limit, queue, wait_for)
    )  # fmt: skip
    plain = plain and default_precision() == "highest"
    if plain and fallback is None:
        repeated = repeat(x1, x2, out, device)
        if repeated is not None:
            return repeated
    request = Request(
        axes=axes, casting=casting, order=order, dtype=dtype, precision=precision,
        accumulate=accumulate, reproducible=reproducible, fallback=fallback, epilogue=epilogue,
        memory_limit=memory_limit, device=device, queue=queue, wait_for=wait_for,
    )  # fmt: skip
    return multiply(request, x1, x2, None, single_output(out), plain)


@takes_containers
def gemm(
    a, b, c=None, *, alpha=1, beta=0, transpose_a=False, transpose_b=False, out=None,
    casting="same_kind", order="K", dtype=None, precision=None, accumulate=None,
    reproducible=False, fallback=None, epilogue=None, memory_limit=None, device=None, queue=None,
    wait_for=None,
):  # fmt: skip
    """alpha * op(a) @ op(b) + beta * c, as BLAS has it, for matrices and batches of them.

    transpose_a, transpose_b: False, True, or "C" for the conjugate transpose of the last two
    dimensions. c: broadcasts to the result's shape; never read if beta is 0. alpha = 0: a and b
    are not read. out: may be c itself. Other keywords and errors: see `matmul`.
    """
    request = Request(
        alpha=alpha, beta=beta, transpose_a=transpose_a, transpose_b=transpose_b, casting=casting,
        order=order, dtype=dtype, precision=precision, accumulate=accumulate,
        reproducible=reproducible, fallback=fallback, epilogue=epilogue,
        memory_limit=memory_limit, device=device, queue=queue, wait_for=wait_for,
    )  # fmt: skip
    return multiply(request, a, b, c, single_output(out))


class MatMul:
    """A product prepared for operands like a and b; call it with others of the same layout.

    MatMul(a, b, out=None, *, c=None, alpha=1, beta=0, config=None, …): keywords as `gemm`.
    config: a configuration to use instead of the one chosen, as a TileConfig or its text, such
    as 'tiled(tile_m=16, tile_n=16, tile_k=16)'. Building and the first-use check happen here, so
    that a call only launches. ConfigError, BuildError and LaunchError concern `config`.

    events: False lets calls with the same pyopencl arrays as before, on an in-order queue, leave
    no event at the arrays, so that a device need not stand still between launches. What is
    enqueued on that queue later comes after them all the same; another queue has to wait for
    `pyopencl.enqueue_marker(queue)`. Calls for which there is no such way have events as ever.
    """

    def __init__(self, a, b, out=None, *, c=None, config=None, events=True, **keywords):
        allowed = set(Request.__dataclass_fields__) - {"config"}
        unknown = sorted(set(keywords) - allowed)
        if unknown:
            has = sorted(allowed | {"config", "events"})
            raise TypeError(f"MatMul has no keyword {unknown[0]!r}; it has {has}")
        if not events and not is_device_array(carried(a)):
            raise ArgumentError(
                f"events=False concerns pyopencl arrays, which have events; a is {type(a).__name__}"
            )
        forced = None if config is None else TileConfig.parse(config)
        self._request = Request(config=forced, **keywords)
        prepared = prepare_any(
            self._request, carried(a), carried(b), carried(c), single_output(carried(out))
        )
        # the kernel that serves: an emulated product's is one of whole numbers
        self._emulated = isinstance(prepared, EmulatedCall)
        kernel = prepared.whole_numbers if self._emulated else prepared
        if kernel.route is None:
            raise ShapeError("a product without elements needs no plan")
        self._problem = prepared.problem
        self._kernel_problem = kernel.problem
        self._route = kernel.route
        self._device = kernel.device
        request = self._request
        self._forms = signature(carried(a)), signature(carried(b))
        simple = None not in self._forms and request.beta == 0 and request.order in ("K", "C")
        unusual = (request.queue, request.wait_for, request.axes)
        unusual_out = out is not None and not is_device_array(carried(out))
        repeatable = simple and not unusual_out and all(x is None for x in unusual)
        repeatable = repeatable and not self._emulated
        fused = epilogue_arrays(request.epilogue)
        self._recipe = recipe_of(prepared, carried(a), carried(b), fused) if repeatable else None
        self._follow = follow if isinstance(a, np.ndarray) else follow_on_device
        on_device = self._recipe is not None and self._follow is follow_on_device
        self._kept = KeptLaunches(self._recipe, events) if on_device else None

    def __call__(self, a, b, out=None, c=None, *, queue=None, wait_for=None, workspace=None):
        """The product of these operands; ShapeError if they differ in shape, dtype or layout.

        workspace: a pyopencl buffer of at least `workspace_bytes`, for this call alone until it
        is complete. With it and an `out`, nothing is allocated on the device.
        """
        if c is None and queue is None and wait_for is None and workspace is None:
            if self._kept is not None and self._kept.again(a, b, out):
                return out
            if type(a) is np.ndarray and type(b) is np.ndarray:  # and so in no container
                result = self._repeated(a, b, out)
                if result is not None:
                    return result
        return self._multiply(a, b, out, c, queue, wait_for, workspace)

    def _repeated(self, a, b, out):
        """The product as it was found out before; None if anything is unusual."""
        if self._recipe is None or not same_form(a, b, self._forms):
            return None
        return self._follow(self._recipe, a, b, out)

    @takes_containers
    def _multiply(self, a, b, out, c, queue, wait_for, workspace):
        request = self._request
        usual = c is None and queue is None and wait_for is None and workspace is None
        if usual:
            result = self._repeated(a, b, out)
            if result is not None:
                if self._kept is not None and out is not None:
                    self._kept.remember(a, b, out)
                return result
        if queue is not None or wait_for is not None:
            request = replace(request, queue=queue or request.queue, wait_for=wait_for)
        prepare_like = EmulatedCall if self._emulated else prepare
        prepared = prepare_like(request, a, b, c, single_output(out))
        if prepared.problem is None or not prepared.problem.same_layout(self._problem):
            raise ShapeError(
                f"this plan was made for {self._problem}, and the operands are "
                f"{prepared.problem}; make another MatMul for them, or call clmatmul.gemm"
            )
        if workspace is None or self._emulated:
            return prepared.run(workspace)
        return prepared.run(workspace_parts(self._device, self._route.executable.plan, workspace))

    @property
    def workspace_bytes(self):
        """How large a buffer for `workspace` must be; 0 if the kernels need none, or take none of
        the caller's (emulated products)."""
        return 0 if self._emulated else workspace_size(self._device, self._route.executable.plan)

    @property
    def choice(self):
        """The Choice that serves: configuration, origin, note."""
        return self._route.choice

    @property
    def config(self):
        return self._route.choice.config

    @property
    def problem(self):
        return self._problem

    @property
    def source(self):
        """The OpenCL C text of its kernels."""
        return "\n".join(self._explanation().sources)

    def explain(self):
        """Every value on the line for this product, as text; for an emulated one, on that of its
        products of whole numbers."""
        text = str(self._explanation())
        return f"{self._problem} by whole numbers, such as\n{text}" if self._emulated else text

    def _explanation(self):
        return explain_problem(
            self._device, self._kernel_problem, find_route,
            database_of(self._device.profile.key), self._request.config,
        )  # fmt: skip


@takes_containers
def scale(alpha, a, out=None, *, device=None, queue=None, wait_for=None):
    """alpha * a, element by element, on the device; alpha is a number, a of any shape.

    The dtype is NumPy's for alpha * a. NumPy in, NumPy out; pyopencl in, pyopencl out.
    """
    if not np.isscalar(alpha) and np.ndim(alpha):
        raise ArgumentError(f"alpha has shape {np.shape(alpha)}; it must be a single number")
    array = a if is_device_array(a) else host_array(a, "the array")
    try:
        dtype = np.result_type(alpha, array.dtype)
    except TypeError:
        raise DtypeError(f"alpha={alpha!r} is no number") from None
    request = Request(beta=alpha, device=device, queue=queue, wait_for=wait_for, dtype=dtype)
    shape = array.shape
    rows = (1,) * max(0, 2 - len(shape)) + tuple(shape)
    nothing_a = np.empty(rows[:-1] + (0,), dtype)
    nothing_b = np.empty(rows[:-2] + (0, rows[-1]), dtype)
    prepared = prepare(request, nothing_a, nothing_b, array, single_output(out), as_scale=True)
    return prepared.run()


def explain(m, n, k, dtype="float32", *, layout="NN", batch=(), device=None, config=None):
    """Every value on the line from arrays to launches, for a plain product, as text.

    layout: two letters, N (row-major) or T (column-major) for A and B. batch: sizes of batch
    dimensions. device, config: as for `matmul` and `MatMul`.
    """
    return str(explanation(m, n, k, dtype, layout=layout, batch=batch, device=device,
                           config=config))  # fmt: skip


def explanation(m, n, k, dtype="float32", *, layout="NN", batch=(), device=None, config=None):
    """As `explain`, but the values themselves, as an Explanation."""
    for name, value in (("m", m), ("n", n), ("k", k)):
        if int(value) < 1:
            raise ShapeError(f"{name}={value} must be at least 1")
    if any(int(x) < 1 for x in batch):
        raise ShapeError(f"batch={batch!r}: each size must be at least 1")
    if len(layout) != 2 or set(layout) - set("NT"):
        raise ArgumentError(f"layout={layout!r} must be NN, NT, TN or TT")
    opened = resolve(device)
    problem = plain_problem(int(m), int(n), int(k), dtype, layout, batch)
    check_device(problem, opened.profile)
    return explain_problem(opened, problem, find_route, database_of(opened.profile.key), config)


__all__ = ["Epilogue", "MatMul", "explain", "explanation", "gemm", "matmul", "scale"]

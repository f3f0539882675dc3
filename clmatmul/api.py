"""The public functions: read the arguments, walk the line, hand back the result.

NumPy arrays in, NumPy array out, on the default device. pyopencl arrays in, pyopencl array out,
asynchronously on their own queue.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from clmatmul import device as devices
from clmatmul.arrangement import arrange
from clmatmul.choose import check_device
from clmatmul.config import TileConfig
from clmatmul.containers import carried, takes_containers
from clmatmul.element_types import COMPUTE_TYPES, element_type, numpy_dtype, product_type
from clmatmul.errors import (
    ArgumentError,
    DtypeError,
    NoDeviceError,
    ShapeError,
    UnsupportedError,
)
from clmatmul.explanation import explain_problem, plain_problem
from clmatmul.operands import (
    HOST_ONLY,
    DeviceMemory,
    HostMemory,
    common_queue,
    host_array,
    plain_array,
    refuse_byte_order,
    refuse_mask,
    single_output,
    workspace_parts,
    workspace_size,
)
from clmatmul.packed import Packed
from clmatmul.problem import EPILOGUE_OPERANDS, ArrayView, Epilogue, Problem, scalar_class
from clmatmul.repeats import Recipe, follow, recall, remember, same_form, signature
from clmatmul.selection import resolve
from clmatmul.trial import kernel_scalar
from clmatmul.walk import database_of, find_route


@dataclass(frozen=True)
class _Request:
    """The keywords of one call, read and checked."""

    alpha: object = 1
    beta: object = 0
    transpose_a: object = False
    transpose_b: object = False
    axes: object = None
    casting: str = "same_kind"
    order: str = "K"
    dtype: object = None
    precision: str | None = None
    accumulate: object = None
    reproducible: bool = False
    fallback: str | None = None
    epilogue: Epilogue | None = None
    memory_limit: int | None = None
    device: object = None
    queue: object = None
    wait_for: object = None
    config: TileConfig | None = None

    def __post_init__(self):
        _one_of("casting", self.casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
        _one_of("order", self.order, ("K", "A", "C", "F"))
        _one_of("fallback", self.fallback, (None, "numpy"))
        _one_of("transpose_a", self.transpose_a, (False, True, "C"))
        _one_of("transpose_b", self.transpose_b, (False, True, "C"))
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if devices.is_device_array(value) or np.ndim(value):
                raise ArgumentError(f"{name} must be a single number, not an array")
        if self.precision not in (None, "highest"):
            raise UnsupportedError(
                f"precision={self.precision!r} is not available; None and 'highest' are: IEEE "
                "arithmetic in the operands' type, 16-bit floats accumulated in float32"
            )
        if self.epilogue is not None and not isinstance(self.epilogue, Epilogue):
            raise ArgumentError(
                f"epilogue={self.epilogue!r} is no clmatmul.Epilogue; write "
                "epilogue=clmatmul.Epilogue(bias=…, activation=…)"
            )


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
    axes, casting, order, dtype: as numpy.matmul. precision: 'highest' only. accumulate: a dtype
    at least as wide as the default accumulator. reproducible: the same bits on every device.
    fallback: 'numpy' computes on the host what no device here can. epilogue: an `Epilogue`.
    memory_limit: bytes of device workspace. device: as `use_device`. queue: a pyopencl queue.
    wait_for: events to wait for.

    Raises ShapeError (a ValueError), DtypeError (a TypeError), UnsupportedError, NoDeviceError,
    DeviceError, ArgumentError. longdouble and object arrays are computed by NumPy.
    """
    plain = casting == "same_kind" and order == "K" and reproducible is False and not any(
        x is not None
        for x in (axes, dtype, precision, accumulate, epilogue, memory_limit, queue, wait_for)
    )  # fmt: skip
    if plain and fallback is None:
        repeated = _repeat(x1, x2, out, device)
        if repeated is not None:
            return repeated
    request = _Request(
        axes=axes, casting=casting, order=order, dtype=dtype, precision=precision,
        accumulate=accumulate, reproducible=reproducible, fallback=fallback, epilogue=epilogue,
        memory_limit=memory_limit, device=device, queue=queue, wait_for=wait_for,
    )  # fmt: skip
    return _multiply(request, x1, x2, None, single_output(out), plain)


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
    request = _Request(
        alpha=alpha, beta=beta, transpose_a=transpose_a, transpose_b=transpose_b, casting=casting,
        order=order, dtype=dtype, precision=precision, accumulate=accumulate,
        reproducible=reproducible, fallback=fallback, epilogue=epilogue,
        memory_limit=memory_limit, device=device, queue=queue, wait_for=wait_for,
    )  # fmt: skip
    return _multiply(request, a, b, c, single_output(out))


class MatMul:
    """A product prepared for operands like a and b; call it with others of the same layout.

    MatMul(a, b, out=None, *, c=None, alpha=1, beta=0, config=None, …): keywords as `gemm`.
    config: a configuration to use instead of the one chosen, as a TileConfig or its text, such
    as 'tiled(tile_m=16, tile_n=16, tile_k=16)'. Building and the first-use check happen here, so
    that a call only launches. ConfigError, BuildError and LaunchError concern `config`.
    """

    def __init__(self, a, b, out=None, *, c=None, config=None, **keywords):
        allowed = set(_Request.__dataclass_fields__) - {"config"}
        unknown = sorted(set(keywords) - allowed)
        if unknown:
            raise TypeError(f"MatMul has no keyword {unknown[0]!r}; it has {sorted(allowed)}")
        forced = None if config is None else TileConfig.parse(config)
        self._request = _Request(config=forced, **keywords)
        prepared = _prepare(
            self._request, carried(a), carried(b), carried(c), single_output(carried(out))
        )
        if prepared.route is None:
            raise ShapeError("a product without elements needs no plan")
        self._problem = prepared.problem
        self._route = prepared.route
        self._device = prepared.device
        request = self._request
        self._forms = signature(a), signature(b)
        simple = None not in self._forms and request.beta == 0 and request.order in ("K", "C")
        unusual = (request.epilogue, request.queue, request.wait_for, request.axes)
        repeatable = simple and out is None and all(x is None for x in unusual)
        self._recipe = _recipe(prepared, a, b) if repeatable else None

    @takes_containers
    def __call__(self, a, b, out=None, c=None, *, queue=None, wait_for=None, workspace=None):
        """The product of these operands; ShapeError if they differ in shape, dtype or layout.

        workspace: a pyopencl buffer of at least `workspace_bytes`, for this call alone until it
        is complete. With it and an `out`, nothing is allocated on the device.
        """
        request = self._request
        usual = c is None and queue is None and wait_for is None and workspace is None
        if usual and self._recipe is not None and same_form(a, b, self._forms):
            result = follow(self._recipe, a, b, out)
            if result is not None:
                return result
        if queue is not None or wait_for is not None:
            request = replace(request, queue=queue or request.queue, wait_for=wait_for)
        prepared = _prepare(request, a, b, c, single_output(out))
        if prepared.problem is None or not prepared.problem.same_layout(self._problem):
            raise ShapeError(
                f"this plan was made for {self._problem}, and the operands are "
                f"{prepared.problem}; make another MatMul for them, or call clmatmul.gemm"
            )
        if workspace is None:
            return prepared.run()
        return prepared.run(workspace_parts(self._device, self._route.executable.plan, workspace))

    @property
    def workspace_bytes(self):
        """How large a buffer for `workspace` must be; 0 if the kernels need none."""
        return workspace_size(self._device, self._route.executable.plan)

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
        """Every value on the line for this product, as text."""
        return str(self._explanation())

    def _explanation(self):
        return explain_problem(
            self._device, self._problem, find_route, database_of(self._device.profile.key),
            self._request.config,
        )  # fmt: skip


@takes_containers
def scale(alpha, a, out=None, *, device=None, queue=None, wait_for=None):
    """alpha * a, element by element, on the device; alpha is a number, a of any shape.

    The dtype is NumPy's for alpha * a. NumPy in, NumPy out; pyopencl in, pyopencl out.
    """
    if not np.isscalar(alpha) and np.ndim(alpha):
        raise ArgumentError(f"alpha has shape {np.shape(alpha)}; it must be a single number")
    array = a if devices.is_device_array(a) else host_array(a, "the array")
    try:
        dtype = np.result_type(alpha, array.dtype)
    except TypeError:
        raise DtypeError(f"alpha={alpha!r} is no number") from None
    request = _Request(beta=alpha, device=device, queue=queue, wait_for=wait_for, dtype=dtype)
    shape = array.shape
    rows = (1,) * max(0, 2 - len(shape)) + tuple(shape)
    nothing_a = np.empty(rows[:-1] + (0,), dtype)
    nothing_b = np.empty(rows[:-2] + (0, rows[-1]), dtype)
    prepared = _prepare(request, nothing_a, nothing_b, array, single_output(out), as_scale=True)
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


# ---- from arguments to a launch -------------------------------------------------------------


@dataclass
class _Prepared:
    """A call with everything decided; `run` launches it and returns the result."""

    device: object
    problem: Problem | None
    route: object
    memory: object
    bound: dict
    target: object  # what the kernel writes
    out: object  # what the caller gave, or None
    scalars: dict
    wait_for: list
    vector_product: bool = False
    packed: dict = field(default_factory=dict)  # which operands are Packed

    def run(self, workspace=None):
        if self.route is None:  # no element to compute
            return self.out if self.out is not None else _face(self.target, self.vector_product)
        operands = {name: x.operand for name, x in self.bound.items()}
        if self.problem.swapped and "a" in operands:
            operands["a"], operands["b"] = operands["b"], operands["a"]
        workspace, parts = dict(workspace or {}), []
        for name, packed in self.packed.items():
            name = _in_plan(name, self.problem)
            found = packed.panels(self.route.executable, name, self.memory.queue)
            if found is not None:
                part, workspace[found[0].workspace], event = found
                parts.append(part)
                self.wait_for.append(event)
        if isinstance(self.memory, HostMemory):
            event, keep = self.route.executable(
                self.memory.queue, operands, self.scalars, self.wait_for, workspace, prepared=parts
            )
            result = self.memory.finish(event, self.bound)
            del keep
            return result if self.out is not None else _face(result, self.vector_product)
        event, keep = self.route.executable(
            self.memory.queue, operands, self.scalars, [*self.memory.wait_for, *self.wait_for],
            workspace, self.memory.allocate, prepared=parts,
        )  # fmt: skip
        self.memory.finish(event, (keep, self.bound))
        if self.out is not None and self.out is not self.target:
            return _copy_on_device(self.target, self.out, self.memory.queue)
        return self.target


def _repeat(a, b, out, device):
    """The product if one like it was computed before, else None."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    opened = resolve(device)
    recipe = recall(opened, a, b)
    return None if recipe is None else follow(recipe, a, b, out)


def _on_host(*arrays):
    return not any(devices.is_device_array(x) or isinstance(x, Packed) for x in arrays)


def _multiply(request, a, b, c, out, plain=False):
    if _on_host(a, b, c, out):
        a, b = plain_array(a, "the first operand"), plain_array(b, "the second operand")
        if request.beta != 0:
            refuse_mask(c, "c")
        if a.dtype.char in HOST_ONLY or b.dtype.char in HOST_ONLY:
            return _numpy_product(request, a, b, c, out)
    try:
        prepared = _prepare(request, a, b, c, out)
        result = prepared.run()
        if plain and out is None and prepared.route is not None:
            remember(_recipe(prepared, a, b), a, b)
        return result
    except (UnsupportedError, NoDeviceError, DtypeError):
        if request.fallback == "numpy" and _on_host(a, b, c, out):
            return _numpy_product(request, a, b, c, out)
        raise


def _recipe(prepared, a, b):
    """What a product of host arrays found out, for the next one like it; None if it depends on
    where the arrays are, or was found out about a copy of one, which has other strides.
    """
    plan = prepared.route.executable.plan
    host = isinstance(prepared.memory, HostMemory) and prepared.device.has_host_memory
    if not host or prepared.problem.k == 0 or plan.variant.alignment_classes != (1,):
        return None
    bound = prepared.bound
    if any(name in bound and bound[name].array is not x for name, x in (("a", a), ("b", b))):
        return None
    target = prepared.target
    return Recipe(
        device=prepared.device,
        executable=prepared.route.executable,
        scalars=prepared.scalars,
        shape=target.shape,
        dtype=target.dtype,
        order="C",
        swapped=prepared.problem.swapped,
        is_scalar=prepared.vector_product,
    )


def _prepare(request, a, b, c, out, as_scale=False):
    """Read shapes and dtypes, bring operands to the device, and find the route."""
    fused = _epilogue_arrays(request.epilogue)
    given = [x for x in (a, b, c, out, *fused.values()) if devices.is_device_array(x)]
    packed = {name: x for name, x in (("a", a), ("b", b)) if isinstance(x, Packed)}
    device, memory = _memory(request, given, [x.array for x in packed.values()])
    arrays = {"a": a, "b": b, **fused, **{name: x.array for name, x in packed.items()}}
    if c is not None and request.beta != 0 or as_scale:
        arrays["c"] = c
    elif request.beta != 0:
        raise ArgumentError(f"beta={request.beta!r} needs c, the matrix that it multiplies")
    names = {"a": "the first operand", "b": "the second operand"}
    for name, x in arrays.items():
        if devices.is_device_array(x):
            refuse_byte_order(x, names.get(name, name))
        else:
            arrays[name] = host_array(x, names.get(name, name))
    if out is not None:
        _check_output(out, bool(given))

    product, result = _dtypes(request, arrays, out)
    arrangement = arrange(
        tuple(arrays["a"].shape), tuple(arrays["b"].shape),
        transpose_a=bool(request.transpose_a), transpose_b=bool(request.transpose_b),
        axes=request.axes, out_shape=_out_shape(out, arrays, as_scale),
    )  # fmt: skip
    shape = tuple(arrays["c"].shape) if as_scale else arrangement.shape
    if as_scale and out is not None and tuple(out.shape) != shape:
        raise ShapeError(f"out has shape {tuple(out.shape)}, and the array {shape}")
    compute = COMPUTE_TYPES[element_type(product).compute]
    alpha, beta = (_scalar(x, getattr(request, x), compute) for x in ("alpha", "beta"))

    inputs = [x for name, x in arrays.items() if name not in ("c", *packed) and x.size]
    order = _order(request.order, arrays["a"], arrays["b"])
    target = memory.output(shape, result, order, out, inputs, arrays.get("c"))
    vector = arrangement.a_is_vector and arrangement.b_is_vector
    prepared = _Prepared(
        device, None, None, memory, {}, target, out, {}, list(request.wait_for or ()), vector
    )
    if target.size == 0:
        return prepared

    read = {name: x for name, x in arrays.items() if x.size and not _unread(name, alpha)}
    kept = {name: packed[name].bound() for name in packed if name in read}
    bound = memory.bind({**{x: read[x] for x in read if x not in kept}, "out": target})
    for name, (operand, events) in kept.items():
        bound[name] = operand
        prepared.wait_for += events
    prepared.packed = {name: packed[name] for name in kept}
    views = {
        name: bound[name].view if name in bound else ArrayView.of(x, 0)
        for name, x in [*arrays.items(), ("out", target)]
    }
    views = _arranged(views, arrangement, as_scale)
    activation = request.epilogue.activation if request.epilogue else None
    problem = Problem.from_arrays(
        views["a"], views["b"], views["out"], c=views.get("c"),
        alpha=scalar_class(alpha),
        # scale: 0 times infinity is NaN there, so a zero is no reason to leave the array unread
        beta="general" if as_scale and beta == 0 else scalar_class(beta),
        epilogue={**{x: views[x] for x in fused}, "activation": activation},
        result=np.dtype(product).name,
        accumulate=request.accumulate,
        conjugate_a=request.transpose_a == "C",
        conjugate_b=request.transpose_b == "C",
        reproducible=bool(request.reproducible),
    )  # fmt: skip
    check_device(problem, device.profile)
    prepared.problem = problem
    prepared.bound = bound
    names = tuple(sorted(_in_plan(name, problem) for name in prepared.packed))
    prepared.route = find_route(device, problem, request.config, request.memory_limit, names)
    argument = COMPUTE_TYPES[problem.compute]
    prepared.scalars = {
        "alpha": kernel_scalar(alpha, argument), "beta": kernel_scalar(beta, argument),
    }  # fmt: skip
    return prepared


def _memory(request, given, packed):
    """The open device and the kind of memory for a call.

    given: its pyopencl arrays; packed: those that are held in Packed operands.
    """
    asked = None if request.device is None else resolve(request.device)
    if given or packed:
        queue = common_queue([*given, *packed], request.queue, asked)
    if given:
        device = devices.device_of_queue(queue)
        device.check_process()
        allocator = next((x.allocator for x in given if x.allocator is not None), None)
        return device, DeviceMemory(device, queue, allocator, request.wait_for)
    if packed and request.queue is None:
        device = devices.device_of_queue(queue)
        device.check_process()
        return device, HostMemory(device)
    if request.queue is not None:
        devices.check_queue(request.queue)
        device = devices.device_of_queue(request.queue)
        memory = HostMemory(device)
        memory.queue = request.queue
        return device, memory
    device = asked or resolve()
    return device, HostMemory(device)


def _in_plan(name, problem):
    """What operand a or b is called in the plan: they change places for some outputs."""
    return {"a": "b", "b": "a"}[name] if problem.swapped else name


def _unread(name, alpha):
    return name in ("a", "b") and alpha == 0


def _arranged(views, arrangement, as_scale):
    """Each view as (batch…, rows, columns)."""
    arranged = dict(views)
    if as_scale:
        for name in ("c", "out"):
            view = views[name]
            while len(view.shape) < 2:
                view = view.expanded(0)
            arranged[name] = view
        return arranged
    arranged["a"] = arrangement.a(views["a"])
    arranged["b"] = arrangement.b(views["b"])
    arranged["out"] = arrangement.out(views["out"])
    for name in ("c", "bias", "residual"):
        # What broadcasts to the result takes part with the result's own dimensions.
        if name in views:
            whole = views[name].broadcast_to(arrangement.shape, name)
            arranged[name] = arrangement.out(whole)
    return arranged


def _copy_on_device(source, out, queue):
    """out[...] = source, as a product with nothing to sum up: out = 0 + 1 * source."""
    dtype = out.dtype
    request = _Request(beta=1, queue=queue, dtype=dtype)
    rows = (1,) * max(0, 2 - len(out.shape)) + tuple(out.shape)
    nothing_a = np.empty(rows[:-1] + (0,), dtype)
    nothing_b = np.empty(rows[:-2] + (0, rows[-1]), dtype)
    return _prepare(request, nothing_a, nothing_b, source, out, as_scale=True).run()


# ---- reading arguments ----------------------------------------------------------------------


def _one_of(name, value, allowed):
    if not any(value is x or (value == x and type(value) is type(x)) for x in allowed):
        listed = ", ".join(map(repr, allowed))
        raise ArgumentError(f"{name}={value!r} is not allowed; allowed are {listed}")


def _check_output(out, on_device):
    if devices.is_device_array(out) != on_device:
        raise ArgumentError("out is a NumPy array, but an operand is a pyopencl array")
    if on_device:
        refuse_byte_order(out, "out")
    elif not out.flags.writeable:
        raise ArgumentError("out is read-only; pass an array that can be written")


def _out_shape(out, arrays, as_scale):
    return None if out is None or as_scale else tuple(out.shape)


def _dtypes(request, arrays, out):
    """(dtype of the product, dtype of the output); DtypeError if a cast is not allowed."""
    product = product_type(arrays["a"].dtype, arrays["b"].dtype, request.dtype)
    if request.dtype is None and "c" in arrays:
        product = product_type(product, arrays["c"].dtype)
    if request.accumulate is not None and request.dtype is None:
        # int8 @ int8 accumulated in int32 is an int32 product, not one that wraps at 8 bits
        wider = numpy_dtype(element_type(request.accumulate).name)
        if wider.kind in "iu" and product.kind in "iu" and wider.itemsize > product.itemsize:
            product = wider
    element_type(product)
    # casting='unsafe' allows kernels no more than 'same_kind' does
    casting = "same_kind" if request.casting == "unsafe" else request.casting
    for name in ("a", "b", "c"):
        if name in arrays and not _can_cast(arrays[name].dtype, product, casting):
            raise DtypeError(
                f"cannot cast operand {name} from {arrays[name].dtype} to {product} with "
                f"casting={casting!r}; convert it with .astype first"
            )
    epilogue = request.epilogue
    result = np.dtype(product)
    if epilogue is not None and epilogue.dtype is not None:
        result = numpy_dtype(element_type(epilogue.dtype).name)
    elif out is not None:
        result = out.dtype.newbyteorder("=")
    element_type(result)
    if not _can_cast(product, result, casting):
        raise DtypeError(
            f"cannot cast the product from {product} to {result} with casting={casting!r} "
            "(in NumPy's words: Cannot cast ufunc 'matmul' output)"
        )
    if out is not None and not _can_cast(result, out.dtype, casting):
        raise DtypeError(
            f"cannot cast the result from {result} to out's {out.dtype} with casting={casting!r} "
            "(in NumPy's words: Cannot cast ufunc 'matmul' output)"
        )
    return product, result


def _can_cast(source, target, casting):
    if "bfloat16" in (source.name, target.name):
        kinds = {element_type(source).kind, element_type(target).kind}
        return kinds <= {"bfloat", "half", "float"} or source.kind in "biu"
    return np.can_cast(source, target, casting)


def _scalar(name, value, compute):
    """alpha or beta as a plain number that the accumulator's type can hold."""
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    allowed = {
        "complex": (bool, int, float, complex),
        "real": (bool, int, float),
        "integer": (bool, int),
        "bool": (bool, int),
    }[compute.kind]
    if not isinstance(value, allowed):
        raise DtypeError(
            f"{name}={value!r} cannot multiply a product that accumulates in {compute.name}; "
            "convert the operands with .astype, or pass dtype="
        )
    if compute.kind == "bool" and value not in (0, 1):
        raise DtypeError(f"{name}={value!r}: a product of bool arrays takes 0 or 1")
    return value


def _order(order, a, b):
    if order == "F":
        return "F"
    if order == "A":
        return "F" if a.flags.f_contiguous and b.flags.f_contiguous else "C"
    return "C"


def _epilogue_arrays(epilogue):
    if epilogue is None:
        return {}
    found = {name: carried(getattr(epilogue, name)) for name in EPILOGUE_OPERANDS}
    return {name: x for name, x in found.items() if x is not None}


def _face(result, vector_product):
    """NumPy gives a scalar for the product of two vectors."""
    if vector_product and isinstance(result, np.ndarray):
        return result[()]
    return result


def _numpy_product(request, a, b, c, out):
    """The product by NumPy on the host: for longdouble and object, and as the fallback."""
    if request.epilogue is not None or request.accumulate is not None or request.reproducible:
        raise UnsupportedError(
            "epilogue, accumulate and reproducible need a kernel, and NumPy computes this product "
            f"(dtypes {a.dtype} and {b.dtype})"
        )

    def turned(x, how):
        x = np.swapaxes(x, -1, -2) if how and x.ndim > 1 else x
        return x.conj() if how == "C" else x

    a, b = turned(a, request.transpose_a), turned(b, request.transpose_b)
    keywords = {"casting": request.casting, "order": request.order, "dtype": request.dtype}
    if request.axes is not None:
        keywords["axes"] = request.axes
    if request.alpha == 1 and request.beta == 0:
        return (
            np.matmul(a, b, out=out, **keywords) if out is not None else np.matmul(a, b, **keywords)
        )
    value = request.alpha * np.matmul(a, b, **keywords) if request.alpha != 0 else 0
    if request.beta != 0:
        value = value + request.beta * np.asarray(c)
    shape = arrange(a.shape, b.shape, axes=request.axes).shape
    value = np.broadcast_to(value, np.broadcast_shapes(shape, np.shape(value)))
    if out is None:
        return np.array(value, order=request.order)
    np.copyto(out, value, casting=request.casting)
    return out


__all__ = ["Epilogue", "MatMul", "explain", "explanation", "gemm", "matmul", "scale"]

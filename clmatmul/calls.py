"""From arguments to a launch: operands to the device, problem, route, and the result back."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from clmatmul import call_log, row_blocks
from clmatmul import device as devices
from clmatmul.arguments import read_arguments
from clmatmul.choose import check_device
from clmatmul.device_arrays import is_device_array, is_plain_device_array
from clmatmul.element_types import COMPUTE_TYPES
from clmatmul.operands import DeviceMemory, HostMemory, common_queue, span
from clmatmul.problem import ArrayView, Problem
from clmatmul.repeats import Recipe, follow, follow_on_device, recall, signature
from clmatmul.request import Request
from clmatmul.selection import resolve
from clmatmul.trial import kernel_scalar
from clmatmul.walk import find_route


@dataclass
class PreparedCall:
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
            return self.out if self.out is not None else as_scalar(self.target, self.vector_product)
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
            if not workspace and self._in_blocks():
                result = self.memory.finish_in_blocks(
                    lambda target: self._multiply_in_blocks(operands, target)
                )
                return result if self.out is not None else as_scalar(result, self.vector_product)
            self.memory.send()
            event, keep = self.route.executable(
                self.memory.queue, operands, self.scalars, self.wait_for, workspace, prepared=parts
            )
            call_log.launched(self.route.executable, event)
            result = self.memory.finish(event, self.bound)
            del keep
            return result if self.out is not None else as_scalar(result, self.vector_product)
        event, keep = self.route.executable(
            self.memory.queue, operands, self.scalars, [*self.memory.wait_for, *self.wait_for],
            workspace, self.memory.allocate, prepared=parts,
        )  # fmt: skip
        call_log.launched(self.route.executable, event)
        self.memory.finish(event, (keep, self.bound))
        if self.out is not None and self.out is not self.target:
            return _copy_on_device(self.target, self.out, self.memory.queue)
        return self.target

    def _in_blocks(self):
        """True if the operands go to the device, and the result comes back, block by block."""
        special = self.packed or "aux" in self.bound or not self.memory.unsent
        return not special and len(row_blocks.blocks_of(self.problem)) > 1

    def _multiply_in_blocks(self, operands, target):
        sources = {
            _in_plan(name, self.problem): memory
            for name, (_array, memory, _buffer) in self.memory.unsent.items()
        }
        event = row_blocks.multiply_in_blocks(
            self.device, self.memory.queue, self.route, self.problem, operands, self.scalars,
            self.wait_for, sources, target,
        )  # fmt: skip
        call_log.launched(self.route.executable, event)


def repeat(a, b, out, device):
    """The product if one like it was computed before, else None."""
    if is_device_array(a) and is_device_array(b):
        if device is not None or a.queue is None:
            return None
        recipe = recall(devices.device_of_queue(a.queue), a, b)
        return None if recipe is None else follow_on_device(recipe, a, b, out)
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    opened = resolve(device)
    recipe = recall(opened, a, b)
    return None if recipe is None else follow(recipe, a, b, out)


def recipe_of(prepared, a, b, fused=None):
    """What a product found out, for the next one like it; None if it depends on where the arrays
    are, or was found out about a copy of one, which has other strides.

    fused: the epilogue's arrays, by name.
    """
    plan = prepared.route.executable.plan
    if isinstance(prepared.memory, DeviceMemory):
        return _device_recipe(prepared, a, b, tuple((fused or {}).items()))
    host = isinstance(prepared.memory, HostMemory) and prepared.device.has_host_memory
    if not host or prepared.problem.k == 0 or plan.variant.alignment_classes != (1,):
        return None
    bound = prepared.bound
    if any(name in bound and bound[name].array is not x for name, x in (("a", a), ("b", b))):
        return None
    fused = tuple((fused or {}).items())
    if set(bound) - {"a", "b", "out"} != {name for name, _ in fused}:
        return None
    if any(bound[name].array is not x for name, x in fused) or not _may_repeat(fused):
        return None
    return _recipe(prepared, is_scalar=prepared.vector_product, fused=fused)


def _recipe(prepared, **particular):
    return Recipe(
        device=prepared.device,
        executable=prepared.route.executable,
        scalars=prepared.scalars,
        shape=prepared.target.shape,
        dtype=prepared.target.dtype,
        order="C",
        swapped=prepared.problem.swapped,
        **particular,
    )


def _may_repeat(fused):
    """True if an epilogue's arrays are plain ones that lie apart."""
    if any(signature(x) is None for _, x in fused):
        return False
    spans = sorted(span(x) for _, x in fused)
    return all(low + size <= following for (low, size), (following, _) in pairwise(spans))


def _device_recipe(prepared, a, b, fused):
    target, out, bound = prepared.target, prepared.out, prepared.bound
    plain = all(is_plain_device_array(x) for x in (a, b, target, *(x for _, x in fused)))
    if not plain or prepared.problem.k == 0 or (out is not None and out is not target):
        return None
    if set(bound) - {"a", "b", "out"} != {name for name, _ in fused}:
        return None  # an output of the epilogue's own
    forms = tuple(signature(x) for _, x in fused)
    return _recipe(prepared, is_scalar=False, out=signature(target), fused=fused, fused_forms=forms)


def prepare(request, a, b, c, out, as_scale=False):
    """Read shapes and dtypes, bring operands to the device, and find the route."""
    call = read_arguments(request, a, b, c, out, as_scale)
    arrays, packed = call.arrays, call.packed
    device, memory = _memory(request, call.given, [x.array for x in packed.values()])
    inputs = [x for name, x in arrays.items() if name not in ("c", *packed) and x.size]
    target = memory.output(call.shape, call.result, call.order, out, inputs, arrays.get("c"))
    prepared = PreparedCall(
        device, None, None, memory, {}, target, out, {}, list(request.wait_for or ()),
        call.is_vector_product,
    )  # fmt: skip
    if target.size == 0:
        return prepared

    alpha = call.scalars["alpha"]
    read = {name: x for name, x in arrays.items() if x.size and not _unread(name, alpha)}
    kept = {name: packed[name].bound() for name in packed if name in read}
    written = {"out": target}
    if call.aux is not None:
        written["aux"] = memory.auxiliary(call.aux, [*read.values(), target])
    bound = memory.bind({**{x: read[x] for x in read if x not in kept}, **written})
    for name, (operand, events) in kept.items():
        bound[name] = operand
        prepared.wait_for += events
    prepared.packed = {name: packed[name] for name in kept}
    problem = call.problem({
        name: bound[name].view if name in bound else ArrayView.of(x, 0)
        for name, x in [*arrays.items(), *written.items()]
    })  # fmt: skip
    check_device(problem, device.profile)
    prepared.problem = problem
    prepared.bound = bound
    names = tuple(sorted(_in_plan(name, problem) for name in prepared.packed))
    prepared.route = find_route(device, problem, request.config, request.memory_limit, names)
    argument = COMPUTE_TYPES[problem.compute]
    scalars = dict(call.scalars)
    if problem.epilogue.activation == "clamp":
        scalars["clamp_low"], scalars["clamp_high"] = map(float, request.epilogue.bounds)
    prepared.scalars = {name: kernel_scalar(x, argument) for name, x in scalars.items()}
    return prepared


def _copy_on_device(source, out, queue):
    """out[...] = source, as a product with nothing to sum up: out = 0 + 1 * source."""
    dtype = out.dtype
    request = Request(beta=1, queue=queue, dtype=dtype)
    rows = (1,) * max(0, 2 - len(out.shape)) + tuple(out.shape)
    nothing_a = np.empty(rows[:-1] + (0,), dtype)
    nothing_b = np.empty(rows[:-2] + (0, rows[-1]), dtype)
    return prepare(request, nothing_a, nothing_b, source, out, as_scale=True).run()


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


def as_scalar(result, vector_product):
    """NumPy gives a scalar for the product of two vectors."""
    if vector_product and isinstance(result, np.ndarray):
        return result[()]
    return result

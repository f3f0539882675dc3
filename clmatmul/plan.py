"""Plan: everything decided before a device is touched. `render` turns it into OpenCL C.

A plan has one or several launches, each with the entry point, its geometry and its argument
list. The kernel's parameter list is rendered from the same `KernelArgument`s by which the host
sets its arguments, so the two cannot disagree. One program has one entry point, because some
runtimes add up the local memory of all kernels in a program.
"""

import hashlib
import math
from dataclasses import dataclass
from types import SimpleNamespace

from clmatmul import templates
from clmatmul.config import TileConfig
from clmatmul.element_types import COMPUTE_TYPES, ELEMENT_TYPES
from clmatmul.errors import ConfigError, TemplateError
from clmatmul.expression import read_expression
from clmatmul.problem import EPILOGUE_OPERANDS, Problem
from clmatmul.variants import load_variant

WRITTEN = ("out", "aux")  # arrays that a kernel writes; it reads all others
# What a launch's `args` may name, besides workspace buffers, run-time parameters and values.
ARGUMENT_GROUPS = ("a", "b", "out", "sizes", "batch", "scalars")


@dataclass(frozen=True)
class KernelArgument:
    """One kernel parameter. role: buffer, offset, index (a known whole number) or scalar."""

    name: str
    declaration: str  # OpenCL C, without the name
    role: str

    def __str__(self):
        return f"{self.declaration}{self.name}"


@dataclass(frozen=True)
class Workspace:
    """A scratch buffer, used from launch number `first` to `last`."""

    name: str
    bytes: int
    alignment: int
    first: int
    last: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `values` are the whole numbers behind arguments of role index."""

    entry: str
    global_size: tuple
    local_size: tuple
    arguments: tuple
    values: tuple
    source_key: str

    def __str__(self):
        return f"{self.entry}  global {self.global_size}  local {self.local_size}"


@dataclass(frozen=True)
class Preparation:
    """Work-items of a launch that only rewrite an operand into a workspace buffer.

    Dimension 0's items `first` to `first + count` of launch number `launch` do it. key: the same
    for those that write the same from the same operand, so that one product's serve another.
    """

    launch: int
    first: int
    count: int
    operand: str
    workspace: str
    bytes: int
    key: tuple


@dataclass(frozen=True)
class Plan:
    """What will run for a problem: configuration, launches, workspace, build options.

    rendered: (name, value) of what the configuration puts into the kernel's text: parameters
    and derived quantities, never a size, stride or scalar of the problem.
    counter_bytes: of the argument `counters`, which is all zeros before and after a launch.
    instruments: (name, elements) of the extra buffers of a counting or tracing build.
    """

    problem: Problem
    config: TileConfig
    launches: tuple
    rendered: tuple
    workspace: tuple
    options: tuple
    instrument: str = "none"
    instruments: tuple = ()
    preparations: tuple = ()
    counter_bytes: int = 0

    @property
    def workspace_bytes(self):
        return sum(w.bytes for w in self.workspace)

    @property
    def variant(self):
        return load_variant(self.config.variant)

    @property
    def kind(self):
        """The problem's kind with the alignments that the variant distinguishes."""
        return self.problem.kind.with_alignment(self.variant.alignment_classes)


def make_plan(problem, profile, config, instrument="none"):
    """The plan of a valid configuration; ConfigError lists every violated constraint."""
    variant = load_variant(config.variant)
    config = variant.complete(config)
    reasons = variant.reject(config, problem, profile)
    if reasons:
        raise ConfigError(config, reasons)
    kind = problem.kind.with_alignment(variant.alignment_classes)
    derived = vars(variant.derived(config, kind, profile))
    rendered = {**{name: config.values()[name] for name in variant.parameters}, **derived}
    extra = variant.instruments(instrument, config, problem, profile)
    scratch = dict(variant.workspace(config, problem, profile))
    counter_bytes = scratch.pop("counters", {"bytes": 0})["bytes"]
    workspace = tuple(
        Workspace(name, w["bytes"], w.get("alignment", 64), w.get("first", 0), w.get("last", 0))
        for name, w in scratch.items()
    )
    launches, preparations = [], []
    for launch in variant.launches(config, problem, profile):
        arguments, values = _arguments(launch, problem, config, variant)
        arguments += [_instrument_argument(name, instrument, kind) for name in extra]
        identity = [variant.digest, launch["entry"], repr(kind), sorted(rendered.items()),
                    instrument, [str(x) for x in arguments]]  # fmt: skip
        launches.append(
            Launch(
                entry=launch["entry"],
                global_size=tuple(launch["global_size"]),
                local_size=tuple(launch["local_size"]),
                arguments=tuple(arguments),
                values=tuple(values.items()),
                source_key=hashlib.sha256(repr(identity).encode()).hexdigest(),
            )
        )
        for entry in launch.get("prepares", ()):
            preparations.append(_preparation(len(launches) - 1, launches[-1], workspace, **entry))
    reasons = [x for launch in launches for x in _launch_faults(launch, kind.index, profile)]
    local_bytes = derived.get("local_bytes", 0)
    if local_bytes > profile.usable_local_bytes:
        # Checked for every variant, whatever its constraints: PoCL does not fail, it corrupts.
        reasons.append(f"local_bytes: {local_bytes} > {profile.usable_local_bytes}")
    reasons += [
        f"workspace {w.name}: {w.bytes} bytes > {profile.max_alloc_bytes} in one allocation"
        for w in workspace
        if w.bytes > profile.max_alloc_bytes
    ]
    if reasons:
        raise ConfigError(config, reasons)
    return Plan(
        problem=problem,
        config=config,
        launches=tuple(launches),
        rendered=tuple(sorted(rendered.items())),
        workspace=workspace,
        options=build_options(profile),
        instrument=instrument,
        instruments=tuple(extra.items()),
        preparations=tuple(preparations),
        counter_bytes=counter_bytes,
    )


def _preparation(index, launch, scratch, *, operand, workspace, items, apart_from):
    first, count = items
    size = next(w.bytes for w in scratch if w.name == workspace)
    others = "b_" if operand == "a" else "a_"  # the other operand's strides
    values = tuple(
        x for x in launch.values if x[0] not in apart_from and not x[0].startswith(others)
    )
    key = (launch.source_key, values, size, count)
    return Preparation(index, first, count, operand, workspace, size, key)


def build_options(profile):
    """Compiler options. No option that relaxes arithmetic is ever among them."""
    if profile.family == "oclgrind":
        # The simulator lacks an instruction (freeze) that optimisation makes of / and %; and
        # what it is to see is the kernel as it was written.
        return ("-cl-std=CL1.2", "-cl-opt-disable")
    return ("-cl-std=CL1.2",)


def render(plan):
    """The OpenCL C text of each launch's program, in order; TemplateError."""
    return tuple(render_launch(plan, launch) for launch in plan.launches)


def render_launch(plan, launch):
    """The OpenCL C text of one launch's program."""
    kind = plan.kind
    compute = COMPUTE_TYPES[kind.compute]
    names = {x.name for x in launch.arguments}
    arrays = [x for x in _array_types(kind) if x.name in names]
    literal = _literal(compute)
    values = dict(
        kind=kind,
        compute=compute,
        out=ELEMENT_TYPES[kind.out.dtype],
        aux=ELEMENT_TYPES[kind.aux] if kind.aux else None,
        result=ELEMENT_TYPES[kind.result],
        loaded=[x for x in arrays if x.name not in WRITTEN],
        arrays=arrays,
        orders={x.name: x.order for x in arrays},
        parameters=",\n    ".join(map(str, launch.arguments)),
        entry=launch.entry,
        arguments=names,
        instrument=plan.instrument,
        literal=literal,
        expression=_expression(kind, literal),
    )
    clash = sorted(set(values) & {name for name, _ in plan.rendered})
    if clash:
        raise TemplateError(
            plan.variant.name, 0, f"parameters or derived values use reserved names: {clash}"
        )
    text = templates.render(plan.variant.name, {**values, **dict(plan.rendered)})
    return _tidy(text)


def _tidy(text):
    """Without the blank lines that control lines and empty defs leave behind."""
    lines = [line.rstrip() for line in text.split("\n")]
    kept = [x for x, before in zip(lines, ["", *lines], strict=False) if x or before]
    return "\n".join(kept) + ("" if kept and not kept[-1] else "\n")


def _array_types(kind):
    """What load and index functions must know of each array that may take part."""

    def array(name, dtype, order="strided", conjugate=False):
        element = ELEMENT_TYPES[dtype]
        return SimpleNamespace(
            name=name, storage=element.storage, kind=element.kind, order=order, conjugate=conjugate
        )

    for name in ("a", "b", "out"):
        operand = getattr(kind, name)
        yield array(name, operand.dtype, operand.order, operand.conjugate)
    for name in ("c", *EPILOGUE_OPERANDS, "aux"):
        if getattr(kind, name):
            yield array(name, getattr(kind, name))
    for name, dtype in kind.extras:
        yield array(f"extra_{name}", dtype)


def _literal(compute):
    """A function that writes a constant in the accumulator's scalar type."""
    if compute.kind in ("bool", "integer"):
        return lambda text: text
    suffix = "f" if compute.scalar == "float" else ""
    return lambda text: (text if "." in text else text + ".0") + suffix


def _expression(kind, literal):
    if kind.expression is None:
        return None
    names = tuple(name for name, _ in kind.extras)
    return read_expression(kind.expression, names).as_c(literal)


def _arguments(launch, problem, config, variant):
    """The KernelArguments of a launch, in order, and the values of those of role index."""
    values = {}
    arguments = []
    # What the launch states wins: a run-time parameter may be a limit that the problem lowers.
    known = {name: config.values()[name] for name in variant.runtime_parameters}
    known.update(launch.get("values", {}))
    scratch = variant.header.get("WORKSPACE_TYPES", {})

    def index(name, value):
        arguments.append(KernelArgument(name, "const index_t ", "index"))
        values[name] = value

    for name in launch["args"]:
        if name in ("a", "b"):
            if problem.alpha != "zero":
                _operand_arguments(name, getattr(problem, name), arguments, index)
        elif name == "out":
            for array, operand in problem.operands():
                if array not in ("a", "b"):
                    _operand_arguments(array, operand, arguments, index)
        elif name == "sizes":
            for size in ("m", "n", "k"):
                index(size, getattr(problem, size))
        elif name == "batch":
            index("batch_count", problem.batch_count)
            for d, size in enumerate(problem.batch[1:], 1):
                index(f"batch_size_{d}", size)
        elif name == "scalars":
            for scalar in ("alpha", "beta"):
                if getattr(problem, scalar) == "general":
                    arguments.append(KernelArgument(scalar, "const acc_t ", "scalar"))
            if problem.epilogue.activation == "clamp":
                for bound in ("clamp_low", "clamp_high"):
                    arguments.append(KernelArgument(bound, "const acc_t ", "scalar"))
        elif name in known:
            index(name, known[name])
        elif name in scratch:
            arguments.append(KernelArgument(name, f"__global {scratch[name]} *", "buffer"))
        else:
            raise TemplateError(
                variant.name, 0,
                f"launch argument {name!r} is unknown: it is none of {ARGUMENT_GROUPS}, no "
                "run-time parameter, no value and not in WORKSPACE_TYPES",
            )  # fmt: skip
    return arguments, values


def _operand_arguments(name, operand, arguments, index):
    element = ELEMENT_TYPES[operand.dtype]
    const = "" if name in WRITTEN else "const "
    arguments.append(KernelArgument(name, f"__global {const}{element.storage} *", "buffer"))
    arguments.append(KernelArgument(f"{name}_offset", "const index_t ", "offset"))
    order = operand.order if name in ("a", "b", "out") else "strided"
    if order != "column":
        index(f"{name}_row_stride", operand.row_stride)
    if order != "row":
        index(f"{name}_col_stride", operand.col_stride)
    for d, stride in enumerate(operand.batch_strides):
        index(f"{name}_batch_stride_{d}", stride)


def _instrument_argument(name, instrument, kind):
    target = "uint" if instrument == "count" else COMPUTE_TYPES[kind.compute].vector
    return KernelArgument(name, f"__global {target} *", "buffer")


def _launch_faults(launch, index, profile):
    """Every limit of the device that a launch's geometry or its parameter list breaks."""
    sizes = {"index": 8 if index == "long" else 4, "buffer": profile.address_bits // 8}
    sizes.update(offset=sizes["index"], scalar=16)
    needed = sum(sizes[x.role] for x in launch.arguments)
    if needed > profile.max_parameter_bytes:
        yield f"bytes of kernel arguments: {needed} > {profile.max_parameter_bytes}"
    items = math.prod(launch.local_size)
    if items > profile.max_work_group_size:
        yield f"work-items a group: {items} > {profile.max_work_group_size}"
    sizes = zip(launch.global_size, launch.local_size, profile.max_work_item_sizes, strict=False)
    for d, (global_size, local_size, limit) in enumerate(sizes):
        if local_size > limit:
            yield f"work-items in dimension {d}: {local_size} > {limit}"
        if global_size < 1 or global_size % local_size:
            yield f"global size {global_size} is no positive multiple of {local_size}"
        if global_size >= 2**profile.address_bits:
            yield f"global size {global_size} needs more than {profile.address_bits} bits"

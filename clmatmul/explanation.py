"""The line for one problem, as text: every value from the arrays to the launches."""

from dataclasses import dataclass

from clmatmul.choose import choose
from clmatmul.config import TileConfig
from clmatmul.element_types import element_type, numpy_dtype, product_type
from clmatmul.plan import make_plan, render
from clmatmul.problem import ArrayView, Problem


@dataclass(frozen=True)
class Explanation:
    """What happens for a problem on a device, value by value; `str()` prints it."""

    problem: Problem
    profile: object
    choices: tuple
    route: object
    sources: tuple

    @property
    def choice(self):
        return self.route.choice

    @property
    def plan(self):
        return self.route.executable.plan

    def to_dict(self):
        """The values as JSON can hold them."""
        return {
            "problem": str(self.problem),
            "kind": self.problem.kind.key,
            "flops": self.problem.flops,
            "minimum_bytes": self.problem.minimum_bytes,
            "device": self.profile.title,
            "choices": [
                {"config": str(c.config), "origin": c.origin, "note": c.note} for c in self.choices
            ],
            "chosen": str(self.choice.config),
            "origin": self.choice.origin,
            "passed_over": [
                {"config": str(c.config), "reason": r} for c, r in self.route.passed_over
            ],
            "launches": [str(x) for x in self.plan.launches],
            "workspace_bytes": self.plan.workspace_bytes,
            "options": list(self.plan.options),
            "programs": [p.key for p in self.route.executable.programs],
        }

    def __str__(self):
        return "\n".join(self._lines())

    def _lines(self):
        problem, profile, plan = self.problem, self.profile, self.plan
        yield "problem     " + str(problem)
        yield (
            f"            {problem.flops:.4g} operations on at least {problem.minimum_bytes:.4g} "
            f"bytes; accumulates in {problem.compute}; {problem.kind.index} indices"
        )
        yield f"kind        {problem.kind.key}"
        yield f"device      {profile.title}"
        yield (
            f"            {profile.kind} ({profile.family}), {profile.compute_units} compute units,"
            f" local memory {profile.local_mem_bytes // 1024} KiB, work-groups up to "
            f"{profile.max_work_group_size}, float64 {'yes' if profile.fp64 else 'no'}"
        )
        for i, choice in enumerate(self.choices):
            mark = "→" if choice.config == self.choice.config else " "
            yield f"{'choices' if i == 0 else '':11s}{mark}{i + 1}. {choice}"
        for choice, reason in self.route.passed_over:
            yield f"            passed over: {choice.config}: {reason}"
        yield f"plan        {plan.variant.summary}"
        for launch in plan.launches:
            yield f"            launch {launch}"
        single = [(name, x) for name, x in plan.rendered if not isinstance(x, (list, tuple))]
        rendered = ", ".join(f"{name}={value}" for name, value in single)
        yield f"            in the text: {rendered}"
        yield f"            workspace {plan.workspace_bytes} bytes"
        for launch, source in zip(plan.launches, self.sources, strict=True):
            lines = source.count("\n")
            yield f"source      {launch.entry}: {lines} lines of OpenCL C"
        for launch, program in zip(plan.launches, self.route.executable.programs, strict=True):
            group, local_bytes, private_bytes = program.limits
            yield (
                f"executable  {launch.entry}: built with {' '.join(plan.options)}, kept as "
                f"{program.key[:16]}"
            )
            yield (
                f"            work-groups up to {group}, {local_bytes} bytes of local memory, "
                f"{private_bytes} private"
            )


def plain_problem(m, n, k, dtype="float32", layout="NN", batch=(), accumulate=None):
    """The Problem of a plain product of contiguous arrays.

    layout: N (row-major) or T (column-major) for A and B.
    """
    name = element_type(dtype).name
    batch = tuple(batch)

    def view(rows, cols, letter, element):
        shape = batch + ((rows, cols) if letter == "N" else (cols, rows))
        strides, step = [], 1
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
        whole = ArrayView(element, shape, tuple(strides), 0, 64)
        return whole if letter == "N" else whole.transposed()

    result = product_type(numpy_dtype(name), numpy_dtype(name)).name
    return Problem.from_arrays(
        view(m, k, layout[0], name),
        view(k, n, layout[1], name),
        view(m, n, "N", result),
        result=result,
        accumulate=accumulate,
    )


def explain_problem(device, problem, find_route, database, forced=None):
    """The Explanation of a problem on an open device.

    find_route: what the product itself uses to choose and build (`walk.find_route`).
    """
    forced = None if forced is None else TileConfig.parse(forced)
    route = find_route(device, problem, forced)  # first: it may learn more of the device
    choices = choose(problem, device.profile, None if forced else database, forced)
    plan = make_plan(problem, device.profile, route.choice.config)
    return Explanation(problem, device.profile, choices, route, render(plan))

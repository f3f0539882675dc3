"""What the tuner and its worker say to each other: one JSON object a line.

A request is {"do": name, …}. While it is worked on, the worker says {"state": name} whenever
something begins that has a time limit of its own; the last line is {"reply": …}, or {"error":
kind, "message": text} for an error of this package.
"""

from dataclasses import asdict, fields

from clmatmul import errors
from clmatmul.problem import EPILOGUE_OPERANDS, EpilogueSpec, Operand, Problem


def problem_to_dict(problem):
    """A Problem as JSON can hold it."""
    return asdict(problem)


def problem_from_dict(values):
    """The inverse of problem_to_dict."""

    def operand(x):
        return None if x is None else Operand(**{**x, "batch_strides": tuple(x["batch_strides"])})

    epilogue = values["epilogue"]
    fused = {name: operand(epilogue[name]) for name in (*EPILOGUE_OPERANDS, "aux")}
    plain = {f.name: values[f.name] for f in fields(Problem)}
    plain.update({name: operand(values[name]) for name in ("a", "b", "out", "c")})
    plain["batch"] = tuple(values["batch"])
    plain["epilogue"] = EpilogueSpec(
        activation=epilogue["activation"],
        expression=epilogue["expression"],
        extras=tuple((name, operand(x)) for name, x in epilogue["extras"]),
        **fused,
    )
    return Problem(**plain)


def error_to_dict(error):
    """An error of this package as a reply."""
    return {"error": type(error).__name__, "message": str(error)}


def raise_error(reply):
    """Raise in the tuner what was raised in the worker."""
    kind = getattr(errors, reply["error"], errors.ClmatmulError)
    if kind in (errors.ConfigError, errors.TemplateError, errors.BuildError):
        kind = errors.ClmatmulError  # made from other values than their text
    raise kind(reply["message"])

"""Problems as JSON can hold them: for the tuner's processes, and for lists of shapes."""

from dataclasses import asdict, fields

from clmatmul.errors import ArgumentError
from clmatmul.problem import EPILOGUE_OPERANDS, EpilogueSpec, Operand, Problem


def problem_to_dict(problem):
    """A Problem as JSON can hold it."""
    return asdict(problem)


def problem_from_dict(values):
    """The inverse of problem_to_dict; ArgumentError if the values are those of no problem."""

    def operand(x):
        return None if x is None else Operand(**{**x, "batch_strides": tuple(x["batch_strides"])})

    try:
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
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"not a problem: {error}") from None

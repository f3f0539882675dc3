"""What the tuner and its worker say to each other: one JSON object a line.

A request is {"do": name, …}. While it is worked on, the worker says {"state": name} whenever
something begins that has a time limit of its own; the last line is {"reply": …}, or {"error":
kind, "message": text} for an error of this package.
"""

from clmatmul import errors


def error_to_dict(error):
    """An error of this package as a reply."""
    return {"error": type(error).__name__, "message": str(error)}


def raise_error(reply):
    """Raise in the tuner what was raised in the worker."""
    kind = getattr(errors, reply["error"], errors.ClmatmulError)
    if kind in (errors.ConfigError, errors.TemplateError, errors.BuildError):
        kind = errors.ClmatmulError  # made from other values than their text
    raise kind(reply["message"])

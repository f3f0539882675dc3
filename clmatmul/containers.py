"""Objects that carry a pyopencl array: what a function does to take them and to give them back.

An object takes part if its class has `__opencl_array__(writing)`, which gives the array,
`__opencl_view__(array)`, which gives such an object for a view of its memory, and can be made
from a pyopencl array alone.
"""

import functools
import inspect
import math

from clmatmul.device_arrays import is_device_array


def is_container(x):
    return hasattr(type(x), "__opencl_array__")


def carried(x, writing=False):
    """The pyopencl array in an object that carries one (its `__opencl_array__`), or x itself.

    writing: the array is about to be overwritten, so the object may know that it changed.
    """
    return x.__opencl_array__(writing) if is_container(x) else x


def as_view(original, array):
    """`array`, a view of what `original` carries, in an object of its kind; or array itself."""
    return original.__opencl_view__(array) if is_container(original) else array


def takes_containers(function):
    """Let a function of pyopencl arrays take objects that carry one, and give such an object.

    The object that was given as `out` is the one that comes back.
    """
    places = [
        name
        for name, x in inspect.signature(function).parameters.items()
        if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
    ]
    place = places.index("out") if "out" in places else math.inf

    @functools.wraps(function)
    def opened(*args, **keywords):
        given = [x for x in (*args, *keywords.values()) if is_container(x)]
        out = keywords.get("out", args[place] if len(args) > place else None)
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
            if is_container(out):
                given.append(out)
        if not given:
            return function(*args, **keywords)
        args = [carried(x) for x in args]
        keywords = {name: carried(x) for name, x in keywords.items()}
        if out is not None:
            inner = carried(out, writing=True)
            if "out" in keywords:
                keywords["out"] = inner
            else:
                args[place] = inner
        result = function(*args, **keywords)
        if out is not None:
            return out
        return type(given[0])(result) if is_device_array(result) else result

    return opened

"""TileConfig: the name of a kernel variant with a value for each of its parameters."""

import json
import re
from dataclasses import dataclass

from clmatmul.errors import ArgumentError


@dataclass(frozen=True)
class TileConfig:
    """Which kernel, and with what tile sizes: hashable, printable, to and from text and JSON."""

    variant: str
    parameters: tuple = ()  # ((name, value), …), sorted by name

    @classmethod
    def of(cls, variant, /, **parameters):
        """TileConfig.of('tiled', tile_m=16, …)"""
        return cls(variant, tuple(sorted(parameters.items())))

    @classmethod
    def parse(cls, value):
        """From a TileConfig, its printed form 'tiled(tile_m=16, tile_n=8)', or its JSON object.

        Values are whole numbers, true, false or bare words.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, dict):
            return cls._from_dict(value)
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", str(value), re.DOTALL)
        if not match:
            raise ArgumentError(
                f"config={value!r} is no configuration; write it as 'tiled(tile_m=16, tile_n=16)'"
            )
        name, inside = match.groups()
        parameters = {}
        for item in filter(None, (x.strip() for x in (inside or "").split(","))):
            key, equals, text = item.partition("=")
            if not equals:
                raise ArgumentError(f"config={value!r}: {item!r} is not of the form name=value")
            if key.strip() in parameters:
                raise ArgumentError(f"config={value!r} gives {key.strip()} twice")
            parameters[key.strip()] = _value(text.strip())
        return cls.of(name, **parameters)

    @classmethod
    def _from_dict(cls, value):
        values = dict(value)
        variant = values.pop("variant", None)
        parameters = values.pop("parameters", values)
        if not isinstance(variant, str) or not isinstance(parameters, dict):
            raise ArgumentError(f"config={value!r} names no variant")
        for name, x in parameters.items():
            if not isinstance(name, str) or not isinstance(x, (int, str)):
                raise ArgumentError(f"config={value!r}: {name}={x!r} is no number or word")
        return cls.of(variant, **parameters)

    def values(self):
        """The parameters as a dict."""
        return dict(self.parameters)

    def with_values(self, **parameters):
        return TileConfig.of(self.variant, **{**self.values(), **parameters})

    def to_dict(self):
        return {"variant": self.variant, "parameters": self.values()}

    def to_json(self):
        return json.dumps(self.to_dict(), sort_keys=True)

    def __str__(self):
        inside = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.variant}({inside})" if inside else self.variant


def _value(text):
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)

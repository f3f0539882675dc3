"""kernel_tuner's T4 JSON, so that its tools read what was tuned here, and the other way round.

A result's configuration holds the variant and its parameters; what T4 has no place for (the
problem, the device, the digest) is in `clmatmul`, which other readers pass over.
"""

import json

from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord
from clmatmul.errors import ArgumentError

SCHEMA_VERSION = "1.0.0"
# Our status → T4's invalidity.
_INVALIDITY = {
    "ok": "correct", "build_failed": "compile", "build_timeout": "timeout",
    "launch_failed": "runtime", "hang": "timeout", "crash": "runtime",
    "wrong_result": "correctness", "unstable": "correctness", "too_slow": "timeout",
}  # fmt: skip
_VARIANT = "variant"
_OWN = ("device", "kind", "batch", "m", "n", "k", "digest", "status", "median_ns", "minimum_ns",
        "spread_ns", "samples", "error_ratio", "note", "versions", "time", "seed", "energy_uj",
        "objective")  # fmt: skip


def to_t4(records):
    """A T4 results document of TuningRecords."""
    return {"schema_version": SCHEMA_VERSION, "results": [_result(x) for x in records]}


def _result(record):
    measurements = []
    for name in ("median_ns", "minimum_ns"):
        value = getattr(record, name)
        if value is not None:
            short = "time" if name == "median_ns" else "time_minimum"
            measurements.append({"name": short, "value": value / 1e6, "unit": "ms"})
    median = record.median_ns
    return {
        "timestamp": record.time,
        "configuration": {_VARIANT: record.config.variant, **record.config.values()},
        "times": {
            "compilation": 0, "benchmark": 0, "framework": 0, "search_algorithm": 0,
            "validation": 0, "runtimes": [] if median is None else [median / 1e6],
        },
        "invalidity": _INVALIDITY[record.status],
        "correctness": int(record.status not in ("wrong_result", "unstable")),
        "measurements": measurements,
        "objectives": [record.objective],
        "clmatmul": {name: getattr(record, name) for name in _OWN},
    }  # fmt: skip


def from_t4(document, name):
    """The TuningRecords of a T4 document that clmatmul wrote; ArgumentError.

    A document of other software has no device and no problem: it says so.
    """
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ArgumentError(f"{name}: T4 schema {version!r}; {SCHEMA_VERSION} can be read")
    records = []
    for number, result in enumerate(document["results"], 1):
        own = result.get("clmatmul") if isinstance(result, dict) else None
        if not isinstance(own, dict):
            raise ArgumentError(
                f"{name}: result {number} was not written by clmatmul: it says neither for which "
                "product nor for which device it was measured"
            )
        try:
            configuration = dict(result["configuration"])
            config = TileConfig.of(configuration.pop(_VARIANT), **configuration)
            line = {"schema": 1, **own, "config": config.to_dict()}
            records.append(TuningRecord.from_json(json.dumps(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{name}: result {number}: {error}") from None
    return records

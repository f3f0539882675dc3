"""Walks the line for a problem: ranked choices, the first that builds and proves itself.

A choice that does not build, exceeds the built kernel's own limits or fails its first-use check
is reported once, remembered, and the next one serves. Executables are kept in a bounded cache.
"""

import glob
import logging
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import platformdirs

from clmatmul import first_tuning, probes, repeats
from clmatmul.choose import Choice, choose
from clmatmul.database import (
    TuningDatabase,
    device_slug,
    drop_best,
    kinship,
    read_records,
)
from clmatmul.errors import (
    BuildError,
    ConfigError,
    DatabaseError,
    DeviceError,
    LaunchError,
    VerificationError,
)
from clmatmul.executable import Executable, build
from clmatmul.plan import make_plan
from clmatmul.trial import first_use_check

_log = logging.getLogger("clmatmul")
_MAX_ROUTES = 512
# Terms from which panels that exist already beat a kernel that needs none: 4 x 2048 x 2048 took
# 1.8 instead of 3.0 ms, 128 x 300 x 300 as long either way (PoCL 3.0, 2 cores of an EPYC).
_WORTH_PANELS = 2**23
_FAILURES = (BuildError, LaunchError, VerificationError, ConfigError, DeviceError)


@dataclass(frozen=True)
class Route:
    """What serves a problem: the choice, its executable, and what was passed over and why."""

    choice: Choice
    executable: Executable
    passed_over: tuple = ()  # (Choice, reason)


_lock = threading.Lock()
_routes = OrderedDict()
_failed = {}


def find_route(device, problem, forced=None, memory_limit=None, packed=()):
    """The Route for a problem on a device.

    forced: a configuration (TileConfig or its text) that must serve, or the error says why not.
    memory_limit: bytes of workspace that a choice may use. packed: which of 'a' and 'b' is kept
    as a kernel's own panels from one product to the next.
    """
    key = (id(device), problem, forced, memory_limit, packed)
    with _lock:
        held = _routes.get(key)
        if held is not None and held.executable.device is device:
            _routes.move_to_end(key)
            return held
    route = _walk(device, problem, forced, memory_limit, packed)
    with _lock:
        _routes[key] = route
        while len(_routes) > _MAX_ROUTES:
            _routes.popitem(last=False)
    return route


def _walk(device, problem, forced, memory_limit, packed):
    database = None if forced is not None else database_of(device.profile.key)
    passed_over = []
    probes.learn(device, problem)
    choices = choose(problem, device.profile, database, forced)
    if forced is None and first_tuning.mode() == "auto" and choices[0].origin != "tuned":
        choices = _tuned_now(device, problem, choices)
    if packed and problem.m * problem.n * problem.k >= _WORTH_PANELS:
        choices = sorted(choices, key=lambda x: not _has_panels(x, problem, device, packed))
    for choice in choices:
        failure_key = (device.profile.key, choice.config, problem.kind)
        reason = _failed.get(failure_key)
        if reason is None:
            try:
                plan = make_plan(problem, device.profile, choice.config)
                _check_memory(plan, memory_limit)
                executable = build(device, plan)
                if os.environ.get("CLMATMUL_VERIFY", "1") != "0":
                    first_use_check(device, plan, executable)
                return Route(choice, executable, tuple(passed_over))
            except _FAILURES as error:
                if forced is not None:
                    raise
                reason = str(error).splitlines()[0]
                if isinstance(error, (BuildError, VerificationError)):
                    _drop(device.profile.key, problem, choice)
                if not isinstance(error, ConfigError):
                    _failed[failure_key] = reason
                    _log.warning("%s is passed over: %s", choice.config, reason)
        passed_over.append((choice, reason))
    reasons = "\n".join(f"  {choice}: {reason}" for choice, reason in passed_over)
    raise LaunchError(f"no kernel could serve {problem} on {device.profile.title}:\n{reasons}")


def _tuned_now(device, problem, choices):
    """The choices after the first call of this size was tuned; the same if that failed."""
    key = device.profile.key
    journal = tuning_folder() / "journals" / f"{device_slug(key)}.first-calls.{os.getpid()}.jsonl"
    winner, failed = first_tuning.tune_first_use(device, problem, choices, journal, best_file(key))
    _failed.update({(key, config, problem.kind): why for config, why in failed.items()})
    if winner is None:
        return choices
    _recorded.cache_clear()
    return choose(problem, device.profile, database_of(key))


def _drop(device_key, problem, choice):
    """A user's record that does not work any more is taken out, where that can be done."""
    found = database_of(device_key).lookup(problem)
    if choice.origin != "tuned" or found is None or found[1].config != choice.config:
        return
    try:
        drop_best(best_file(device_key), found[1])
    except DatabaseError as error:
        _log.info("%s", error)


def _has_panels(choice, problem, device, packed):
    """True if a choice's kernel reads an operand that is packed as panels made once."""
    try:
        plan = make_plan(problem, device.profile, choice.config)
    except ConfigError:
        return False
    return any(x.operand in packed for x in plan.preparations)


def _check_memory(plan, limit):
    if limit is not None and plan.workspace_bytes > limit:
        raise ConfigError(
            plan.config, [f"workspace <= memory_limit: {plan.workspace_bytes} > {limit} bytes"]
        )


def forget():
    """Drop remembered routes, failures and databases: the next call chooses afresh."""
    with _lock:
        _routes.clear()
        _failed.clear()
        _recorded.cache_clear()
    repeats.forget()


def tuning_folder(database=None):
    """Where this user's tuning records live: under `database`, CLMATMUL_DB or the data folder."""
    chosen = database or os.environ.get("CLMATMUL_DB")
    return Path(chosen or platformdirs.user_data_dir("clmatmul", appauthor=False)) / "tuning"


def best_file(device_key, database=None):
    """The small file of best records that products read."""
    return tuning_folder(database) / f"{device_slug(device_key)}.best.jsonl"


def database_of(device_key):
    """The TuningDatabase of a device, read once a process; empty under CLMATMUL_TUNE=off.

    A file that cannot be read is reported.
    """
    return TuningDatabase() if first_tuning.mode() == "off" else _recorded(device_key)


@cache
def _recorded(device_key):
    try:
        user = read_records(best_file(device_key))
    except DatabaseError as error:
        _log.warning("%s; untuned choices are used", error)
        user = []
    user = [record for record in user if record.device == device_key]
    return TuningDatabase(user, shipped_records(device_key), _hints(device_key))


def _hints(device_key):
    """(kinship, record) of related devices: the user's under another driver, and shipped ones."""
    # Of what is shipped, this device's alone: other devices' users have heuristics of their own.
    found = [x for x in _shipped() if kinship(device_key, x.device) == 1]
    folder = tuning_folder()
    name = device_slug(device_key).rpartition("-")[0]
    try:
        for file in sorted(folder.glob(f"{glob.escape(name)}-*.best.jsonl")):
            if file != best_file(device_key):
                found += read_records(file)
    except (DatabaseError, OSError) as error:
        _log.info("%s", error)
    kin = [(kinship(device_key, x.device), x) for x in found]
    return [(k, x) for k, x in kin if k]


def shipped_records(device_key):
    """The records of a device that the package delivers: what is known before any tuning."""
    return [x for x in _shipped() if x.device == device_key]


@cache
def _shipped():
    records = []
    folder = resources.files("clmatmul").joinpath("shipped")
    # A wheel has no empty folders: without a record there is none.
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name.endswith(".jsonl"):
            with resources.as_file(file) as path:
                records += read_records(path)
    return tuple(records)

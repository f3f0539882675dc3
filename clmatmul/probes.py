"""Probes: facts of a device that are found by running something once, in a process of its own.

Some fast kernels rest on what a driver does but does not promise: more static local memory than it
reports, or PTX that was changed after the build. A variant's header names such facts in PROBES, and
asks for them in REQUIRES. Before the first product that such a variant could serve, they are put to
the test in a child process, because a fault ends a context and a wait that never ends hangs. What
was found is kept with the driver's version. A probe that fails is 0, with one warning: the variant
is not offered then, and the next choice serves.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from clmatmul.cases import make_case
from clmatmul.device import CompileFailure, LaunchFailure, wait
from clmatmul.device_profile import DeviceProfile
from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.errors import ClmatmulError
from clmatmul.probe_records import probe_file, read_probes, write_probes
from clmatmul.problem import OperandKind, ProblemKind
from clmatmul.selection import resolve
from clmatmul.trial import check_case
from clmatmul.variants import all_variants, load_variant

_log = logging.getLogger("clmatmul")
_SECONDS = 60  # for one child process
# Products below this are done before a child process has started.
_WORTH_FLOPS = 2**27
# The largest static arrays of devices with 227, 163 and 99 KiB a work-group.
_STATIC_BYTES = (231424, 166912, 101376, 65536)
_lock = threading.Lock()
_asked = set()


def learn(device, problem):
    """Run the probes that a variant needs to be offered for a problem, if it is large enough."""
    if problem.flops >= _WORTH_FLOPS and not device.profile.is_cpu:
        ensure(device, problem.kind)


def ensure(device, kind):
    """Run the probes that a variant needs to be offered for a kind, if they never were."""
    missing = missing_probes(kind, device.profile)
    if not missing:
        return
    with _lock:
        key = device.profile.key
        missing = [x for x in missing if (key, x) not in _asked]
        known = read_probes(key)
        if any(x not in known for x in missing):
            found = run_probes(device.profile, missing)
            known = {**read_probes(key), **{x: v for x, v in found.items() if v is not None}}
            write_probes(key, known)
            known = {**dict.fromkeys(missing, 0), **known}
        _asked.update((key, x) for x in missing)
    device.learn(known)


def ensure_usual(device):
    """Run what any variant may ask for, for those who look at all variants: tuning, self-check."""
    for dtype in ("float16", "float64"):
        ensure(device, _kind(dtype, ("row", "row")))


def missing_probes(kind, profile):
    """Probes that were not run, of variants that would serve this kind if all went well."""
    found = []
    for variant in all_variants():
        wanted = variant.header.get("PROBES", {})
        unknown = [x for x in wanted if profile.probe(x) is None]
        if unknown and not variant.unmet(kind, profile.with_probes(**wanted)):
            found += [x for x in unknown if x not in found]
    return found


def run_probes(profile, names):
    """name → number found, each by a child process; a warning where one failed.

    0: it failed; None: no process could be started, which says nothing of the device.
    """
    found = {}
    for name in names:
        value, why = _ask_child(profile, name)
        found[name] = value
        if not value:
            _log.warning(
                "%s: probe %s failed (%s); slower kernels serve. It is tried again with another "
                "driver, or once %s is deleted",
                profile.title, name, why, probe_file(profile.key),
            )  # fmt: skip
    return found


def _ask_child(profile, name):
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "CLMATMUL_CACHE": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "clmatmul.probes", name], input=profile.to_json(),
            capture_output=True, text=True, timeout=_SECONDS, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 0, f"no answer in {_SECONDS} s"
    except OSError as error:
        return None, str(error)
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        return int(answer["value"]), answer["why"]
    except (ValueError, KeyError, IndexError):
        return 0, f"its process ended with code {done.returncode}"


# ---- what a child process does --------------------------------------------------------------


def static_local_bytes(device):
    """The largest static array in local memory that holds what was put there."""
    for size in _STATIC_BYTES:
        if size > device.profile.local_mem_bytes and _holds(device, size):
            return size, ""
    return 0, "no array above the reported size holds its values"


_FILL = """
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void fill(__global uint *sums) {
    __local uint cells[%(count)d];
    for (uint i = get_local_id(0); i < %(count)d; i += 256) cells[i] = i * 2654435761u;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint sum = 0;
    for (uint i = get_local_id(0); i < %(count)d; i += 256) sum += cells[%(count)d - 1 - i] ^ i;
    sums[get_global_id(0)] = sum;
}
"""


def _holds(device, size):
    count, groups = size // 4, 2 * device.profile.compute_units
    try:
        program = device.compile(_FILL % {"count": count}, ("-cl-std=CL1.2",))
        kernel = device.kernel(program, "fill", [None])
        sums = device.upload(np.zeros(256 * groups, np.uint32))
        queue = device.queue()
        wait([device.launch(queue, kernel, [sums], (256 * groups,), (256,), [])])
    except (CompileFailure, LaunchFailure, ClmatmulError):
        return False
    found = np.empty((groups, 256), np.uint32)
    device.read(queue, sums, found)
    i = np.arange(count, dtype=np.uint32)
    terms = (i[::-1] * np.uint32(2654435761)) ^ i
    expected = [terms[item::256].sum(dtype=np.uint32) for item in range(256)]
    return bool((found == np.array(expected, np.uint32)).all())


def wgmma(device):
    """1 if the kernel whose text is changed after the build gives right products here.

    It rests on three undocumented facts at once: the driver's PTX may be given back to it for
    another target, a tensor map may be made on the device from zeros, and static local memory may
    be larger than reported.
    """
    variant = load_variant("nv_wgmma")
    rng = np.random.default_rng(1)
    for dtype, orders in (("float16", ("row", "row")), ("int8", ("row", "column"))):
        kind = _kind(dtype, orders)
        for data in ("ids_a", "ids_b", "exact"):
            case = make_case(kind, 300, 400, 333, data, rng)
            verdict = check_case(device, variant.default, case)
            if verdict.fault:
                return 0, f"{dtype}: {verdict.fault}"
    return 1, ""


def _kind(dtype, orders):
    """The kind of a plain product of well-aligned operands."""
    result = "int32" if dtype == "int8" else dtype
    a, b = (OperandKind(dtype, order, 64) for order in orders)
    return ProblemKind(
        a=a, b=b, out=OperandKind(result, "row", 64), c=None, alpha="one", beta="zero", bias=None,
        residual=None, row_scale=None, col_scale=None, activation="none",
        compute=ELEMENT_TYPES[result].compute, result=result, reproducible=False, batch_rank=0,
        index="int",
    )  # fmt: skip


_PROBES = {"static_local_bytes": static_local_bytes, "wgmma": wgmma}


def main(name):
    """Run one probe on the device whose profile stands on standard input; print its result."""
    asked = DeviceProfile.from_json(sys.stdin.read())
    device = resolve(asked)
    assumed = {}
    for variant in all_variants():
        assumed.update(variant.header.get("PROBES", {}))
    device.learn({**assumed, **dict(asked.probes)})
    try:
        value, why = _PROBES[name](device)
    except ClmatmulError as error:
        value, why = 0, str(error).splitlines()[0]
    print(json.dumps({"value": value, "why": why}))


if __name__ == "__main__":
    main(sys.argv[1])

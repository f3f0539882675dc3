"""What a child process does: it opens a device, builds changed programs and judges each by cases.

It goes on with the next changed program for as long as the kernel as it was still gives the right
result there. Programs are built without optimisation on PoCL, which takes a third of the time, and
workspaces are full of poison.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import conformance_matrix
import numpy as np
from conformance_plugin import keep_buffers
from native_device import Finding, NativeDevice

from clmatmul import cases, executable, plan, selection, trial
from clmatmul.device import Device
from clmatmul.errors import BuildError, ClmatmulError, ConfigError
from clmatmul.plan import render_launch
from clmatmul.trial import check_case

SAFE_BYTES = 2**16  # on either side of an output
# Of this process: its device, what kind it is, and how much of Oclgrind's log it has looked at.
_child = {"device": None, "family": None, "log": 0}


def fates(target, text, changes, step, options=()):
    """(how, note) of each of `changes` in place of `text`, for as long as that can be known."""
    prepare_process(step, options)
    turn = compiled_in_turn if step == "compile" else judged_in_turn
    return turn(target, text, changes, step)


def judged_in_turn(target, text, changes, step):
    """(how, note) of each of `changes` in place of `text`, while this process is sound."""
    sound = executable._programs
    for changed in changes:
        executable._programs = executable._Programs()
        how, note = judged(target, text, changed)
        built, executable._programs = executable._programs, sound
        if how == "survived" and changed != text and step in ("quick", "native"):
            how = "same" if same_code(target, text, built, sound) else how
        yield how, note
        if judged(target, text, text, brief=True)[0] != "survived":
            return  # its memory is damaged, or its device is


def same_code(target, text, built, sound):
    """Whether all programs of a mutant are, as PTX, those of the kernel as it was.

    Elsewhere than on NVIDIA's devices nobody knows here; there, PTX comes with the build. In their
    part, this machine's processor has code of its own.
    """
    if _child["family"] not in ("nvidia", "native"):
        return False
    judged(target, text, text)  # builds what is missing in `sound`
    return all(code_of(x) == code_of(sound._programs[name]) for name, x in built._programs.items())


def code_of(program):
    device = program.device
    find = device.code_of if isinstance(device, NativeDevice) else device.binary_of
    return find(program._built)


def prepare_process(step, more=()):
    if step == "simulate":  # before there is a device
        os.environ["OCLGRIND_LOG"] += f".{os.getpid()}"
    if step == "native":
        play_nvidia()
        return
    _child["device"] = selection.resolve()
    own = _child["device"].profile  # not the guise of another
    _child["family"] = own.family
    options = (*plan.build_options(own), *more)
    if step == "quick" and own.family == "pocl":
        options += ("-cl-opt-disable",)
    plan.build_options = lambda profile: options
    if step == "simulate":
        cases._BEFORE_ELEMENTS = 0  # what is read before a matrix is outside its buffer, too
        keep_buffers(Device)
        return
    # Most of what is written to a wrong place is written nearby: there it does no harm.
    cases._GUARD_ELEMENTS = SAFE_BYTES // 4 + 3
    Device.scratch = lambda self, queue, name, size: self.upload(
        np.full(size + SAFE_BYTES, 0xFF, np.uint8)
    )


def play_nvidia():
    """This machine's processor in the part of an NVIDIA device, which checks every access."""
    _child["device"] = NativeDevice(None, os.environ["CLMATMUL_NATIVE_FOLDER"])
    _child["family"] = "native"
    trial.devices = SimpleNamespace(wait=lambda events: None)
    cases._BEFORE_ELEMENTS = 0  # what is read before a matrix is outside its buffer, too


def judged(target, text, changed, brief=False):
    """(how, note) of a program in place of another, by all cases or the first."""
    executable.render_launch = lambda plan, launch: (
        changed if render_launch(plan, launch) == text else render_launch(plan, launch)
    )
    device = _child["device"]
    device.profile = target.profile  # with what probes found
    if isinstance(device, NativeDevice):
        device.runs = 0  # of one case, the same order every time
    ran = False
    for size, data in target.cases("OCLGRIND_LOG" in os.environ):
        try:
            fault = check_case(device, target.config, target.case(size, data)).fault
        except ConfigError:
            continue
        except BuildError:
            return "build", ""
        except Finding as error:
            return "simulator", f"{'×'.join(map(str, size))} {data}: {error}"
        except ClmatmulError as error:
            fault = str(error).splitlines()[0]
        ran = True
        if fault:
            return "wrong", f"{'×'.join(map(str, size))} {data}: {fault}"
        found = simulator_findings()
        if found:
            return "simulator", f"{'×'.join(map(str, size))} {data}: {found}"
        if brief:
            break
    return ("survived", "") if ran else ("build", "no size suits it")


def simulator_findings():
    """What Oclgrind has reported since the last call."""
    log = Path(os.environ.get("OCLGRIND_LOG", "/nonexistent"))
    text = log.read_text(errors="replace")[_child["log"] :] if log.exists() else ""
    _child["log"] += len(text)
    return conformance_matrix.describe(conformance_matrix.parse_oclgrind_log(text))


def compiled_in_turn(target, text, changes, step):
    """(how, note) of each of `changes`: same, if its machine code is that of `text`."""
    with tempfile.TemporaryDirectory(dir=os.environ["POCL_CACHE_DIR"]) as folder:
        os.environ["POCL_CACHE_DIR"] = folder
        code, known = set(), set()
        for changed in (text, *changes):
            executable._programs = executable._Programs()
            how, note = judged(target, text, changed)
            files = set(Path(folder).rglob("*.so")) - known
            known |= files
            digests = {(x.name, hashlib.sha256(x.read_bytes()).hexdigest()) for x in files}
            if changed is text:
                code = digests  # of all programs that the cases run; only one is built anew below
            elif how == "survived" and digests and digests <= code:
                yield "same", ""
            else:
                yield how, note

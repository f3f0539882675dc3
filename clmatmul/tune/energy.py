"""Meters of energy: what the machine itself counts while a kernel runs.

For a CPU that is RAPL, which Linux shows in /sys/class/powercap; for a GPU of NVIDIA's it is NVML,
through nvidia-ml-py. Both count all that the processor or the card does: other programs, and what
an idle one draws, are in it. So a search for the least energy wants a machine of its own.
"""

import math
import re
import time
from pathlib import Path

from clmatmul.device import wait
from clmatmul.errors import MeasurementError, UnsupportedError

POWERCAP = Path("/sys/class/powercap")
_CHUNK_NS = 10e6  # runs are waited for together, so that a small one is not mostly the host's work
_MOST_IN_CHUNK = 200


def find_meter(device, powercap=POWERCAP):
    """The meter of a Device: `name`, `seconds` that it needs to tell, and `read_uj()`.

    UnsupportedError says what was looked for, and what would help.
    """
    if device.profile.kind == "cpu":
        return Rapl(powercap)
    if device.profile.family == "nvidia":
        return Nvml(device.pci_address(), device.profile.name)
    raise _refused(
        f"{device.profile.title} has no meter that is known here: for CPUs RAPL in {powercap} is "
        "read, for NVIDIA's GPUs NVML"
    )


def energy_uj(meter, run, run_ns):
    """µJ of one `run(i)`, which enqueues and returns (first, last) events, on average.

    run_ns: about how long one takes. Runs for as long as the meter needs. MeasurementError if it
    did not move.
    """
    chunk = max(1, min(math.ceil(_CHUNK_NS / run_ns), _MOST_IN_CHUNK))
    wait([run(0)[1]])
    before, begin, done = meter.read_uj(), time.perf_counter(), 0
    while not done or time.perf_counter() - begin < meter.seconds:
        for _ in range(chunk):
            done += 1
            last = run(done)[1]
        wait([last])
    spent = meter.read_uj() - before
    if spent <= 0:
        raise MeasurementError(f"{meter.name} counted nothing in {meter.seconds:g} s")
    return spent / done


def _refused(why):
    return UnsupportedError(f"objective='energy' needs a meter of energy: {why}")


class Rapl:
    """The packages of a CPU, and their memory where it is counted, by RAPL's counters.

    They are renewed each millisecond, and begin anew at a value that the system states.
    """

    name = "RAPL"
    seconds = 0.1

    def __init__(self, folder=POWERCAP):
        self._domains = [_Counter(x) for x in sorted(folder.glob("intel-rapl:*")) if _counts(x)]
        if not self._domains:
            raise _refused(
                f"no RAPL counter was found: looked for {folder}/intel-rapl:*/energy_uj of a "
                "package (virtual machines and containers mostly have none)"
            )

    def read_uj(self):
        """µJ since this meter was made."""
        return sum(x.read_uj() for x in self._domains)


def _counts(folder):
    """Whether a domain is a package, or its memory: the others are parts of these, or more."""
    try:
        name = (folder / "name").read_text().strip()
    except OSError:
        return False
    known = re.fullmatch(r"package-\d+(-die-\d+)?|dram", name)
    return bool(known) and (folder / "energy_uj").exists()


class _Counter:
    """One counter that begins anew when it is full."""

    def __init__(self, folder):
        self._file = folder / "energy_uj"
        self._range = self._number(folder / "max_energy_range_uj")
        self._last = self._number(self._file)
        self._total = 0

    def read_uj(self):
        now = self._number(self._file)
        self._total += (now - self._last) % (self._range + 1)
        self._last = now
        return self._total

    @staticmethod
    def _number(file):
        try:
            return int(file.read_text())
        except OSError as error:
            raise _refused(
                f"{file} cannot be read: {error.strerror}; RAPL's counters are root's, so run as "
                "root, or let others read: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
            ) from None
        except ValueError:
            raise _refused(f"{file} holds no number") from None


class Nvml:
    """One GPU of NVIDIA's, by the counter of its driver's library, renewed ten times a second.

    address: of the device on the PCI bus, None if OpenCL does not tell it: then the name decides,
    if it is that of one GPU alone.
    """

    name = "NVML"
    seconds = 1.0

    def __init__(self, address, name):
        try:
            import pynvml
        except ImportError:
            raise _refused(
                f"for {name} NVML is read, by nvidia-ml-py, which is not installed: "
                "pip install 'clmatmul[energy]'"
            ) from None
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._gpu = self._find(address, name)
            self.read_uj()
        except pynvml.NVMLError as error:
            raise _refused(f"NVML does not count the energy of {name}: {error}") from None

    def _find(self, address, name):
        if address is not None:
            return self._nvml.nvmlDeviceGetHandleByPciBusId(address)
        count = self._nvml.nvmlDeviceGetCount()
        all_gpus = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        named = [x for x in all_gpus if self._nvml.nvmlDeviceGetName(x) == name]
        if len(named) != 1:
            raise _refused(f"NVML knows {len(named)} GPUs of the name {name}, and OpenCL tells no "
                           "PCI address to choose by")  # fmt: skip
        return named[0]

    def read_uj(self):
        """µJ since the driver was loaded."""
        return 1000 * self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu)

"""GPU compilers that run without their GPUs: how to get them, call them and read what they say.

Intel's ocloc (Debian: intel-opencl-icd), clang with libclc for AMD and for NVIDIA's PTX (Debian:
clang-19, libclc-19), and ptxas (PyPI: nvidia-cuda-nvcc-cu12) for registers of NVIDIA's machine
code. `fetch` unpacks all of them into a folder: nothing is installed, no driver is added.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from clmatmul.device_profile import DeviceProfile

DEBIAN_PACKAGES = (
    "clang-19", "libllvm19", "libclang-cpp19", "libclang-common-19-dev", "libclang1-19",
    "libclc-19", "intel-opencl-icd", "libigc1", "libigdfcl1", "libigdgmm12",
    "libopencl-clang14", "libllvmspirvlib14",
)  # fmt: skip
PTXAS_PACKAGE = "nvidia-cuda-nvcc-cu12"
_PROFILES = Path(__file__).resolve().parent.parent / "tests" / "profiles"


class UnavailableError(Exception):
    """A compiler is not there; the text says how to get it."""


@dataclass(frozen=True)
class Target:
    """A GPU to compile for: `compiler` is amd, intel or nvidia, `chip` its name for the compiler.

    profile: what pure code is told of such a device, so that its own defaults are compiled.
    """

    name: str
    compiler: str
    chip: str
    profile: DeviceProfile


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a kernel. Numbers that it does not tell are None.

    registers: of 32 bits, a work-item. spilled: bytes a work-item (AMD: scratch) or what Intel's
    compiler calls "spilled around"; 0 is wanted. local_bytes: a work-group. occupancy: AMD: waves
    a SIMD; NVIDIA: work-groups a multiprocessor; Intel: the SIMD width.
    """

    registers: int | None
    spilled: int
    local_bytes: int | None
    occupancy: int | None
    error: str = ""


def _profile(base, **changes):
    return replace(DeviceProfile.from_json((_PROFILES / base).read_text()), **changes)


def targets():
    """The GPUs of the table, in its order."""
    amd, intel, nvidia = "amd-mi210.json", "intel-iris-xe.json", "nvidia-h200.json"

    def one(name, compiler, chip, base, **changes):
        return Target(name, compiler, chip, _profile(base, name=chip, **changes))

    return (
        one("AMD Vega 20 (gfx906)", "amd", "gfx906", amd, compute_units=60),
        one("AMD MI300 (gfx942)", "amd", "gfx942", amd, compute_units=304),
        one("AMD RDNA 2 (gfx1030)", "amd", "gfx1030", amd, compute_units=40),
        one("AMD RDNA 3 (gfx1100)", "amd", "gfx1100", amd, compute_units=48),
        one("Intel Xe-LP (tgllp)", "intel", "tgllp", intel, max_work_group_size=512),
        one("Intel Arc (dg2)", "intel", "dg2", intel, compute_units=512, max_work_group_size=1024),
        one("Intel Max (pvc)", "intel", "pvc", intel, compute_units=512, fp64=True,
            max_work_group_size=1024, local_mem_bytes=131072),
        one("NVIDIA (sm_75)", "nvidia", "sm_75", nvidia, compute_units=40),
        one("NVIDIA (sm_90)", "nvidia", "sm_90", nvidia),
    )  # fmt: skip


class Compilers:
    """The compilers of a folder that `fetch` filled, or of the system."""

    def __init__(self, folder=None):
        self.root = Path(folder) if folder else None

    def _tool(self, *places):
        for place in places:
            if self.root is not None:
                found = next(iter(sorted(self.root.glob(place))), None)
                if found is not None:
                    return str(found)
            found = shutil.which(Path(place).name)
            if found:
                return found
        raise UnavailableError(
            f"{Path(places[0]).name} is not here; get it with tools/offline_compile --fetch FOLDER"
        )

    def _library(self, chip):
        """libclc's bitcode for a chip."""
        name = f"{chip}-amdgcn-mesa-mesa3d.bc" if chip.startswith("gfx") else f"{chip}.bc"
        for place in (self.root / "usr/lib/clc" if self.root else None, Path("/usr/lib/clc")):
            if place is not None and (place / name).is_file():
                return str(place / name)
        raise UnavailableError(f"libclc's {name} is not here; install libclc-19, or --fetch FOLDER")

    def _run(self, command):
        environment = dict(os.environ)
        if self.root is not None:
            lib = self.root / "usr/lib"
            paths = (lib / "x86_64-linux-gnu", lib / "x86_64-linux-gnu/intel-opencl")
            environment["LD_LIBRARY_PATH"] = ":".join(map(str, (*paths, lib / "llvm-19/lib")))
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def check(self, compiler):
        """UnavailableError unless what a compiler needs is there."""
        if compiler == "intel":
            self._tool("usr/bin/ocloc")
            return
        self._clang()
        self._library("gfx906" if compiler == "amd" else "nvptx64--nvidiacl")
        if compiler == "nvidia":
            self._ptxas()

    def _clang(self):
        return self._tool("usr/lib/llvm-19/bin/clang", "usr/bin/clang-19")

    def _ptxas(self):
        return self._tool("nvidia/cuda_nvcc/bin/ptxas")

    def compile(self, target, source, work_items):
        """The Compiled of an OpenCL C text with one kernel; UnavailableError.

        Kept in the compilers' folder by the text, so that a run that was stopped goes on.
        """
        if self.root is None:
            return self._compile(target, source, work_items)
        name = hashlib.sha256(f"{target.chip} {work_items}\n{source}".encode()).hexdigest()
        file = self.root / "results" / f"{name}.json"
        if file.is_file():
            return Compiled(**json.loads(file.read_text()))
        found = self._compile(target, source, work_items)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(found)))
        return found

    def _compile(self, target, source, work_items):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cl"
            file.write_text(source)
            make = {"amd": self._amd, "intel": self._intel, "nvidia": self._nvidia}
            return make[target.compiler](target.chip, file, work_items)

    def _clang_to_assembly(self, file, triple, library, *options):
        assembly = file.with_suffix(".s")
        run = self._run(
            [self._clang(), "-x", "cl", "-cl-std=CL1.2", "-target", triple, *options, "-O3",
             "-Xclang", "-finclude-default-header", "-Xclang", "-mlink-bitcode-file", "-Xclang",
             library, "-nogpulib", "-S", str(file), "-o", str(assembly)]
        )  # fmt: skip
        if run.returncode:
            return None, Compiled(None, 0, None, None, _first_error(run.stderr))
        return assembly, None

    def _amd(self, chip, file, work_items):
        assembly, failed = self._clang_to_assembly(
            file, "amdgcn-mesa-mesa3d", self._library(chip), f"-mcpu={chip}"
        )
        if failed:
            return failed
        text = assembly.read_text()

        def number(name):
            return int(re.search(rf"; {name}: (\d+)", text).group(1))

        return Compiled(
            number("NumVgprs"), number("ScratchSize"), number("LDSByteSize"), number("Occupancy")
        )

    def _nvidia(self, chip, file, work_items):
        assembly, failed = self._clang_to_assembly(
            file, "nvptx64--nvidiacl", self._library("nvptx64--nvidiacl"), f"-march={chip}"
        )
        if failed:
            return failed
        run = self._run([self._ptxas(), "-v", f"-arch={chip}", str(assembly), "-o", os.devnull])
        if run.returncode:
            return Compiled(None, 0, None, None, _first_error(run.stderr))

        def number(pattern):
            found = re.search(pattern, run.stderr)
            return int(found.group(1)) if found else 0

        registers = number(r"Used (\d+) registers")
        local_bytes = number(r"(\d+) bytes smem")
        held = _nvidia_groups(chip, registers, local_bytes, work_items)
        return Compiled(registers, number(r"(\d+) bytes spill stores"), local_bytes, held)

    def _intel(self, chip, file, work_items):
        ocloc = self._tool("usr/bin/ocloc")
        out = file.parent / "out"
        run = self._run(
            [ocloc, "compile", "-file", str(file), "-device", chip, "-out_dir", str(out),
             "-options", "-cl-std=CL1.2"]
        )  # fmt: skip
        said = run.stdout + run.stderr
        binary = next(iter(sorted(out.glob("*.bin"))), None)
        if run.returncode or binary is None:
            return Compiled(None, 0, None, None, _first_error(said))
        spilled = [int(x) for x in re.findall(r"spilled around (\d+)", said)]
        self._run([ocloc, "disasm", "-file", str(binary), "-device", chip, "-dump", str(out)])
        tokens = _patch_tokens((out / "PTM.txt").read_text(errors="replace"))
        # of a kernel's patch list: local surface (15), scratch space (18), environment (23)
        local_bytes = _word(tokens.get(15), 1)
        scratch = _word(tokens.get(18), 1)
        width = _word(tokens.get(23), 3)
        return Compiled(None, max(spilled, default=0) or scratch or 0, local_bytes or 0, width)


def _patch_tokens(text):
    """token number → its bytes, of the first of each number."""
    found = re.findall(r"Token (\d+)\s+4 Size \d+\s+Hex ([0-9a-f ]*)", text)
    return {int(number): bytes(int(x, 16) for x in data.split()) for number, data in found[::-1]}


def _word(data, place):
    if data is None or len(data) < 4 * place + 4:
        return None
    return int.from_bytes(data[4 * place : 4 * place + 4], "little")


def _nvidia_groups(chip, registers, local_bytes, work_items):
    """Work-groups that a multiprocessor holds at a time, by registers, local memory, threads."""
    local, threads, groups = {"sm_75": (65536, 1024, 16), "sm_90": (233472, 2048, 32)}[chip]
    warps = -(-work_items // 32)
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    by_local = local // (local_bytes + 1024) if local_bytes else groups
    return min(by_registers, by_local, threads // (32 * warps), groups)


def _first_error(text):
    lines = [x for x in text.splitlines() if "error" in x.lower()] or text.splitlines()[-1:]
    return (lines or ["no message"])[0].strip()[:200]


def fetch(folder):
    """Unpack every compiler into a folder, by apt-get, dpkg and pip; needs Debian 12, no root."""
    folder = Path(folder).resolve()
    downloads = folder / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *DEBIAN_PACKAGES], cwd=downloads, check=True)
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(downloads),
         PTXAS_PACKAGE], check=True,
    )  # fmt: skip
    for wheel in downloads.glob("*.whl"):
        shutil.unpack_archive(wheel, folder, "zip")
    for tool in folder.glob("nvidia/cuda_nvcc/bin/*"):
        tool.chmod(0o755)

"""All that pure code knows of a device: facts with units, which are guesses, and probes.

A profile goes to and from JSON, so devices that nobody here owns can live in
`tests/profiles/*.json` and choose kernels in tests.
"""

import json
from dataclasses import asdict, dataclass, fields, replace

from clmatmul.errors import ArgumentError

# What makes a result or a time belong to this device. Memory sizes are left out: some runtimes
# derive them from what is free at the moment.
_KEY_FIELDS = (
    "platform_name",
    "platform_version",
    "vendor",
    "name",
    "driver_version",
    "compute_units",
)


@dataclass(frozen=True)
class DeviceProfile:
    """Facts of one OpenCL device.

    kind: cpu, gpu, accelerator or other. family: the implementation, as far as kernels care
    (pocl, intel-cpu, intel-gpu, nvidia, amd, rusticl, clover, oclgrind, apple, other).
    guesses: names of facts that were not reported but assumed. unreliable: names of reported
    facts known to be false on this runtime. probes: (name, value) of facts found by running
    something once on the device.
    """

    platform_name: str
    platform_version: str
    vendor: str
    name: str
    driver_version: str
    device_version: str
    c_version: str
    kind: str
    family: str
    compute_units: int
    max_clock_mhz: int
    max_work_group_size: int
    max_work_item_sizes: tuple
    local_mem_bytes: int
    local_mem_dedicated: bool
    global_mem_bytes: int
    max_alloc_bytes: int
    cache_bytes: int
    max_parameter_bytes: int
    address_bits: int
    base_alignment_bytes: int
    unified_memory: bool
    fp64: bool
    fp16: bool
    denormals: bool
    hardware_fma: bool
    sub_groups: bool
    extensions: tuple = ()
    guesses: tuple = ()
    unreliable: tuple = ()
    probes: tuple = ()

    @property
    def key(self):
        """The values, one line of JSON, by which tuning records and programs are filed."""
        return json.dumps({name: getattr(self, name) for name in _KEY_FIELDS}, sort_keys=True)

    @property
    def title(self):
        """One line for people."""
        return f"{self.name} ({self.platform_name} {short_version(self.platform_version)})"

    @property
    def is_cpu(self):
        return self.kind == "cpu"

    @property
    def usable_local_bytes(self):
        """Local memory that a kernel may declare: the reported size, or what a probe found."""
        return max(self.local_mem_bytes, self.probe("static_local_bytes", 0))

    @property
    def loop_limit(self):
        """How often a work-item may go round its loops, all together, before the device ends them
        without a word; None for no limit. Mesa's llvmpipe does so (LP_MAX_TGSI_LOOP_ITERATIONS)."""
        return 65535 if self.name.startswith("llvmpipe") else None

    def probe(self, name, default=None):
        """The value of a probe, or `default` if it was never run."""
        return dict(self.probes).get(name, default)

    def with_probes(self, **values):
        """The profile with these probe results added."""
        merged = {**dict(self.probes), **values}
        return replace(self, probes=tuple(sorted(merged.items())))

    def to_json(self):
        """A JSON object as text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text):
        """The inverse of to_json; ArgumentError names missing and unknown fields."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ArgumentError(f"not a device profile in JSON: {error}") from None
        if not isinstance(values, dict):
            raise ArgumentError("not a device profile: the JSON value is no object")
        known = {f.name for f in fields(cls)}
        optional = {"extensions", "guesses", "unreliable", "probes"}
        missing = sorted(known - optional - set(values))
        unknown = sorted(set(values) - known)
        if missing or unknown:
            raise ArgumentError(f"device profile: missing {missing}, unknown {unknown}")
        for name in ("max_work_item_sizes", "extensions", "guesses", "unreliable"):
            if name in values:
                values[name] = tuple(values[name])
        values["probes"] = tuple((name, value) for name, value in values.get("probes", ()))
        return cls(**values)


def short_version(version):
    """The informative part of an OpenCL version string: 'OpenCL 3.0 PoCL 3.0-rc2  Linux, …'."""
    words = version.replace("OpenCL", "").split("Linux")[0].split()
    return " ".join(words[:3])


def family_of(platform_name, vendor, kind):
    """Which implementation this is, as far as kernels care."""
    text = f"{platform_name} {vendor}".lower()
    if "portable computing language" in text or "pocl" in text:
        return "pocl"
    for word in ("rusticl", "clover", "oclgrind", "nvidia", "apple"):
        if word in text:
            return word
    if "intel" in text:
        return "intel-cpu" if kind == "cpu" else "intel-gpu"
    if "amd" in text or "advanced micro devices" in text:
        return "amd"
    return "other"

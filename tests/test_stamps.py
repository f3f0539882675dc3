"""Stamps of what was verified on devices that are not here (tools/stamps.py).

A stale stamp is a warning, not a failure: whoever changes a kernel need not have every GPU, and
what is known on this machine is tested on this machine.
"""

import hashlib
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from clmatmul.variants import load_variant, variant_names

TOOLS = Path(__file__).parent.parent / "tools"
if not (TOOLS / "stamps.py").is_file():
    pytest.skip("not a checkout", allow_module_level=True)
sys.path.insert(0, str(TOOLS))

import stamps  # noqa: E402

NEEDING_PROBES = ("nv_async", "nv_mma", "nv_mma_f64", "nv_wgmma")
GPU_VARIANTS = (
    *("register_blocked", "line_dot", "line_sweep", "line_fill", "tiled", "naive"),
    *NEEDING_PROBES,
)


def test_stamps_say_what_was_verified():
    found = stamps.read_stamps()
    for x in found:
        assert x.variant in variant_names() and x.tests > 50 and len(x.digest) == 64
        profile = stamps.read_profile(x.profile)
        assert (profile.name, profile.driver_version) == (x.device, x.driver)
    assert {x.variant for x in found} >= set(GPU_VARIANTS)
    assert len({(x.variant, x.profile) for x in found}) == len(found)


def test_stale_stamps_are_reported():
    old = stamps.stale(stamps.read_stamps())
    if old:
        names = ", ".join(f"{x.variant} ({x.device})" for x in old)
        warnings.warn(f"changed since they were verified: {names}; tools/stamps.py", stacklevel=1)


def test_a_digest_tells_texts_apart():
    profile = stamps.read_profile("nvidia-h200.json")
    digests = {x: stamps.digest_of(load_variant(x), profile) for x in ("naive", "line_dot")}
    assert digests["naive"] != digests["line_dot"]
    again = stamps.digest_of(load_variant("naive"), profile)
    assert again == digests["naive"]


def test_a_digest_is_of_something():
    """Variants that need probes are rendered as where these went well."""
    profile = stamps.read_profile("nvidia-h200.json")
    digests = {stamps.digest_of(load_variant(x), profile) for x in NEEDING_PROBES}
    assert len(digests) == len(NEEDING_PROBES)
    assert hashlib.sha256().hexdigest() not in digests


def test_another_text_is_stale(tmp_path):
    real = stamps.Stamp(
        "naive", "nvidia-h200.json", "NVIDIA H200", "1", "2026-01-01", 60,
        stamps.digest_of(load_variant("naive"), stamps.read_profile("nvidia-h200.json")),
    )  # fmt: skip
    other = replace(real, digest="0" * 64)
    gone = replace(real, variant="no_such_kernel")
    assert stamps.stale([real, other, gone]) == [other, gone]
    assert stamps.Stamp(**asdict(real)) == real

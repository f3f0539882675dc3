"""tools/restamp: records of devices that are not here stay where their programs are the same."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord
from clmatmul.device_profile import DeviceProfile
from clmatmul.explanation import plain_problem
from clmatmul.variants import load_variant

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import restamp  # noqa: E402


@pytest.fixture
def record():
    """record(variant, device key, dtype) → a TuningRecord of 512³, with an old digest."""
    first = (ROOT / "clmatmul" / "shipped" / "pocl-avx2.jsonl").read_text().splitlines()[0]
    kept = TuningRecord.from_json(first)

    def make(text, device, dtype):
        config = load_variant(text).complete(TileConfig.of(text))
        kind = plain_problem(512, 512, 512, dtype).kind.key
        return replace(kept, config=config, device=device, digest="old", kind=kind)

    return make


def test_records_of_a_kept_profile_are_rendered_without_the_device(record, tmp_path):
    h200 = DeviceProfile.from_json((ROOT / "tests/profiles/nvidia-h200.json").read_text()).key
    records = [
        record("register_blocked", h200, "float32"),
        record("nv_wgmma", h200, "float16"),  # which asks for probes
        record("register_blocked", "elsewhere", "float32"),
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(x.to_json() + "\n" for x in records))
    found = restamp.rendered(ROOT, file)
    assert [text is not None for _, text, _ in found] == [True, True, False]
    before = [("old", text, config) for _, text, config in found]
    kept = restamp.restamped(file.read_text().splitlines(), before, found)
    assert [json.loads(x)["digest"] for x in kept] == [digest for digest, _, _ in found[:2]]
    changed = [("old", ["another text"], {}), *before[1:]]
    assert len(restamp.restamped(file.read_text().splitlines(), changed, found)) == 1


def test_a_record_gets_the_parameters_that_are_newer(record, tmp_path):
    h200 = DeviceProfile.from_json((ROOT / "tests/profiles/nvidia-h200.json").read_text()).key
    made = record("register_blocked", h200, "float32")
    whole = made.config.to_dict()
    fewer = replace(made, config=TileConfig.of("register_blocked", **{
        k: v for k, v in made.config.values().items() if k != "slices"
    }))  # fmt: skip
    file = tmp_path / "records.jsonl"
    file.write_text(fewer.to_json() + "\n")
    found = restamp.rendered(ROOT, file)
    before = [("old", text, {}) for _, text, _ in found]
    (kept,) = restamp.restamped(file.read_text().splitlines(), before, found)
    assert json.loads(kept)["config"] == whole

"""The tuning records that the package ships."""

from collections import Counter
from importlib import resources

from clmatmul.config import TileConfig
from clmatmul.database import TuningRecord
from clmatmul.tune.records import is_live, problem_of
from clmatmul.variants import load_variant


def shipped_files():
    """name → records."""
    folder = resources.files("clmatmul").joinpath("shipped")
    return {
        file.name: [TuningRecord.from_json(line) for line in file.read_text().splitlines()]
        for file in folder.iterdir()
        if file.name.endswith(".jsonl")
    }


def shipped():
    return [record for records in shipped_files().values() for record in records]


def test_every_shipped_record_is_of_a_product_and_a_kernel_that_there_are():
    for record in shipped():
        assert record.status == "ok" and record.median_ns > 0 and record.samples > 5
        variant = load_variant(record.config.variant)
        assert variant.complete(TileConfig.parse(record.config)) == record.config
        assert problem_of(record) is not None, record.kind


def test_shipped_records_are_live_for_the_present_kernels(record_property):
    """If this fails, docs/tuning.md ("What the package ships") says how they are made anew."""
    for name, records in shipped_files().items():
        live = sum(map(is_live, records))
        record_property(f"live in {name}", live)
        print(f"{name}: {live} of {len(records)} records are live")
        assert live > 0


def test_one_record_a_problem_and_device():
    keys = Counter(x.key for x in shipped())
    assert keys and max(keys.values()) == 1

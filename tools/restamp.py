"""Keeps tuning records whose kernels' text changed without changing what is rendered for them.

    python tools/restamp.py OLD_CHECKOUT FILE.jsonl

A record names the digest of its variant's templates. Where those changed, but the programs of the
record's product are the same letter for letter in the old checkout and in this one, its times are
as true as before: it gets the new digest. Others are dropped, and counted. No device is needed but
that of the records, or its profile in tests/profiles.
"""

import json
import sys
from pathlib import Path

from in_checkout import ask

ROOT = Path(__file__).resolve().parent.parent
# Run in each of the checkouts: record → (digest, the programs' text, configuration with parameters
# that are newer than the record), for the device of here or one whose profile is kept; of NVIDIA's
# as if all probes had gone well.
SCRIPT = """
import json, sys
from pathlib import Path
from clmatmul.database import read_records
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError
from clmatmul.plan import make_plan, render_launch
from clmatmul.selection import resolve
from clmatmul.tune.records import problem_of
from clmatmul.variants import all_variants, load_variant
kept = [DeviceProfile.from_json(x.read_text()) for x in Path("tests/profiles").glob("*.json")]
probes = {k: v for x in all_variants() for k, v in x.header.get("PROBES", {}).items()}
known = {
    x.key: x.with_probes(compute_capability=90, **probes) if x.family == "nvidia" else x
    for x in kept
}
known[resolve().profile.key] = resolve().profile
found = []
for record in read_records(sys.argv[1]):
    problem, text, profile = problem_of(record), None, known.get(record.device)
    config = record.config
    if problem is not None and profile is not None:
        try:
            config = load_variant(config.variant).complete(config)
            plan = make_plan(problem, profile, config)
            text = [render_launch(plan, launch) for launch in plan.launches]
        except ClmatmulError:
            text = None
    found.append([load_variant(config.variant).digest, text, config.to_dict()])
print(json.dumps(found))
"""


def rendered(checkout, file):
    """[(digest, programs or None, configuration)] of each record, as a checkout has them."""
    return ask(checkout, SCRIPT, str(file))


def restamped(lines, old, new):
    """The lines that may stay, with this checkout's digests."""
    kept = []
    for line, was, now in zip(lines, old, new, strict=True):
        (old_digest, before, _), (new_digest, after, config) = was, now
        values = json.loads(line)
        if values["digest"] == new_digest:
            kept.append(line)
        elif values["digest"] == old_digest and before is not None and before == after:
            kept.append(json.dumps({**values, "digest": new_digest, "config": config},
                                   sort_keys=True))  # fmt: skip
    return kept


def main(old, file):
    """Rewrite the file; prints how many records stayed."""
    file = Path(file).resolve()
    lines = [x for x in file.read_text().splitlines() if x.strip()]
    kept = restamped(lines, rendered(Path(old).resolve(), file), rendered(ROOT, file))
    file.write_text("".join(x + "\n" for x in kept))
    print(f"{len(kept)} of {len(lines)} records stayed")


if __name__ == "__main__":
    main(*sys.argv[1:])

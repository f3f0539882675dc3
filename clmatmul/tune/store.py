"""Where a tuner's records go, and which are there already."""

from dataclasses import replace
from datetime import datetime, timezone

import clmatmul
from clmatmul import device as devices
from clmatmul import walk
from clmatmul.database import (
    TuningDatabase,
    TuningRecord,
    append_record,
    device_slug,
    publish_best,
    read_records,
)
from clmatmul.variants import load_variant, variant_names


class Store:
    """Records of one device: this process's journal, and the file of the best."""

    def __init__(self, profile, folder, best_file, seed, objective="time"):
        self.profile = profile
        self.best_file = best_file
        self._seed = seed
        self._objective = objective
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
        self._journals = folder / "journals"
        self._slug = device_slug(profile.key)
        self.journal = self._journals / f"{self._slug}.{stamp}.jsonl"
        self._versions = {"clmatmul": clmatmul.__version__, **devices.versions()}

    def record(self, problem, trial):
        """The TuningRecord of a trial, on disk when this returns."""
        record = TuningRecord(
            device=self.profile.key,
            kind=problem.kind.key,
            batch=problem.batch_count,
            m=problem.m,
            n=problem.n,
            k=problem.k,
            digest=load_variant(trial.config.variant).digest,
            versions=self._versions,
            time=_now(),
            seed=self._seed,
            objective=self._objective,
            **vars(trial),
        )
        append_record(self.journal, record)
        return record

    def publish(self, record, note):
        """Make a record the one that products of its problem use; returns it with the note."""
        final = replace(record, note=note, time=_now())
        append_record(self.journal, final)
        publish_best(self.best_file, [final])
        return final

    def known(self, problem):
        """config → the last record of it for this problem, made from the present kernels.

        Where energy is sought, of what passed only what has been measured.
        """
        size = (problem.batch_count, problem.m, problem.n, problem.k)
        key = (self.profile.key, problem.kind.key, size)
        found = {}
        for path in sorted(self._journals.glob(f"{self._slug}.*.jsonl")):
            for record in read_records(path):
                if record.key != key or not _is_current(record):
                    continue
                if record.status == "ok" and self._objective == "energy" and not record.energy_uj:
                    continue
                found[record.config] = replace(record, objective=self._objective)
        return found

    def database(self):
        """The user's best records over the shipped ones, as they are now."""
        return TuningDatabase(read_records(self.best_file), self.shipped())

    def shipped(self):
        return walk.shipped_records(self.profile.key)


def _is_current(record):
    name = record.config.variant
    return name in variant_names() and load_variant(name).digest == record.digest


def _now():
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

"""`clmatmul db`: what is in the tuning database, and what one may do with it."""

import json
import shutil
import tempfile
from pathlib import Path

from clmatmul import selection, walk
from clmatmul.cli.output import Table, print_json, print_table, print_text
from clmatmul.device_profile import DeviceProfile
from clmatmul.errors import ClmatmulError
from clmatmul.tune import records
from clmatmul.tune.report import duration

_FAULTY = 5
_ACTIONS = (
    ("list", "a line a problem: trials, how they ended, the best"),
    ("best", "what products use, and whether it is live"),
    ("report", "counts: live and stale records, devices, unreadable lines"),
    ("merge", "copy other databases in"),
    ("prune", "remove records of kernels that are no more, and unreadable lines"),
    ("export", "write the trials to a file"),
    ("import", "read a file that export wrote"),
    ("verify", "check the best records of a device; exit code 5 if one fails"),
)


def add_arguments(parser):
    """The action, its files, and where the database is."""
    listed = "; ".join(f"{name}: {about}" for name, about in _ACTIONS)
    parser.add_argument("action", choices=[name for name, _ in _ACTIONS], help=listed)
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help="of export and import: a file; of merge: databases")  # fmt: skip
    parser.add_argument("--db", metavar="FOLDER", help="instead of CLMATMUL_DB")
    parser.add_argument("--t4", action="store_true",
                        help="export in kernel_tuner's T4 JSON instead of JSON lines")  # fmt: skip


def run(arguments):
    """Do one action; 5 if `verify` finds a record that fails."""
    database = records.Database(walk.tuning_folder(arguments.db))
    files = arguments.files
    needed = {"merge": "one database or more", "export": "one file", "import": "one file or more"}
    if (arguments.action in needed) != bool(files) or arguments.action == "export" and files[1:]:
        wanted = needed.get(arguments.action, "no file")
        raise ClmatmulError(f"db {arguments.action} takes {wanted}, and was given {len(files)}")
    try:
        return _DO[arguments.action](database, arguments)
    finally:
        walk.forget()


def _list(database, arguments):
    rows = records.summary(database)
    if arguments.json:
        return _json("list", problems=[
            {"device": json.loads(key[0]), "kind": key[1], "size": key[2],
             "statuses": dict(statuses), "best": best and json.loads(best.to_json())}
            for key, statuses, best in rows
        ])  # fmt: skip
    cells = []
    for (device, kind, size), statuses, best in rows:
        ended = ", ".join(f"{n} {name}" for name, n in sorted(statuses.items()))
        took = "" if best is None else duration(best.median_ns)
        config = "" if best is None else best.config.variant
        name = json.loads(device).get("name", "?")
        cells.append((_size(size), _types(kind), str(sum(statuses.values())), ended, took, config,
                      name))  # fmt: skip
    columns = ("product", "types", "trials", "ended", "best", "kernel", "device")
    print_table(Table(columns, tuple(cells), right=("trials", "best")))
    return 0


def _best(database, arguments):
    found = database.best()
    if arguments.json:
        return _json("best", records=[
            {**json.loads(x.to_json()), "live": records.is_live(x)} for x in found
        ])  # fmt: skip
    rows = [
        (_size(x.size), _types(x.kind), duration(x.median_ns), str(x.config),
         "" if records.is_live(x) else "stale", records.device_name(x))
        for x in found
    ]  # fmt: skip
    columns = ("product", "types", "time", "configuration", "", "device")
    print_table(Table(columns, tuple(rows), right=("time",)))
    return 0


def _report(database, arguments):
    try:
        key = selection.resolve(arguments.device).profile.key
    except ClmatmulError:
        key = None  # a database may be looked at where there is no device
    found = records.report(database, key)
    if arguments.json:
        return _json("report", **found)
    for name, value in found.items():
        text = value
        if isinstance(value, dict):
            text = ", ".join(f"{x}: {n}" for x, n in sorted(value.items())) or "none"
        print_text(f"{name.replace('_', ' '):28s}{text}")
    if found["stale"]:
        print_text(
            "stale records are hints: checked at their first use, then used or passed over; "
            "tune again, or remove them with db prune"
        )
    return 0


def _merge(database, arguments):
    others = [records.Database(walk.tuning_folder(x)) for x in arguments.files]
    journals, best = records.merge(database, others)
    return _say(arguments, "merge", f"{journals} journals and {best} best records were added",
                journals=journals, best=best)  # fmt: skip


def _prune(database, arguments):
    removed, left = records.prune(database)
    text = f"{removed} lines were removed"
    if left:
        text += f"; {left} journals were left alone: a process may be writing to them"
    return _say(arguments, "prune", text, removed=removed, left=left)


def _export(database, arguments):
    (path,) = arguments.files
    count = records.export(database, path, "t4" if arguments.t4 else "jsonl")
    return _say(arguments, "export", f"{count} records were written to {path}", records=count)


def _import(database, arguments):
    counts = [records.import_file(database, x) for x in arguments.files]
    read, best = (sum(x) for x in zip(*counts, strict=True))
    return _say(arguments, "import", f"{read} records were read, {best} of them are now the best",
                records=read, best=best)  # fmt: skip


def _verify(database, arguments):
    selector = arguments.device
    if isinstance(selector, DeviceProfile):
        selector = json.loads(selector.to_json())
    programs = Path(tempfile.mkdtemp(prefix="clmatmul-verify-"))
    try:
        found = list(records.verify(database, selector, programs))
    finally:
        shutil.rmtree(programs, ignore_errors=True)
    bad = [x for _, x in found if x != "ok" and not x.startswith("not checked")]
    if arguments.json:
        _json("verify", faults=len(bad), records=[
            {"config": str(r.config), "kind": r.kind, "size": r.size, "outcome": outcome}
            for r, outcome in found
        ])  # fmt: skip
    else:
        rows = [(_size(r.size), _types(r.kind), str(r.config), outcome) for r, outcome in found]
        print_table(Table(("product", "types", "configuration", "outcome"), tuple(rows)))
    return _FAULTY if bad else 0


_DO = {"list": _list, "best": _best, "report": _report, "merge": _merge, "prune": _prune,
       "export": _export, "import": _import, "verify": _verify}  # fmt: skip


def _say(arguments, action, text, **values):
    if arguments.json:
        return _json(action, **values)
    print_text(text)
    return 0


def _json(action, **values):
    print_json("db", {"action": action, **values})
    return 0


def _size(size):
    return "×".join(map(str, size if size[0] > 1 else size[1:]))


def _types(kind):
    """'float32 NN' of a kind's text, or its first words."""
    pieces = dict(x.partition("=")[::2] for x in kind.split())
    a, b = (pieces.get(x, "?").split(":") for x in "ab")
    letters = {"row": "N", "column": "T"}
    layout = "".join(letters.get(x[1] if len(x) > 1 else "", "S") for x in (a, b))
    return f"{a[0]} {layout}" if a[0] == b[0] else f"{a[0]}, {b[0]} {layout}"

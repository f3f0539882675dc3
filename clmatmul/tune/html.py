"""The report of a search as one HTML page that needs nothing else: no network, no script."""

import math
import statistics
from html import escape

from clmatmul.tune import charts
from clmatmul.tune.objective import OBJECTIVES
from clmatmul.tune.report import duration, energy, speed

_LEAST_TRIALS = 4  # of a variant, to say anything about its parameters
_FAILURES_SHOWN = 50
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2330;--paper:#fff;--soft:#5c6675;--line:#d8dde6;
--main:#2463c4;--other:#b3541e}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--paper:#14171d;--soft:#9aa5b5;
--line:#333b48;--main:#78aaf5;--other:#e8925a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid var(--line);
padding-top:1rem}h3{font-size:1rem;margin-bottom:.3rem}
svg{width:100%;min-width:30rem;height:auto;max-width:40rem;display:block}
.label{fill:var(--soft);font-size:12px}.strong{fill:var(--paper);font-size:12px}
.cell-number{fill:var(--ink);font-size:12px}
.grid{stroke:var(--line)}.best,.roof{fill:none;stroke:var(--main);stroke-width:2}
.roof,.other{stroke:var(--other);stroke-dasharray:5 4}.mark,.bar,.cell{fill:var(--main)}
.cell{stroke:var(--line)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);
vertical-align:top}.number{text-align:right;white-space:nowrap}
.chosen{font-weight:600}code{font-size:.85em;overflow-wrap:anywhere}
"""


def page(report):
    """The whole page for a tune.report.Report."""
    parts = [_problem(found, i) for i, found in enumerate(report.problems)]
    title = f"Tuning on {report.profile.title}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{''.join(parts)}{_fingerprint(report)}</body></html>\n"
    )


def _problem(found, i):
    problem = found.problem
    passed = [x for x in found.trials if x.status == "ok"]
    sections = [f"<h2>{escape(str(problem))}</h2><p>{escape(found.verdict)}</p>"]
    counts = ", ".join(f"{n} {x}" for x, n in found.statuses.items()) or "none"
    sections.append(
        f"<p>{escape(counts)}; {found.skipped} known from earlier; ended: "
        f"{escape(found.stopped)}. {escape(found.outlook.capitalize())}</p>"
    )
    sections.append(_table(found))
    if found.curve:
        objective = OBJECTIVES[found.objective]
        steps = [(seconds, objective.rate(problem.flops, x)) for seconds, x in found.curve]
        numpy_ns = next((x.median_ns for x in found.rows if x.name == "NumPy"), None)
        numpy = numpy_ns and problem.flops / numpy_ns if found.objective == "time" else None
        chart = charts.best_so_far(f"curve-{i}", steps, found.seconds, numpy, objective.unit)
        sections.append(f"<h3>The best so far</h3>{_wide(chart)}")
    if passed:
        sections += _parameters(found, passed, i)
        sections.append(_roofline(found, passed, i))
    sections.append(_failures(found))
    return "".join(sections)


def _table(found):
    rows = []
    for row in found.rows:
        cells = [duration(row.median_ns), speed(found.problem.flops, row.median_ns)]
        if found.objective == "energy":
            cells.append("" if row.energy_uj is None else energy(row.energy_uj))
        cells.append("" if row.speed_up is None else f"{row.speed_up:.2f}×")
        numbers = "".join(f'<td class="number">{x}</td>' for x in cells)
        chosen = ' class="chosen"' if row.chosen else ""
        rows.append(
            f"<tr{chosen}>{numbers}<td><code>{escape(row.name)}</code></td>"
            f"<td>{escape(row.origin)}</td></tr>"
        )
    names = ["median", "speed", *["energy"] * (found.objective == "energy"), "× default"]
    numbers = "".join(f'<th class="number">{x}</th>' for x in names)
    head = f"<tr>{numbers}<th>configuration</th><th></th></tr>"
    return f'<div class="scroll"><table class="results">{head}{"".join(rows)}</table></div>'


def _parameters(found, passed, i):
    """Heat map and importance, of the variant that was tried most among the fast ones."""
    objective = OBJECTIVES[found.objective]
    best = min(passed, key=lambda x: x.cost)
    mine = [x for x in passed if x.config.variant == best.config.variant]
    effects = importance(mine)
    if len(mine) < _LEAST_TRIALS or not effects:
        return
    yield f"<h3>What each parameter of {escape(best.config.variant)} decides</h3>"
    yield _wide(
        charts.bars(f"importance-{i}", "Part of the spread that each parameter explains", effects)
    )
    pair = _pair([name for name, _ in effects])
    if pair is None:
        return
    row, column = pair
    cells = {}
    for record in mine:
        values = record.config.values()
        at = values[row], values[column]
        cells[at] = max(cells.get(at, 0.0), objective.rate(found.problem.flops, record.cost))
    rows, columns = (sorted({at[axis] for at in cells}) for axis in (0, 1))
    yield f"<h3>The best {objective.unit} by {escape(row)} and {escape(column)}</h3>"
    yield _wide(charts.heat_map(f"heat-{i}", rows, columns, cells, row, column, objective.unit))


def _wide(chart):
    """A chart that scrolls within itself where the window is narrow, so that it can be read."""
    return f'<div class="scroll">{chart}</div>'


def _pair(names):
    """The two parameters of the heat map: the tile's sizes, or those that decide most."""
    if {"tile_m", "tile_n"} <= set(names):
        return "tile_m", "tile_n"
    return tuple(names[:2]) if len(names) > 1 else None


def importance(records):
    """(parameter, part of the variance of log cost between its values), most first.

    Of parameters that had more than one value; parts overlap where parameters act together.
    """
    logs = [math.log(x.cost) for x in records]
    total = statistics.pvariance(logs) if len(logs) > 1 else 0.0
    if not total:
        return []
    mean = statistics.fmean(logs)
    found = []
    for name in records[0].config.values():
        groups = {}
        for record, value in zip(records, logs, strict=True):
            groups.setdefault(record.config.values()[name], []).append(value)
        if len(groups) > 1:
            between = sum(len(x) * (statistics.fmean(x) - mean) ** 2 for x in groups.values())
            found.append((name, between / len(logs) / total))
    return sorted(found, key=lambda x: -x[1])


def _roofline(found, passed, i):
    problem, peaks = found.problem, found.peaks
    if peaks is None:
        return "<h3>Roofline</h3><p>The device's peaks were not measured.</p>"
    fastest = min(passed, key=lambda x: x.least_ns)
    points = [("best", problem.flops / fastest.least_ns)]
    default = next((x.name for x in found.rows if x.origin == "default"), None)
    points += [("default", problem.flops / x.least_ns) for x in passed if str(x.config) == default]
    intensity = problem.flops / problem.minimum_bytes
    roof = peaks.roof(intensity)
    chart = charts.roofline(f"roofline-{i}", intensity, points, peaks.gflops, peaks.gbs)
    part = points[0][1] / roof
    note = (
        f"The dashed line is what this device was seen to do: {peaks.gflops:.4g} GFLOP/s in "
        f"ordinary {peaks.compute} instructions that touch no memory, and {peaks.gbs:.3g} GB/s in "
        f"a copy of memory larger than its caches. This product has {intensity:.3g} operations a "
        f"byte, for which the line allows {roof:.4g} GFLOP/s; the best reaches {part:.0%} of it."
    )
    if part > 1:
        note += " More than the line allows comes from matrix units, or out of the caches."
    return f"<h3>Roofline</h3><p>{note}</p>{_wide(chart)}"


def _failures(found):
    if not found.failures:
        return "<h3>Failures</h3><p>None.</p>"
    rows = "".join(
        f"<tr><td>{escape(x.status)}</td><td><code>{escape(str(x.config))}</code></td>"
        f"<td>{escape(x.note)}</td></tr>"
        for x in found.failures[:_FAILURES_SHOWN]
    )
    more = len(found.failures) - _FAILURES_SHOWN
    rest = f"<p>and {more} more, in the journal</p>" if more > 0 else ""
    return (
        f'<h3>Failures</h3><div class="scroll"><table class="failures">{rows}</table></div>{rest}'
    )


def _fingerprint(report):
    facts = {
        "device": report.profile.title, "vendor": report.profile.vendor,
        "driver": report.profile.driver_version, "kind": report.profile.kind,
        "compute units": report.profile.compute_units,
        "clock": f"{report.profile.max_clock_mhz} MHz",
        "local memory": f"{report.profile.local_mem_bytes // 1024} KiB",
        "work-group": report.profile.max_work_group_size, "journal": report.journal,
    }  # fmt: skip
    rows = "".join(
        f"<tr><th>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in facts.items()
    )
    return f'<h2>The device</h2><div class="scroll"><table id="device">{rows}</table></div>'

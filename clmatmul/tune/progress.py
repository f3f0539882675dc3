"""What a person sees while a search runs; on standard error, so that results stay alone.

`Progress` is told what happens and does nothing. `RichProgress` draws one line that renews
itself, for a terminal; `PlainProgress` writes a line whenever the best improves, for a log.
"""

import sys

from clmatmul.tune.report import duration, energy, speed


class Progress:
    """Told of each step of a search; the base class ignores it."""

    def begin(self, search):
        """A problem's search begins; `search` is a tune.search.Search, to be read only."""

    def state(self, state):
        """The worker has begun something: one of supervisor.LIMITS."""

    def recorded(self, record):
        """A trial's TuningRecord is on disk."""

    def update(self, search):
        """A configuration has been dealt with."""

    def end(self):
        """The problem's search is over."""


class PlainProgress(Progress):
    """A line for each problem and each improvement; with `every`, one for each trial."""

    def __init__(self, every=False, stream=None):
        self._every = every
        self._stream = stream or sys.stderr
        self._shown = None

    def _say(self, text):
        print(text, file=self._stream, flush=True)

    def begin(self, search):
        self._shown = None
        self._say(_title(search))

    def recorded(self, record):
        if self._every:
            took = duration(record.median_ns) if record.median_ns else record.note
            self._say(f"  {record.status:13s} {record.config}  {took}")

    def update(self, search):
        if search.best is not self._shown:
            self._shown = search.best
            self._say(f"  {summary(search)}  {search.best.config}")


class RichProgress(Progress):
    """One line at the foot of the terminal, drawn by rich."""

    def __init__(self, every=False, color=True):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._every = every
        self._bar = Bar(
            BarColumn(bar_width=12), TextColumn("{task.fields[about]}"),
            TextColumn("[dim]{task.fields[state]}"),
            console=Console(stderr=True, no_color=not color, highlight=False), transient=True,
        )  # fmt: skip
        self._task = None

    def begin(self, search):
        self._bar.console.print(_title(search), markup=False, soft_wrap=True)
        self._bar.start()
        self._task = self._bar.add_task("", total=1, about="", state="NumPy's time")

    def state(self, state):
        if self._task is not None:
            self._bar.update(self._task, state=state)

    def recorded(self, record):
        if self._every:
            took = duration(record.median_ns) if record.median_ns else record.note
            self._bar.console.print(
                f"{record.status:13s} {record.config}  {took}", markup=False, soft_wrap=True
            )

    def update(self, search):
        self._bar.update(self._task, completed=fraction(search), about=summary(search))

    def end(self):
        self._bar.stop()
        self._bar.remove_task(self._task)
        self._task = None


def fraction(search):
    """How much of the budget, or of the space, is spent: 0 to 1."""
    budget = search.budget
    parts = [len(search.records) / max(search.space.combinations, 1)]
    if budget.seconds is not None:
        parts.append(search.seconds / budget.seconds)
    if budget.trials is not None:
        parts.append(search.tried / budget.trials)
    return min(max(parts), 1)


def summary(search):
    """Trials, the best so far, NumPy beside it, time left; in one short line."""
    parts = [f"{search.tried} trial{'' if search.tried == 1 else 's'}"]
    if search.skipped:
        parts.append(f"{search.skipped} known")
    flops = search.problem.flops
    if search.best is not None:
        parts.append(f"best {speed(flops, search.best.median_ns)}")
        if search.objective == "energy":
            parts.append(f"{energy(search.best.energy_uj)} a run")
    if search.numpy_ns:
        parts.append(f"NumPy {flops / search.numpy_ns:.1f}")
    if search.budget.seconds is not None:
        parts.append(f"{max(search.budget.seconds - search.seconds, 0):.0f} s left")
    return ", ".join(parts)


def _title(search):
    return f"tuning {search.problem}: budget {search.budget}"

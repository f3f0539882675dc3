"""`clmatmul walkthrough`: the lesson, page by page, on the reader's device."""

import os
import shutil
import sys

from clmatmul.cli.explain import size
from clmatmul.cli.output import on_terminal, print_json, print_text
from clmatmul.errors import ArgumentError
from clmatmul.selection import resolve
from clmatmul.walkthrough import PARTS, Lesson, choose_parts, report
from clmatmul.walkthrough_page import plain_text, show

_SIZES = ("m", "n", "k", "tile_m", "tile_n", "tile_k")


def add_arguments(parser):
    """Which parts, at what pace, and the sizes that part d counts."""
    names = ", ".join(f"{x.letter} {x.name}" for x in PARTS)
    parser.add_argument(
        "parts", metavar="PART", nargs="*", help=f"letters or names; all if none is given: {names}"
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--step", action="store_true", help="wait for Enter after each part (default on a terminal)"
    )
    pace.add_argument(
        "--all", action="store_true", help="print without a pause (default elsewhere)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave the experiment out, and count less in part d"
    )
    group = parser.add_argument_group("the product whose reads part d counts, besides its own")
    for name in _SIZES:
        default = getattr(Lesson, name)
        group.add_argument(
            "--" + name.replace("_", "-"), type=size, default=default, metavar="SIZE",
            help=f"default {default}",
        )  # fmt: skip


def run(arguments):
    """Print the pages that were asked for, or their values as JSON."""
    parts = choose_parts(arguments.parts, arguments.quick)
    at_terminal = on_terminal() and on_terminal(sys.stdin)
    if arguments.step and (arguments.json or not at_terminal):
        raise ArgumentError(
            "--step waits for Enter, so it needs a terminal and no --json; leave it out, or say "
            "--all"
        )
    progress = _Progress(quiet=arguments.quiet)
    lesson = Lesson(
        device=resolve(arguments.device),
        quick=arguments.quick,
        tell=progress.tell,
        **{name: getattr(arguments, name) for name in _SIZES},
    )
    if arguments.json:
        title = lesson.device.profile.title
        pages = [report(part.page(lesson)) for part in parts]
        progress.clear()
        print_json("walkthrough", {"device": title, "parts": pages})
        return 0
    for i, part in enumerate(parts):
        page = part.page(lesson)
        progress.clear()
        _print_page(page)
        more = parts[i + 1 :]
        if more and at_terminal and not arguments.all and not _wants_more(more[0]):
            break
    return 0


class _Progress:
    """One line on the terminal behind standard error, written over and taken away again."""

    def __init__(self, quiet):
        self._shown = on_terminal(sys.stderr) and _has_cursor() and not quiet
        self._width = shutil.get_terminal_size().columns - 1

    def tell(self, text):
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text[: self._width]}")
            sys.stderr.flush()

    def clear(self):
        self.tell("")


def _has_cursor():
    return os.environ.get("TERM", "dumb") != "dumb"


def _print_page(page):
    if on_terminal() and _has_cursor():
        from rich.console import Console

        show(page, Console(file=sys.stdout, highlight=False))
    else:
        print_text(plain_text(page))
    sys.stdout.flush()


def _wants_more(part):
    """Wait for Enter before the next part; False if the reader has had enough."""
    sys.stderr.write(f"\nEnter: ({part.letter}) {part.summary}    q: stop ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return answer.endswith("\n") and not answer.strip().lower().startswith("q")

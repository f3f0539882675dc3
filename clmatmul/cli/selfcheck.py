"""`clmatmul selfcheck`: are the kernels right on this device?"""

from pathlib import Path

from clmatmul.cli.output import json_text, print_json, print_lines
from clmatmul.errors import ArgumentError
from clmatmul.self_check import selfcheck

_FAILED = 5


def add_arguments(parser):
    """None of its own: --device says which one is checked, --json FILE where to write it down."""


def run(arguments):
    """Print the report, and write it into a file if one is named; exit code 5 if a check failed."""
    report = selfcheck(arguments.device)
    if arguments.json in (True, "-"):
        print_json("selfcheck", report.to_dict())
    else:
        print_lines(report)
        if arguments.json:
            _write(Path(arguments.json), json_text("selfcheck", report.to_dict()))
            print_lines(f"Written for a bug report: {arguments.json}")
    return 0 if report.ok else _FAILED


def _write(path, text):
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from None

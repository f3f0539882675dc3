"""`clmatmul selfcheck`: are the kernels right on this device?"""

from clmatmul.cli.output import print_json, print_lines
from clmatmul.self_check import selfcheck

_FAILED = 5


def add_arguments(parser):
    """None of its own: --device says which one is checked."""


def run(arguments):
    """Print the report; exit code 5 if something in it failed."""
    report = selfcheck(arguments.device)
    if arguments.json:
        print_json("selfcheck", report.to_dict())
    else:
        print_lines(report)
    return 0 if report.ok else _FAILED

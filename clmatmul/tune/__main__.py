"""`python -m clmatmul.tune`: the same as `python -m clmatmul tune`."""

import sys


def main(argv=None):
    """Run the tuner's command line; returns the exit code."""
    from clmatmul.cli.main import main as command_line

    return command_line(["tune", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())

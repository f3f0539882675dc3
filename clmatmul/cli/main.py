"""The parser, the table of commands, and how errors become exit codes."""

import argparse
import logging
import os
import re
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import clmatmul
from clmatmul.errors import (
    BuildError,
    ClmatmulError,
    ConfigError,
    DatabaseError,
    DeviceError,
    LaunchError,
    MeasurementError,
    NoDeviceError,
    TemplateError,
    UnsupportedError,
    VerificationError,
)

# The first that fits; any other ClmatmulError is bad input.
_EXIT_CODES = (
    (NoDeviceError, 3),
    (UnsupportedError, 4),
    (VerificationError, 5),
    (DatabaseError, 6),
    (ConfigError, 2),
    ((BuildError, LaunchError, MeasurementError, DeviceError, TemplateError), 1),
)
USAGE = 2
INTERRUPTED = 130
_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell has it
EXIT_CODES_HELP = """exit codes:
  0    done
  1    nothing ran to a verified result
  2    usage, or input that is not as it must be
  3    no OpenCL device
  4    the device lacks something that is needed
  5    a result or a kernel failed verification
  6    the tuning database cannot be written
  130  interrupted by Ctrl-C (what was measured is saved)
  141  the reader of standard output went away"""


@dataclass(frozen=True)
class Command:
    """A sub-command: offered if its module is there. json_file: its --json may name a file."""

    name: str
    module: str
    summary: str
    json_file: bool = False


COMMANDS = (
    Command("devices", "clmatmul.cli.devices", "list the OpenCL devices"),
    Command("info", "clmatmul.cli.info", "all that a bug report needs"),
    Command("multiply", "clmatmul.cli.multiply", "multiply two matrices"),
    Command("scale", "clmatmul.cli.scale", "multiply a matrix by a number"),
    Command("explain", "clmatmul.cli.explain", "how a product is computed here"),
    Command("walkthrough", "clmatmul.cli.walkthrough", "the lesson: naive, tiled, tuned"),
    Command("selfcheck", "clmatmul.cli.selfcheck", "check the kernels on a device", True),
    Command("demo", "clmatmul.cli.demo", "real data, checked, tuned and timed"),
    Command("bench", "clmatmul.cli.bench", "time products against other libraries", True),
    Command("tune", "clmatmul.cli.tune", "find the best kernel for your sizes"),
    Command("db", "clmatmul.cli.db", "what was tuned: look, merge, export, verify"),
)


def available():
    """The commands whose modules are there."""
    return tuple(command for command in COMMANDS if _has_module(command.module))


def _has_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def main(argv=None):
    """Run the command line; returns the exit code. `argv` is without the program's name."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _tolerate_narrow_encodings()
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except ClmatmulError as error:
        if "--debug" in argv:
            traceback.print_exc()
        _complain(f"error: {error}")
        return exit_code(error)
    except MemoryError:
        _complain("error: this machine has not enough memory for it")
        return 1


def exit_code(error):
    """The exit code of a ClmatmulError."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), USAGE)


def _dispatch(argv):
    commands = available()
    try:
        arguments = make_parser(commands).parse_args(argv)
    except SystemExit as stopped:  # --help, --version and usage errors
        return stopped.code or 0
    _set_up_logging(arguments)
    if arguments.command is None:
        return import_module("clmatmul.cli.start").run(arguments)
    command = next(c for c in commands if c.name == arguments.command)
    return import_module(command.module).run(arguments)


# ---- the parser -----------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """argparse's, with errors of one line and negative numbers of every kind as values."""

    def __init__(self, **keywords):
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **keywords
        )
        # Python 3.14 does so itself: -1e-3 and -1+2j are no options
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message):
        line = " ".join(message.split())
        self.exit(USAGE, f"{self.prog}: error: {line} (see {self.prog} --help)\n")


class _CommandParser(Parser):
    """A command's parser; its module is imported, and asked for its options, when it is used."""

    def __init__(self, command, **keywords):
        super().__init__(**keywords)
        self._command = command
        self._complete = False

    def parse_known_args(self, args=None, namespace=None, *more, **keywords):
        if self._complete:
            return super().parse_known_args(args, namespace, *more, **keywords)
        self._complete = True
        import_module(self._command.module).add_arguments(self)
        # options may stand between the operands: multiply A --alpha 2 B
        return self.parse_known_intermixed_args(args, namespace)


def make_parser(commands):
    """The parser of these commands."""
    parser = Parser(
        prog="clmatmul",
        description="The matrix product on any OpenCL device.",
        epilog=EXIT_CODES_HELP,
    )
    parser.add_argument("--version", action="version", version=f"clmatmul {clmatmul.__version__}")
    parser.set_defaults(json=False, device=None, debug=False, verbose=0, quiet=False)
    common = {json_file: _common_options(json_file) for json_file in (False, True)}
    _add_common(parser)
    commands_of = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=_CommandParser
    )
    for command in commands:
        commands_of.add_parser(
            command.name,
            command=command,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog="Exit codes: see clmatmul --help.",
            parents=[common[command.json_file]],
        )
    return parser


def _common_options(json_file):
    common = argparse.ArgumentParser(add_help=False)
    _add_common(common, json_file)
    return common


def _add_common(parser, json_file=False):
    """Options that stand before or after the command; suppressed, so that neither undoes the
    other."""
    keywords = {"default": argparse.SUPPRESS}
    group = parser.add_argument_group("options of every command")
    if json_file:
        group.add_argument("--json", nargs="?", const=True, metavar="FILE",
                           help="print one JSON object, or write it into FILE besides the table",
                           **keywords)  # fmt: skip
    else:
        group.add_argument("--json", action="store_true", help="print one JSON object", **keywords)
    group.add_argument(
        "--device",
        metavar="WHICH",
        help="cpu, gpu, an index, part of a name, or platform:device",
        **keywords,
    )
    group.add_argument(
        "-v", "--verbose", action="count", help="say more on standard error", **keywords
    )
    group.add_argument(
        "-q", "--quiet", action="store_true", help="say only errors on standard error", **keywords
    )
    group.add_argument(
        "--debug", action="store_true", help="show where an error came from", **keywords
    )


# ---- standard error -------------------------------------------------------------------------


def _complain(text):
    print(f"clmatmul: {text}", file=sys.stderr)


def _set_up_logging(arguments):
    """The package's log on standard error: warnings, more with -v or CLMATMUL_LOG=debug."""
    wanted = os.environ.get("CLMATMUL_LOG", "").upper()
    level = logging.getLevelName(wanted)  # a number, if it is the name of a level
    if not isinstance(level, int) or arguments.verbose:
        level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(arguments.verbose, 2)]
    if arguments.quiet:
        level = logging.ERROR
    log = logging.getLogger("clmatmul")
    log.setLevel(level)
    for handler in [x for x in log.handlers if isinstance(x, _StandardError)]:
        log.removeHandler(handler)
    log.addHandler(_StandardError())


class _StandardError(logging.Handler):
    """Writes to whatever standard error is at the moment."""

    def emit(self, record):
        _complain(f"{record.levelname.lower()}: {record.getMessage()}")


def _tolerate_narrow_encodings():
    """An arrow or a multiplication sign must not end a command on an ASCII terminal."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")

"""`clmatmul explain M N K`: every value on the line from arrays to launches."""

import argparse

from clmatmul.api import explanation
from clmatmul.cli.options import add_config, dtype_name
from clmatmul.cli.output import print_json, print_lines, print_text

_LARGEST = 2**31


def size(text):
    """A dimension of a matrix, from the command line."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if not 1 <= value <= _LARGEST:
        raise argparse.ArgumentTypeError(f"{value} is not from 1 to {_LARGEST}")
    return value


def add_arguments(parser):
    """M N K and what else decides which kernel serves."""
    for name, what in (
        ("m", "rows of A"),
        ("n", "columns of B"),
        ("k", "columns of A, rows of B"),
    ):
        parser.add_argument(name, metavar=name.upper(), type=size, help=what)
    parser.add_argument("--dtype", type=dtype_name, default="float32", help="default float32")
    parser.add_argument(
        "--layout",
        choices=("NN", "NT", "TN", "TT"),
        default="NN",
        help="of A and B: N has rows, T has columns of neighbours in memory (default NN)",
    )
    parser.add_argument(
        "--batch",
        type=size,
        nargs="+",
        default=(),
        metavar="SIZE",
        help="sizes of batch dimensions",
    )
    add_config(parser)
    parser.add_argument("--source", action="store_true", help="print the OpenCL C as well")


def run(arguments):
    """Print the explanation."""
    found = explanation(
        arguments.m,
        arguments.n,
        arguments.k,
        arguments.dtype,
        layout=arguments.layout,
        batch=tuple(arguments.batch),
        device=arguments.device,
        config=arguments.config,
    )
    if arguments.json:
        sources = {"sources": list(found.sources)} if arguments.source else {}
        print_json("explain", {**found.to_dict(), **sources})
        return 0
    print_lines(found)
    if arguments.source:
        for source in found.sources:
            print_text(f"\n{source}")
    return 0

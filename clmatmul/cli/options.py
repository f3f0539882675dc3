"""Options that several commands share, and how their values are read."""

import argparse

from clmatmul.element_types import ELEMENT_TYPES
from clmatmul.matrix_elements import shown


def dtype_name(text):
    """The name of a dtype that has kernels."""
    if text not in ELEMENT_TYPES:
        allowed = ", ".join(ELEMENT_TYPES)
        raise argparse.ArgumentTypeError(f"{shown(text)} is none of {allowed}")
    return text


def number(text):
    """A whole number, a real number or a complex one (with i or j), as Python's int, float, …"""
    for convert in (int, float, complex):
        try:
            return convert(text.replace("i", "j") if convert is complex else text)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"{shown(text)} is not a number, such as 3, -0.5 or 1+2j")


def add_config(parser):
    """--config: a kernel of the caller's own choosing."""
    parser.add_argument(
        "--config",
        metavar="CONFIG",
        help="use this kernel, such as 'tiled(tile_m=16, tile_n=16, tile_k=16)'",
    )


def add_reading(parser):
    """How matrix files are to be read."""
    group = parser.add_argument_group(
        "reading matrices (what is not given is found out)",
        "A matrix is a file (.npy .npz .csv .tsv .txt .mtx .mtx.gz; FILE.npz:NAME is one\n"
        "array of several), text such as '1 4; 2 5; 3 6', or - for standard input.",
    )
    group.add_argument(
        "--dtype",
        type=dtype_name,
        help="convert matrices to this type; a loss other than rounding is refused",
    )
    group.add_argument("--key", metavar="NAME", help="which array of the .npz files")
    group.add_argument("--delimiter", metavar="CHARACTER", help="between elements of text files")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="text files begin with a line of names, or do not",
    )
    group.add_argument(
        "--index",
        action=argparse.BooleanOptionalAction,
        help="text files begin each line with a name, or do not",
    )


def add_output(parser):
    """-o: where the result goes."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the result there, in the format of the suffix (default: print it)",
    )

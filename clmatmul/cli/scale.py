"""`clmatmul scale FACTOR A`."""

import clmatmul
from clmatmul.cli.matrices import check_output, deliver, read_operands
from clmatmul.cli.options import add_output, add_reading, number
from clmatmul.selection import resolve


def add_arguments(parser):
    """FACTOR A."""
    parser.add_argument("factor", metavar="FACTOR", type=number, help="a number")
    parser.add_argument("matrix", metavar="A", help="a file, '1 4; 2 5', or - for standard input")
    add_output(parser)
    add_reading(parser)


def run(arguments):
    """Print or write the scaled matrix."""
    check_output(arguments)
    (matrix,) = read_operands([arguments.matrix], arguments)
    device = resolve(arguments.device)
    result = clmatmul.scale(arguments.factor, matrix, device=device)
    return deliver("scale", result, {"device": device.profile.title}, arguments)

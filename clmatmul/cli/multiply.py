"""`clmatmul multiply A B`: the product of two matrices from files, text or answers."""

import sys
import time

import numpy as np

from clmatmul.api import MatMul, gemm
from clmatmul.cli.matrices import check_output, deliver, read_operands
from clmatmul.cli.options import add_config, add_output, add_reading, number
from clmatmul.cli.output import on_terminal
from clmatmul.errors import ArgumentError
from clmatmul.matrix_files import prompt_matrix
from clmatmul.selection import resolve

_NEEDS = (
    "multiply needs two matrices, such as: clmatmul multiply a.npy b.npy (without any, on a "
    "terminal, it asks for them)"
)


def add_arguments(parser):
    """A B, and the other parts of alpha * op(A) @ op(B) + beta * C."""
    parser.add_argument(
        "operands",
        metavar="A B",
        nargs="*",
        help="two matrices: files, '1 4; 2 5', or - for standard input; none: be asked for them",
    )
    add_output(parser)
    group = parser.add_argument_group("alpha * op(A) @ op(B) + beta * C")
    group.add_argument("--alpha", type=number, default=1, metavar="NUMBER", help="default 1")
    group.add_argument(
        "--beta", type=number, metavar="NUMBER", help="default 1 with --c, and 0 without"
    )
    group.add_argument("--c", metavar="C", help="a matrix that is added; it may broadcast")
    for letter in "ab":
        either = group.add_mutually_exclusive_group()
        either.add_argument(
            f"--transpose-{letter}",
            dest=f"transpose_{letter}",
            action="store_const",
            const=True,
            default=False,
            help=f"transpose {letter.upper()}",
        )
        either.add_argument(
            f"--conjugate-transpose-{letter}",
            dest=f"transpose_{letter}",
            action="store_const",
            const="C",
            help=f"transpose and conjugate {letter.upper()}",
        )
    add_config(group)
    add_reading(parser)


def run(arguments):
    """Print or write the product."""
    check_output(arguments)
    if arguments.beta is not None and arguments.c is None and arguments.beta != 0:
        raise ArgumentError(f"--beta {arguments.beta} multiplies C: name it with --c")
    a, b, c = _operands(arguments)
    scalars = [arguments.alpha, _beta(arguments)]
    a, b, c = _wide_enough((a, b, c), scalars, arguments)
    device = resolve(arguments.device)
    result, facts = _product(a, b, c, scalars, device, arguments)
    facts["device"] = device.profile.title
    return deliver("multiply", result, facts, arguments)


def _beta(arguments):
    if arguments.beta is not None:
        return arguments.beta
    return 0 if arguments.c is None else 1


def _operands(arguments):
    sources = arguments.operands
    if not sources and on_terminal(sys.stdin):
        (c,) = read_operands([arguments.c], arguments)
        a = prompt_matrix("A")
        inner = a.shape[0 if arguments.transpose_a else 1]
        b = prompt_matrix("B", **{"columns" if arguments.transpose_b else "rows": inner})
        return a, b, c
    if len(sources) != 2:
        raise ArgumentError(f"{_NEEDS}; {len(sources)} given")
    return read_operands([*sources, arguments.c], arguments)


def _wide_enough(matrices, scalars, arguments):
    """The matrices, of a type that alpha and beta can multiply (integers by 0.5 are real).

    As NumPy has it for a matrix times a number; with --dtype the user has decided.
    """
    if arguments.dtype is not None:
        return matrices
    kinds = {"complex": complex, "float": float}
    wanted = [kinds[type(x).__name__] for x in scalars if type(x).__name__ in kinds]
    for kind in wanted:
        matrices = [x if x is None or _holds(x, kind) else _as(x, kind) for x in matrices]
    return matrices


def _holds(matrix, kind):
    return matrix.dtype.kind == "c" or (kind is float and matrix.dtype.kind not in "biu")


def _as(matrix, kind):
    single = matrix.dtype.name in ("float32", "float16", "bfloat16")
    wide = {float: np.float64, complex: np.complex64 if single else np.complex128}
    return matrix.astype(wide[kind])


def _product(a, b, c, scalars, device, arguments):
    """(the product, facts): what computed it, and the seconds that it took once it was built."""
    alpha, beta = scalars
    keywords = dict(
        c=c,
        alpha=alpha,
        beta=beta,
        transpose_a=arguments.transpose_a,
        transpose_b=arguments.transpose_b,
        device=device,
    )
    if a.size and b.size:
        plan = MatMul(a, b, config=arguments.config, **keywords)
        start = time.perf_counter()
        result = np.asarray(plan(a, b, c=c))
        seconds = time.perf_counter() - start
        config, origin = str(plan.config), plan.choice.origin
        return result, {"config": config, "origin": origin, "seconds": seconds}
    return np.asarray(gemm(a, b, **keywords)), {"config": None, "origin": None, "seconds": 0.0}

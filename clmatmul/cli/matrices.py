"""Matrices in and out of commands."""

from clmatmul.cli.output import print_json, print_matrix, print_note
from clmatmul.element_types import numpy_dtype
from clmatmul.errors import ArgumentError
from clmatmul.matrix_files import check_writable_target, read_matrix, write_matrix


def check_output(arguments):
    """Refuse, before anything is read or computed, what could not be written in the end."""
    if arguments.output is not None and arguments.output != "-":
        check_writable_target(arguments.output)


def read_operands(sources, arguments):
    """The matrices of the sources, in order; a source of None stays None."""
    given = [source for source in sources if source is not None]
    if given.count("-") > 1:
        raise ArgumentError("standard input (-) can be one matrix only")
    if arguments.key is not None and not any(map(_takes_a_key, given)):
        raise ArgumentError(f"--key {arguments.key}: no matrix here is an .npz file without a name")
    return [None if source is None else _read(source, arguments) for source in sources]


def _takes_a_key(source):
    return source.lower().endswith(".npz")


def _read(source, arguments):
    return read_matrix(
        source,
        key=arguments.key if _takes_a_key(source) else None,
        delimiter=arguments.delimiter,
        header=arguments.header,
        index=arguments.index,
        dtype=None if arguments.dtype is None else numpy_dtype(arguments.dtype),
    )


def deliver(command, result, facts, arguments):
    """Write or print a result, with the facts about it in JSON or in a note for a person."""
    facts = {**facts, "shape": result.shape, "dtype": result.dtype.name}
    if arguments.output not in (None, "-"):
        write_matrix(arguments.output, result)
        facts["output"] = arguments.output
    if arguments.json:
        print_json(command, facts if "output" in facts else {**facts, "result": result})
    elif "output" not in facts:
        print_matrix(result)
    if not arguments.quiet:
        print_note(_note(facts))
    return 0


def _note(facts):
    where = f"{facts['output']}: " if "output" in facts else ""
    sizes = "×".join(map(str, facts["shape"])) or "a number,"
    how = ""
    if facts.get("config"):
        how = f" in {facts['seconds'] * 1e3:.3g} ms by {facts['config']} [{facts['origin']}]"
    return f"{where}{sizes} {facts['dtype']}{how}\non {facts['device']}"

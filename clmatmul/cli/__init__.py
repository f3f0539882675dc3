"""The command line: `python -m clmatmul`, or the script `clmatmul`.

A command is a module with `add_arguments(parser)` and `run(arguments) -> int`, and a line in
`main.COMMANDS`. Results go to standard output, everything else to standard error.
"""

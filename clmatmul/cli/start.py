"""`clmatmul` without arguments: what this is, what it would run on, what to try."""

from clmatmul.cli.output import print_json, print_text
from clmatmul.errors import NoDeviceError
from clmatmul.selection import resolve

_TRY = (
    ("clmatmul demo", "real data: multiply, check, tune, compare"),
    ('clmatmul multiply "1 4; 2 5; 3 6" "7 8 9; 10 11 12"', "or files: .npy .csv .mtx"),
    ("clmatmul explain 1000 1000 1000", "how a product is computed here"),
)


def run(arguments):
    """Print the start; without a device the reason, and exit code 3."""
    try:
        device = resolve(arguments.device).profile
    except NoDeviceError as error:
        if arguments.json:
            raise
        print_text(_text(f"No device: {error}"))
        return 3
    if arguments.json:
        print_json("start", {"device": device.title, "try": [command for command, _ in _TRY]})
    else:
        print_text(_text(f"Products run on {device.title}."))
    return 0


def _text(device):
    lines = ["clmatmul: the matrix product on any OpenCL device.", device, "", "Try"]
    for command, what in _TRY:
        lines += [f"  {command}", f"      {what}"]
    return "\n".join([*lines, "", "All commands: clmatmul --help"])

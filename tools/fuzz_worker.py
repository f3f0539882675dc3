"""The process of tools/fuzz that computes: one shard, or one product, on the device chosen.

It tells its parent on standard output, one JSON object a line, what it is at, so that a crash or
a hang can be laid to one product.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz_problems import Product, Shard  # noqa: E402

from clmatmul import executable, selection  # noqa: E402
from clmatmul.errors import ClmatmulError, ConfigError, LaunchError  # noqa: E402


@dataclass(frozen=True)
class Told:
    """One line. `at`: the product begun; `fault` of it; `done`: the shard is finished."""

    at: int | None = None
    fault: str | None = None
    product: str | None = None
    done: bool = False
    programs: int = 0  # built by this process
    device: str = ""
    error: str = ""  # why no product was run


def tell(**values):
    print(json.dumps(asdict(Told(**values))), flush=True)


def fault_of(product, device):
    """The fault of a product's result, or the error that came instead of it."""
    try:
        return product.fault(device)
    except (ConfigError, LaunchError):
        # Refused with a reason, as built kernels are that need more than the device has: products
        # are served by the next kernel then.
        return None
    except (ClmatmulError, ValueError, ArithmeticError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def shard_of(device, options):
    variants = tuple(filter(None, options.variants.split(",")))
    return Shard(options.seed, options.shard, options.programs, device.profile, variants)


def run_shard(device, options):
    shard = shard_of(device, options)
    for index in range(options.first, options.count):
        product = shard.product(index)
        tell(at=index)
        fault = fault_of(product, device)
        if fault:
            tell(at=index, fault=fault, product=product.to_json())
    tell(done=True, programs=executable.build_count, device=device.profile.title)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "shard", "programs", "first", "count"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--variants", default="")
    parser.add_argument("--product", action="store_true", help="one product, read from stdin")
    parser.add_argument("--describe", type=int, metavar="INDEX", help="only print a product")
    options = parser.parse_args()
    os.environ["CLMATMUL_CACHE"] = "0"  # each program is used by one process
    try:
        device = selection.resolve()
    except ClmatmulError as error:
        tell(error=str(error).splitlines()[0])
        return
    if options.product:
        product = Product.from_json(sys.stdin.read())
        tell(done=True, fault=fault_of(product, device), device=device.profile.title)
    elif options.describe is not None:
        tell(product=shard_of(device, options).product(options.describe).to_json())
    else:
        try:
            run_shard(device, options)
        except ValueError as error:
            tell(error=str(error))


if __name__ == "__main__":
    main()

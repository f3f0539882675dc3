"""How many bytes of users' arrays are copied between the host and devices."""

import contextlib
import contextvars
from dataclasses import dataclass


@dataclass
class Transfers:
    """Bytes copied between host arrays and devices while it was counting."""

    uploaded: int = 0
    downloaded: int = 0


_counting = contextvars.ContextVar("clmatmul_transfers", default=())


@contextlib.contextmanager
def count_transfers():
    """Count the bytes that this thread (or asynchronous task) copies to and from devices.

    Gives a `Transfers`; blocks nest. Kernels that work on host memory where it lies copy nothing,
    and what the first use of a kernel copies to check itself is not counted.
    """
    counter = Transfers()
    token = _counting.set((*_counting.get(), counter))
    try:
        yield counter
    finally:
        _counting.reset(token)


def count(uploaded=0, downloaded=0):
    """Add bytes of users' arrays to every `Transfers` that is counting."""
    for counter in _counting.get():
        counter.uploaded += uploaded
        counter.downloaded += downloaded

"""Fixtures: the device under test, and records of what a numeric test is about."""

import os
import tempfile
import threading
import zlib

# Caches and records of other runs must not decide what is tested. Set before clmatmul is used.
_scratch = tempfile.mkdtemp(prefix="clmatmul-tests-")
os.environ.setdefault("CLMATMUL_CACHE_DIR", os.path.join(_scratch, "cache"))
os.environ.setdefault("CLMATMUL_DB", os.path.join(_scratch, "data"))

_settings = {name: x for name, x in os.environ.items() if name.startswith("CLMATMUL_")}

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from clmatmul import selection  # noqa: E402


@pytest.fixture(scope="session")
def device():
    """The open device under test: CLMATMUL_DEVICE, or the default."""
    return selection.resolve()


@pytest.fixture(autouse=True)
def own_settings():
    """Each test begins with the settings of the start: workers and tools change them for their
    process, which is the tests' where they are called in it."""
    for name in [x for x in os.environ if x.startswith("CLMATMUL_") and x not in _settings]:
        del os.environ[name]
    os.environ.update(_settings)


@pytest.fixture
def rng(request):
    """Random numbers that differ from test to test but not from run to run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def no_binaries(monkeypatch):
    """Programs that are built for one test only: making their binaries would double its time."""
    monkeypatch.setenv("CLMATMUL_CACHE", "0")


@pytest.fixture
def about(record_property):
    """about(family, variant): what a numeric test is about, for the conformance matrix."""

    def record(family, variant="any"):
        record_property("family", family)
        record_property("variant", variant)

    return record


def skip_without_fp64(device, *dtypes):
    """Skip where the device has no float64 and one of the dtypes needs it."""
    from clmatmul.element_types import element_type, product_type

    needed = any(element_type(d).needs_fp64 for d in dtypes)
    if len(dtypes) > 1:
        needed = needed or element_type(product_type(dtypes[0], dtypes[1])).needs_fp64
    if needed and not device.profile.fp64:
        pytest.skip("the device has no float64")


def in_threads(work, count):
    """Call `work` in so many threads at once, and wait for them."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

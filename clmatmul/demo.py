"""The main job on real data: multiply, check, tune, and multiply again with what was learnt.

1,797 handwritten digits of 8 × 8 pixels, centred, are the rows of X. Their Gram matrix X Xᵀ
(1797 × 1797) says how alike two digits are; their covariance Xᵀ X / 1796 (64 × 64) has the
principal components as eigenvectors. Both are computed in float32 on the device and must meet
the bound of reference.py.
"""

import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources

import numpy as np

from clmatmul import reference
from clmatmul.api import MatMul, gemm, matmul
from clmatmul.choose import choose
from clmatmul.database import TuningDatabase
from clmatmul.errors import BuildError, ConfigError, LaunchError, VerificationError
from clmatmul.matrix_files import read_matrix
from clmatmul.measure import BLAS_IDLE_SECONDS, compare, interleave
from clmatmul.selection import resolve
from clmatmul.tune import tune
from clmatmul.tune.progress import Progress, summary
from clmatmul.walk import shipped_records

ATTRIBUTION = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning "
    "Repository (1998), doi:10.24432/C50P49, CC BY 4.0"
)
_COMPONENTS = 8
_ROUNDS = 15
_TIMED_SECONDS = 10


@dataclass(frozen=True)
class Check:
    """A product against float64: `error_ratio` is its largest error ÷ what is allowed."""

    product: str
    shape: tuple
    error_ratio: float

    @property
    def ok(self):
        return self.error_ratio <= 1


@dataclass(frozen=True)
class Timing:
    """One way to compute the Gram matrix, from host arrays to host array.

    seconds: wall-clock median. times_numpy: how many times faster than NumPy it is, with low and
    high ends of the 95 % confidence interval, from `rounds` of runs in turns. NumPy sees that
    X Xᵀ is symmetric and computes half of it.
    """

    name: str
    seconds: float
    gflops: float
    times_numpy: float
    low: float
    high: float
    rounds: int
    error_ratio: float
    kernel: str
    origin: str

    @property
    def ok(self):
        return self.error_ratio <= 1


@dataclass(frozen=True)
class DemoReport:
    """What the demo found. `ok`: every result is within its bound of float64."""

    device: str
    data: str
    shape: tuple
    checks: tuple
    explained: tuple  # share of the variance of each leading principal component
    tried: int  # configurations that the tuner tried now
    known: int  # and those that it had tried before
    verdict: str  # the tuner's, on the fastest against the untuned
    record_file: str
    timings: tuple
    seconds: float

    @property
    def ok(self):
        return all(x.ok for x in (*self.checks, *self.timings))

    def to_dict(self):
        """The values as JSON can hold them."""
        values = {**asdict(self), "ok": self.ok}
        for name in ("checks", "timings"):
            values[name] = [{**asdict(x), "ok": x.ok} for x in getattr(self, name)]
        return values


def load_digits():
    """The digits as the package ships them: (1797, 64), uint8, pixels from 0 to 16."""
    file = resources.files("clmatmul").joinpath("data", "digits.npz")
    with resources.as_file(file) as path:
        return read_matrix(path)


def run_demo(device=None, budget_seconds=20.0, say=lambda text: None):
    """Run the demo and return its DemoReport.

    device: as `use_device`. budget_seconds: for the tuner's search, whose winner is written to
    this user's tuning records. say: called with a line of progress. KeyboardInterrupt on Ctrl-C,
    after what was tried is saved. NoDeviceError; VerificationError if no kernel passed;
    DatabaseError if the records cannot be written.
    """
    start = time.perf_counter()
    opened = resolve(device)
    pixels = load_digits().astype(np.float32)
    x = pixels - pixels.mean(axis=0)
    gram = _Reference(x, x.T)

    say("the covariance of the pixels, and its principal components")
    divisor = 1 / (len(x) - 1)
    covariance = gemm(x, x, alpha=divisor, transpose_a=True, device=opened)
    checks = [Check("covariance", covariance.shape, _Reference(x.T, x, divisor).ratio(covariance))]

    say("the Gram matrix, with the kernel that is chosen without any record")
    contestants = [_untuned(opened, gram)]
    say(f"the tuner, for {budget_seconds:g} s")
    tuned, record_file = _tune(opened, gram, budget_seconds, say)
    say("the Gram matrix again, with the record that was made, and by NumPy")
    contestants += [_tuned(opened, gram), _numpy()]
    timings = _race(contestants, gram)
    checks.insert(0, Check("Gram matrix", gram.shape, timings[1].error_ratio))
    return DemoReport(
        device=opened.profile.title,
        data=ATTRIBUTION,
        shape=x.shape,
        checks=tuple(checks),
        explained=_explained_variance(covariance),
        tried=tuned.tried,
        known=tuned.skipped,
        verdict=tuned.verdict,
        record_file=record_file,
        timings=timings,
        seconds=time.perf_counter() - start,
    )


class _Reference:
    """The product alpha * a @ b in float64, and the error that a float32 result may have."""

    def __init__(self, a, b, alpha=1):
        self.a, self.b = a, b
        names = dict(alpha=alpha, compute="float32", out="float32")
        self._value = reference.evaluate(a, b, result="float32", **names)
        # Most pixels at the border are 0 in most pictures: their sums are of one number, over and
        # over, whose rounding errors have one sign.
        self._allowed = reference.allowed_error(a, b, self._value, any_data=True, **names)

    @property
    def shape(self):
        return self._value.shape

    @property
    def flops(self):
        return 2 * self._value.size * self.a.shape[1]

    def ratio(self, result):
        """The largest error of a result ÷ what is allowed."""
        return reference.error_ratio(result, self._value, self._allowed)


def _tune(device, gram, budget_seconds, say):
    """(the tuner's ProblemReport, the file of the record that it made)."""
    problem = MatMul(gram.a, gram.b, device=device).problem
    report = tune(problem, device, f"{budget_seconds:f}s", progress=_Told(say))
    if report.interrupted:
        raise KeyboardInterrupt
    if not report.ok:
        raise VerificationError(f"{problem}: {report.problems[0].verdict}")
    return report.problems[0], report.best_file


class _Told(Progress):
    """The tuner's progress, as a line."""

    def __init__(self, say):
        self._say = say

    def update(self, search):
        self._say(f"the tuner: {summary(search)}")


def _explained_variance(covariance):
    eigenvalues = np.linalg.eigvalsh(covariance.astype(np.float64))[::-1]
    return tuple(float(x) for x in eigenvalues[:_COMPONENTS] / eigenvalues.sum())


@dataclass(frozen=True)
class _Contestant:
    name: str
    product: object  # of two arrays
    kernel: str
    origin: str


def _untuned(device, gram):
    """The first choice that works if this user has no tuning records."""
    problem = MatMul(gram.a, gram.b, device=device).problem
    database = TuningDatabase((), shipped_records(device.profile.key))
    for choice in choose(problem, device.profile, database):
        try:
            plan = MatMul(gram.a, gram.b, config=choice.config, device=device)
        except (BuildError, ConfigError, LaunchError, VerificationError):
            continue  # as a product passes over it
        return _Contestant("untuned", plan, str(choice.config), _origin(choice))
    raise LaunchError(f"no kernel could serve {problem} on {device.profile.title}")


def _tuned(device, gram):
    """Any product from now on, which finds the record by itself."""
    choice = MatMul(gram.a, gram.b, device=device).choice
    product = partial(matmul, device=device)
    return _Contestant("tuned", product, str(choice.config), _origin(choice))


def _numpy():
    note = "its own BLAS; of a product of X with its transpose it computes one half"
    return _Contestant("NumPy", np.matmul, "numpy.matmul", note)


def _origin(choice):
    return f"{choice.origin}: {choice.note}"


def _race(contestants, gram):
    """The Timing of each: its result checked, then timed in turns, NumPy being the last."""
    ratios = [gram.ratio(x.product(gram.a, gram.b)) for x in contestants]

    def timed(product):
        start = time.perf_counter_ns()
        product(gram.a, gram.b)
        return time.perf_counter_ns() - start

    times = interleave(
        [partial(timed, x.product) for x in contestants],
        _ROUNDS,
        pause_seconds=BLAS_IDLE_SECONDS,
        max_seconds=_TIMED_SECONDS,
    )
    return tuple(
        _timing(*entry, times[-1], gram.flops)
        for entry in zip(contestants, ratios, times, strict=True)
    )


def _timing(contestant, ratio, times_ns, numpy_ns, flops):
    median_ns = statistics.median(times_ns)
    against = compare(times_ns, numpy_ns)
    return Timing(
        name=contestant.name,
        seconds=median_ns / 1e9,
        gflops=flops / median_ns,
        times_numpy=against.ratio,
        low=against.low,
        high=against.high,
        rounds=against.rounds,
        error_ratio=ratio,
        kernel=contestant.kernel,
        origin=contestant.origin,
    )

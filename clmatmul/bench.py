"""bench: products timed against NumPy or CLBlast, in one process, in turn, all results checked.

Four contestants an entry: our kernels alone (launches on buffers in the device's memory, waited
for), a prepared `MatMul` on arrays in the device's memory, the same with NumPy arrays in and out,
and the baseline. All times are the wall clock's, packing and waiting included. They run in turn,
in reversed order every other round, with a pause before each so that threads of the one before go
idle. Speed drifts on every machine; ratios of neighbours in time do not.
"""

from clmatmul import bench_clblast
from clmatmul import device as devices
from clmatmul.bench_contestants import Product, race
from clmatmul.bench_results import Bench, Figures, Ratio, Row
from clmatmul.bench_suites import left_out
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.selection import resolve

BASELINES = ("numpy", "clblast")
ROUNDS = 11
SECONDS = 10.0


def bench(entries, *, baseline="numpy", library=None, rounds=ROUNDS, seconds=SECONDS, device=None,
          told=lambda row: None, begun=lambda entry: None):  # fmt: skip
    """Time products against a baseline.

    entries: of `bench_suites`. baseline: 'numpy' or 'clblast'; an entry that names a dtype of its
    own to be compared with keeps that. library: CLBlast's file, where the system does not find it.
    rounds: turns of each contestant. seconds: of an entry; no more rounds are begun then, once
    there are three. begun: told each Entry when it begins; told: each Row when it is done.

    Returns a Bench; after Ctrl-C, of what was done by then. VerificationError if one of our
    results is wrong, ArgumentError.
    """
    if rounds < 1:
        raise ArgumentError(f"rounds={rounds} must be at least 1")
    if not seconds > 0:
        raise ArgumentError(f"seconds={seconds} must be more than 0")
    if baseline not in BASELINES:
        raise ArgumentError(f"baseline={baseline!r} is none of {', '.join(BASELINES)}")
    clblast = bench_clblast.load(library) if baseline == "clblast" else None
    opened = resolve(device)
    rows, missed, interrupted = [], [], False
    try:
        for entry in entries:
            reason = left_out(entry, opened.profile)
            if reason is None and clblast is not None and entry.against is None:
                reason = bench_clblast.unsupported(entry)
            if reason is not None:
                missed.append((entry, reason))
                continue
            begun(entry)
            rows.append(_row(opened, entry, clblast, rounds, seconds))
            told(rows[-1])
    except KeyboardInterrupt:
        interrupted = True
    return Bench(
        opened.profile, devices.versions(), baseline, rounds, tuple(rows), tuple(missed),
        interrupted,
    )  # fmt: skip


def _row(device, entry, clblast, rounds, seconds):
    product = Product(device, entry)
    ours = (product.launches(), product.device_arrays(), product.host_arrays())
    if entry.against:
        baseline = product.own()
    elif clblast is not None:
        baseline = product.clblast(clblast)
    else:
        baseline = product.numpy()
    race((baseline, *ours), rounds, seconds)
    for contestant in ours:
        if contestant.fault:
            raise VerificationError(
                f"{product.config}, {entry.name}, {contestant.name}: {contestant.fault}"
            )
    compared = ours if baseline.name == "numpy" else ours[:-1]
    return Row(
        entry=entry,
        baseline=baseline.name,
        config=str(product.config),
        origin=product.plan.choice.origin,
        flops=product.plan.problem.flops,
        times={x.name: Figures.of(x.turns) for x in ours}
        | {"baseline": Figures.of(baseline.turns)},
        ratios={x.name: Ratio.of(x.turns, baseline.turns) for x in compared},
        error_ratio=max(product.error_ratio, *(x.worst for x in ours)),
        baseline_fault=baseline.fault,
    )

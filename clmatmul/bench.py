"""bench: products timed beside NumPy, CLBlast or torch, in one process, all results checked.

Four contestants an entry: our kernels alone (launches on buffers in the device's memory, waited
for), a prepared `MatMul` on arrays in the device's memory, the same with NumPy arrays in and out,
and the baseline. All times are the wall clock's, packing and waiting included. They run in turn,
in reversed order every other round, with a pause before each so that threads of the one before go
idle. Speed drifts on every machine; ratios of neighbours in time do not.
"""

from clmatmul import bench_clblast, bench_torch
from clmatmul import device as devices
from clmatmul.bench_contestants import Product, race
from clmatmul.bench_results import Bench, Figures, Ratio, Row
from clmatmul.bench_suites import left_out
from clmatmul.errors import ArgumentError, VerificationError
from clmatmul.selection import resolve

BASELINES = ("numpy", "clblast", "torch")
ROUNDS = 11
SECONDS = 10.0


def bench(entries, *, baseline="numpy", library=None, rounds=ROUNDS, seconds=SECONDS, device=None,
          told=lambda row: None, begun=lambda entry: None):  # fmt: skip
    """Time products against a baseline.

    entries: of `bench_suites`. baseline: one of BASELINES; an entry that names a dtype of its
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
    peer = {"numpy": None, "clblast": bench_clblast, "torch": bench_torch}[baseline]
    loaded = bench_clblast.load(library) if peer is bench_clblast else peer and peer.load()
    opened = resolve(device)
    versions = devices.versions()
    if baseline == "torch":
        versions["torch"] = loaded.__version__
    rows, missed, interrupted = [], [], False
    try:
        for entry in entries:
            reason = left_out(entry, opened.profile)
            if reason is None and peer is not None and entry.against is None:
                reason = peer.unsupported(entry)
            if reason is not None:
                missed.append((entry, reason))
                continue
            begun(entry)
            rows.append(_row(opened, entry, baseline, loaded, rounds, seconds))
            told(rows[-1])
    except KeyboardInterrupt:
        interrupted = True
    return Bench(
        opened.profile, versions, baseline, rounds, tuple(rows), tuple(missed), interrupted,
    )  # fmt: skip


def _row(device, entry, baseline, loaded, rounds, seconds):
    product = Product(device, entry)
    ours = (product.launches(), product.device_arrays(), product.host_arrays())
    if entry.against:
        peer = product.own()
    elif baseline == "numpy":
        peer = product.numpy()
    else:
        peer = getattr(product, baseline)(loaded)
    race((peer, *ours), rounds, seconds)
    for contestant in ours:
        if contestant.fault:
            raise VerificationError(
                f"{product.config}, {entry.name}, {contestant.name}: {contestant.fault}"
            )
    compared = ours if peer.name == "numpy" else ours[:-1]
    return Row(
        entry=entry,
        baseline=peer.name,
        config=str(product.config),
        origin=product.plan.choice.origin,
        flops=product.plan.problem.flops,
        times={x.name: Figures.of(x.turns) for x in ours} | {"baseline": Figures.of(peer.turns)},
        ratios={x.name: Ratio.of(x.turns, peer.turns) for x in compared},
        error_ratio=max(product.error_ratio, *(x.worst for x in ours)),
        baseline_fault=peer.fault,
    )

"""What is to be expected of configurations that were not tried, from those that were.

A Gaussian process (Rasmussen and Williams 2006) over log cost: two configurations are the more
alike the nearer their values are, parameter by parameter and, to a lesser part, in pairs of
parameters; a parameter of the same name tells something about other kernels too. What to try next
is what improves most on the best, on average (Jones, Schonlau and Welch 1998), for the time that a
trial takes (Snoek, Larochelle and Adams 2012).
"""

import math

import numpy as np

_NEAR = 3.0  # steps of a parameter's values over which likeness falls to 1/e
_SAME_KERNEL = 1.0  # weights: being of one kernel, single parameters, pairs of them
_SINGLE, _PAIRS = 0.7, 0.2
_ACROSS = 0.5  # of what a parameter says about another kernel's parameter of that name
_NOISE = 0.01
_FAILED = 1.0  # what failed counts as e times as slow as the slowest
_MOST_SEEN = 300  # what is slower than so many says little
_CHEAP = 1.5  # how much more is tried in the same time without a new program
_erf = np.vectorize(math.erf, otypes=[float])


def most_promising(seen, candidates, parameters, count, cheap=()):
    """`count` of the candidates, the most promising first; ties in their order.

    seen: config → record with status and cost, of which one passed at least. parameters: variant →
    {name: values in order}. cheap: those of the candidates that need no new program. Each choice
    counts as made, with the cost that is expected of it, before the next.
    """
    tried = _tried(seen, parameters)
    likeness = _likeness([*(config for config, _ in tried), *candidates], parameters)
    cost = np.array([value for _, value in tried])
    costs = list((cost - cost.mean()) / max(cost.std(), 1e-3))
    known, open_ = list(range(len(tried))), list(range(len(tried), len(likeness)))
    chosen = []
    inverse = np.linalg.inv(likeness[np.ix_(known, known)] + _NOISE * np.eye(len(known)))
    while open_ and len(chosen) < count:
        mean, spread = _expected(inverse, likeness, known, costs, open_)
        gain = _improvement(min(costs) - mean, spread)
        weight = [_CHEAP if candidates[i - len(tried)] in cheap else 1.0 for i in open_]
        at = int(np.argmax(weight * gain))
        chosen.append(candidates[open_[at] - len(tried)])
        new = open_.pop(at)
        inverse = _with_one_more(inverse, likeness[known, new], likeness[new, new] + _NOISE)
        known.append(new)
        costs.append(mean[at])
    return chosen


def _tried(seen, parameters):
    """(config, log cost), fastest first, of what was tried of these variants."""
    mine = [x for x in seen.values() if x.config.variant in parameters]
    slowest = max(x.cost for x in mine if x.status == "ok")
    found = [
        (x.config, math.log(x.cost) if x.status == "ok" else math.log(slowest) + _FAILED)
        for x in mine
    ]
    return sorted(found, key=lambda x: x[1])[:_MOST_SEEN]


def _likeness(configs, parameters):
    """The covariance of each two configurations, before noise and scale."""
    variants = np.array([list(parameters).index(x.variant) for x in configs])
    same = variants[:, None] == variants[None, :]
    shared = np.where(same, 1.0, _ACROSS)
    single = np.zeros(same.shape)
    squares = np.zeros(same.shape)
    names = [
        name for name in dict.fromkeys(x for values in parameters.values() for x in values)
        if any(len(values.get(name, ())) > 1 for values in parameters.values())
    ]  # fmt: skip
    for name in names:
        steps = np.array([_step(x, name, parameters[x.variant]) for x in configs])
        alike = np.exp(-np.abs(steps[:, None] - steps[None, :]) / _NEAR)
        alike = np.where(np.isnan(alike), 0.0, alike) * shared
        single += alike
        squares += alike * alike
    count = max(len(names), 1)
    pairs = (single * single - squares) / max(count * (count - 1), 1)
    return _SAME_KERNEL * same + _SINGLE * single / count + _PAIRS * np.where(same, pairs, 0.0)


def _step(config, name, allowed):
    """The place of a parameter's value among those allowed; NaN if the kernel has none such."""
    if name not in allowed:
        return math.nan
    value, values = config.values()[name], allowed[name]
    # A record from outside a restricted space has other values.
    return values.index(value) if value in values else len(values) / 2


def _expected(inverse, likeness, known, costs, open_):
    """(mean, standard deviation) of the cost of what is open, given what is known.

    inverse: of the covariance of what is known, with noise.
    """
    explained = inverse @ np.array(costs)
    scale = (explained @ np.array(costs) + 2) / (len(known) + 2)
    towards = likeness[np.ix_(known, open_)]
    left = np.diag(likeness)[open_] - (towards * (inverse @ towards)).sum(0)
    return towards.T @ explained, np.sqrt(scale * np.maximum(left, 1e-8))


def _with_one_more(inverse, column, own):
    """The inverse of a symmetric matrix that has one more row and column: (column, own)."""
    seen = inverse @ column
    left = own - column @ seen
    corner = -seen[:, None] / left
    return np.block([[inverse - seen[:, None] * corner.T, corner], [corner.T, 1 / left]])


def _improvement(ahead, spread):
    """By how much something that is expected `ahead` of the best, ± spread, beats it on average."""
    ratio = ahead / spread
    above = 0.5 * (1 + _erf(ratio / math.sqrt(2)))
    return spread * (ratio * above + np.exp(-ratio * ratio / 2) / math.sqrt(2 * math.pi))

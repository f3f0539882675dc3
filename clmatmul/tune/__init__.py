"""The tuner: finds, verifies and records the fastest configuration for a problem.

    from clmatmul.tune import tune
    report = tune((1000, 1000, 1000), budget="60s")

The parent process (`tuner`) never touches OpenCL. It proposes configurations (`strategies`)
within a `budget`, has killable worker processes build, check and time them (`trials`, `lanes`,
`supervisor`, `worker`), appends each trial to a journal (`store`), and publishes the winner to the
file that the next product reads. `records` and `t4` look after what was recorded, `shapes` reads
lists of problems, `landscape` replays recorded searches, `report`, `html` and `progress` tell.
"""

from clmatmul.tune.tuner import tune

__all__ = ["tune"]

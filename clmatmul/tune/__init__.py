"""The tuner: finds, verifies and records the fastest configuration for a problem.

    from clmatmul.tune import tune
    report = tune((1000, 1000, 1000), budget="60s")

The parent process (`tuner`) never touches OpenCL. It proposes configurations (`strategies`)
within a `budget`, hands them to a killable worker process (`supervisor`, `worker`), appends each
trial to a journal, and publishes the winner to the file that the next product reads.
"""

from clmatmul.tune.tuner import tune

__all__ = ["tune"]

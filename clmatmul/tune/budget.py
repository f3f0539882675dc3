"""Budget: when a search ends, in seconds, in trials, or whichever of both comes first."""

import re
from dataclasses import dataclass, replace

from clmatmul.errors import ArgumentError

_FINAL_SECONDS = 10
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}


@dataclass(frozen=True)
class Budget:
    """Limits of a search; None is no limit."""

    seconds: float | None = None
    trials: int | None = None

    @classmethod
    def parse(cls, value):
        """From a Budget, text such as '60s', '200trials' or '5m,200trials', or several of them.

        ArgumentError names what is allowed.
        """
        if isinstance(value, cls):
            return value
        texts = [value] if isinstance(value, str) else list(value)
        seconds, trials = None, None
        for part in ",".join(map(str, texts)).split(","):
            text = part.strip()
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.lower())
            unit = match and match.group(2)
            if unit in _UNITS:
                seconds = float(match.group(1)) * _UNITS[unit]
            elif unit in ("trial", "trials") and match.group(1).isdigit():
                trials = int(match.group(1))
            else:
                raise ArgumentError(
                    f"budget={text!r} is not allowed; write it as 60s, 5m, 1h, 200trials, or two "
                    "of them with a comma between"
                )
        if not seconds and not trials:
            raise ArgumentError(f"budget={value!r} allows nothing; it must be above 0")
        return cls(seconds, trials)

    def share(self, part):
        """The budget of a part of the work: 0 to 1."""
        return Budget(
            None if self.seconds is None else self.seconds * part,
            None if self.trials is None else max(int(self.trials * part + 1e-9), 1),
        )

    def searching(self):
        """The part for the search itself: some of the seconds are for the final comparison."""
        if self.seconds is None:
            return self
        return replace(self, seconds=self.seconds - min(0.2 * self.seconds, _FINAL_SECONDS))

    def is_spent(self, seconds, trials):
        """True once either limit is reached."""
        return (self.seconds is not None and seconds >= self.seconds) or (
            self.trials is not None and trials >= self.trials
        )

    def __str__(self):
        parts = []
        if self.seconds is not None:
            seconds = round(self.seconds, 1) if self.seconds > 1 else self.seconds
            parts.append(f"{seconds:g} s")
        if self.trials is not None:
            parts.append(f"{self.trials} trial{'' if self.trials == 1 else 's'}")
        return " or ".join(parts)

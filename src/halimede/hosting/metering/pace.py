"""How much shorter than AWS's this host's times are: for work on a laptop, all periods are shortened together."""

from dataclasses import dataclass

AWS_PERIOD_S = 60
"""AWS's shortest standard period, in seconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long AWS's times take here.

    Attributes:
        period_s: what AWS's 60 seconds take, in seconds; a divisor of 60, so that minutes have whole periods.
    """

    period_s: int = AWS_PERIOD_S

    def seconds(self, aws_seconds: float) -> float:
        """What a time of AWS's takes here, in seconds."""
        return aws_seconds * self.period_s / AWS_PERIOD_S

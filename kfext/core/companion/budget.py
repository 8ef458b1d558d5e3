"""What a job may lose for others, or lend them: a part of the CPU that it takes itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used, and lost below an equal share of its nodes; in core-seconds.

    `lent`: what it had less than an equal share for jobs that end before it; they leave it more
    once they have ended. `borrowed`: what it had more, of jobs that end after it.
    """

    used: float = 0.0
    lost: float = 0.0
    lent: float = 0.0
    borrowed: float = 0.0

    def after(
        self, *, use: int, equal: int, cap: int | None, seconds: float, lends: bool = False
    ) -> "Budget":
        """Return the budget after an interval on a node; CPU in millicores.

        `equal`: what the job would have if no job on the node was restricted. `cap`: the sum of
        its limits there, None while kfext does not restrict it. Only what a cap took is lost: a
        job that uses less than its cap wanted no more. `lends`: what a cap takes goes to a job that
        ends first, so it is lent and not lost.
        """
        stopped = cap is not None and use >= STOPPED * cap
        below = (max(0, equal - use) if stopped else 0) * seconds / 1000
        above = max(0, use - equal) * seconds / 1000
        return Budget(
            used=self.used + use * seconds / 1000,
            lost=self.lost + (0 if lends else below),
            lent=self.lent + (below if lends else 0),
            borrowed=self.borrowed + (above if lends else 0),
        )

    def spent(self, share: float) -> bool:
        """Return whether it has lost more than a share of what it has used."""
        return self.lost > share * self.used

    def may_lend(self, share: float, *, left: float) -> bool:
        """Return whether it has lent less than a share of all that it takes; `left`: to its end."""
        return self.lent < share * (self.used + left)


STOPPED = 0.95
"""The share of a limit from which on a pod or a job counts as stopped by it."""

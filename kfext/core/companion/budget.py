"""What a job may lose for others: a part of the CPU that it has used itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used, and lost below an equal share of its nodes; in core-seconds."""

    used: float = 0.0
    lost: float = 0.0

    def after(self, *, use: int, equal: int, cap: int | None, seconds: float) -> "Budget":
        """Return the budget after an interval on a node; CPU in millicores.

        `equal`: what the job would have if all jobs on the node had the same. `cap`: the sum of
        its limits there, None while kfext does not restrict it. Only what a cap took is lost: a
        job that uses less than its cap wanted no more.
        """
        lost = 0
        if cap is not None and use >= _STOPPED * cap:
            lost = max(0, equal - use)
        return Budget(
            used=self.used + use * seconds / 1000,
            lost=self.lost + lost * seconds / 1000,
        )

    def spent(self, share: float) -> bool:
        """Return whether it has lost more than a share of what it has used."""
        return self.lost > share * self.used


_STOPPED = 0.95
"""The share of its cap from which on a job counts as stopped by it."""

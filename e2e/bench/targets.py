"""What kfext aims at: the rows of the design's performance table that these benchmarks measure.

A figure is judged, never asserted: a miss is printed as a miss, and the benchmark goes on.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure; `sense` is `<=`, `>=` or `==`."""

    sense: str
    bound: float
    unit: str = ""

    def judge(self, figure: float) -> str:
        """Return the cell of a table: the bound, and whether the figure keeps it."""
        kept = {
            "<=": figure <= self.bound,
            ">=": figure >= self.bound,
            "==": figure == self.bound,
        }[self.sense]
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.sense} {self.bound:g}{unit}: {'PASS' if kept else 'MISS'}"


REVIEW_P50 = Target("<=", 1.0, "ms")
"""One review at 200 a second."""
REVIEW_P99 = Target("<=", 5.0, "ms")
REVIEW_RATE = Target(">=", 2000.0, "/s")
"""Reviews a second of one replica, 32 connections."""
REVIEW_ERRORS = Target("==", 0.0)

GANG_RATIO = Target(">=", 0.9)
"""Time of a bare client divided by that of kfext, 64 pods."""
GANG_POD_WRITES = Target("==", 1.0)

PLAN_RATE = {1000: Target(">=", 1000.0, "/s"), 5000: Target(">=", 300.0, "/s")}
"""Plans a second, by number of nodes."""

FIRST_BIND_RATIO = Target("<=", 1.5)
"""Submit to first pod bound, with kfext divided by without."""

"""What a job has shown by each measure, in windows of one interval."""

from collections import deque
from dataclasses import dataclass

from kfext.core.companion.proposal import Measure
from kfext.core.progress.followed import INTERVAL
from kfext.core.progress.reported import Progress

_KEPT = 4


@dataclass(frozen=True, slots=True)
class _Reported:
    """A step, and when the job printed it, in seconds."""

    step: int
    at: float


class History:
    """Follows one job; `rate` is its steps a second in the last window, None if it reports none."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._values: dict[Measure, deque[float]] = {
            measure: deque(maxlen=_KEPT) for measure in Measure
        }
        self._reported: _Reported | None = None
        self._ended: float | None = None

    def take(self, progress: Progress, use: int | None, *, now: float) -> bool:
        """Take in what a job shows now; return whether that has ended a window.

        `use`: of its pods, in millicores. `now`: monotonic.
        """
        if self._ended is not None and now - self._ended < INTERVAL:
            return False
        self._ended = now
        self.rate = self._rate(progress)
        for measure, value in ((Measure.RATE, self.rate), (Measure.USE, use)):
            if value is not None:
                self._values[measure].append(value)
        return True

    def forget(self) -> None:
        """Forget all windows: they were of other conditions than those from now on."""
        for values in self._values.values():
            values.clear()

    def of(self, measure: Measure) -> tuple[float, ...]:
        """Return what it showed by a measure in the last windows that had a value, newest last."""
        return tuple(self._values[measure])

    def _rate(self, progress: Progress) -> float | None:
        """Return the steps a second since the last window, None if that is not known.

        The rate of its progress is that of its last minutes, so a change would show late.
        """
        before, self._reported = self._reported, None
        if progress.step is None or progress.at is None:
            return None
        self._reported = now = _Reported(progress.step, progress.at)
        if before is None or now.at <= before.at or now.step < before.step:
            return None
        return (now.step - before.step) / (now.at - before.at)

"""The record of the stops of a job that the companion follows."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from kfext.model.verdict import Verdict
from kfext.state.running.operation import StopOperation
from kfext.state.running.running_job import RunningJob, SavingRecord

_MAX_SAVES = 6
"""The number of recent times that determine the usual interval of checkpoints."""


@dataclass(slots=True)
class StopRecord(SavingRecord):
    """The record of the stops of a job.

    `ineligible`: why the job is ineligible, or None for an eligible job.
    `saves`: the creation time of its pods, then the times of its checkpoints, in epoch seconds.
    """

    operation: StopOperation | None = None
    ineligible: Verdict | None = None
    saves: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAVES))

    def observe_save(self, saved: float | None, *, began: float) -> None:
        """Record the last checkpoint; `began`: when the pods were created. Both: epoch seconds."""
        while self.saves and self.saves[0] < began:
            self.saves.popleft()
        if not self.saves:
            self.saves.append(began)
        if saved is not None and saved > self.saves[-1]:
            self.saves.append(saved)

    @property
    def next_save(self) -> float | None:
        """The expected time of its next checkpoint without a request; None means unknown."""
        if len(self.saves) < 2:
            return None
        gaps = [later - earlier for earlier, later in pairwise(self.saves)]
        return self.saves[-1] + median(gaps)


def record_of(job: RunningJob) -> StopRecord:
    """Return the record of the stops of a job."""
    return job.record(StopRecord)

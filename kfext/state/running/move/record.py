"""The record of the moves of a job that the companion follows."""

from dataclasses import dataclass

from kfext.model.verdict import Verdict
from kfext.state.running.operation import MoveOperation
from kfext.state.running.running_job import RunningJob, SavingRecord


@dataclass(slots=True)
class MoveRecord(SavingRecord):
    """The record of the moves of a job.

    `unfit`: why the job is ineligible, if it is. `stays`: why the last look did not move it.
    """

    operation: MoveOperation | None = None
    unfit: Verdict | None = None
    stays: Verdict | None = None


def record_of(job: RunningJob) -> MoveRecord:
    """Return the record of the moves of a job."""
    return job.record(MoveRecord)

"""The record of the moves of a job that the companion follows."""

from dataclasses import dataclass

from kfext.model.verdict import Verdict
from kfext.state.running.operation import MoveOperation
from kfext.state.running.running_job import RunningJob, SavingRecord


@dataclass(slots=True)
class MoveRecord(SavingRecord):
    """The record of the moves of a job.

    `ineligible`: why the job is ineligible, or None for an eligible job.
    `stays`: why the last scan did not move the job, or None after a proposal to move it.
    """

    operation: MoveOperation | None = None
    ineligible: Verdict | None = None
    stays: Verdict | None = None


def record_of(job: RunningJob) -> MoveRecord:
    """Return the record of the moves of a job."""
    return job.record(MoveRecord)

"""The pods that the operator has yet to create: with too many of them, nothing more is planned."""

from collections.abc import Iterable

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod

MOST_OUTSTANDING = 500
"""Pods that the operator may have to create before more are planned: at ten a second, what is
planned beyond that would only keep capacity from jobs that could use it now."""


class PodCreationBacklog:
    """How many `pods` are to come, over all jobs; `crowded`: too many for more to be planned."""

    def __init__(self) -> None:
        self.pods = 0
        self.crowded = False
        self._missing: dict[str, int] = {}

    @property
    def crowd(self) -> int:
        """The least number of pods yet to be created while that is too many for more, else 0."""
        return MOST_OUTSTANDING // 2 if self.crowded else 0

    def jobs(self) -> Iterable[str]:
        """Return the uids of the jobs that have pods to come."""
        return self._missing

    def missing(self, uid: str) -> int:
        """Return how many pods of a job are to come."""
        return self._missing.get(uid, 0)

    def expect(self, uid: str, missing: int) -> bool:
        """Take in how many pods of a job are to come; return whether more may be planned again.

        Once there are too many, nothing more is planned until half of them exist, so that waiting
        jobs are looked at once per half, not once per pod, and none slips in between.
        """
        self.pods += missing - self.missing(uid)
        if missing:
            self._missing[uid] = missing
        else:
            self._missing.pop(uid, None)
        if self.pods >= MOST_OUTSTANDING:
            self.crowded = True
        elif self.crowded and self.pods <= MOST_OUTSTANDING // 2:
            self.crowded = False
            return True
        return False


def still_to_come(job: TrainingJob, pods: tuple[Pod, ...]) -> int:
    """Return how many pods the operator is creating: not those that a running gang has lost."""
    if job.suspend or job.finished or job.deleting:
        return 0  # what it still holds are ports
    if any(pod.node_name and not pod.deleting for pod in pods):
        return 0
    return max(job.pods - len(pods), 0)

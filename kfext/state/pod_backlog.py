"""The pods that the operator still has to create: if there are too many, no more are planned."""

from collections.abc import Iterable

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod

MOST_OUTSTANDING = 500
"""The most pods that may await creation before planning stops: the operator creates about ten a
second, so plans beyond that would only withhold capacity from jobs that could use it now."""


class PodCreationBacklog:
    """The number of `pods` to be created, over all jobs; `crowded`: too many to plan more."""

    def __init__(self) -> None:
        self.pods = 0
        self.crowded = False
        self._missing: dict[str, int] = {}

    @property
    def crowd(self) -> int:
        """While `crowded`, the number of pods that still have to be created at least, else 0."""
        return MOST_OUTSTANDING // 2 if self.crowded else 0

    def jobs(self) -> Iterable[str]:
        """Return the uids of the jobs that have pods to be created."""
        return self._missing

    def missing(self, uid: str) -> int:
        """Return how many pods of a job are still to be created."""
        return self._missing.get(uid, 0)

    def expect(self, uid: str, missing: int) -> bool:
        """Take in how many pods of a job are to be created; return whether planning may resume.

        Once there are too many, nothing more is planned until half of them exist. So waiting jobs
        are looked at once per half, not once per pod, and no later job overtakes in between.
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
        return 0  # its claims are for ports only
    if job.excess:
        return 0  # kfext does not wait for so many
    if any(pod.node_name and not pod.deleting for pod in pods):
        return 0
    return max(job.pods - len(pods), 0)

"""The pods that the operator has yet to create: with too many of them, nothing more is planned."""

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.state.entry import Entry

MOST_OUTSTANDING = 500
"""Pods that the operator may have to create before more are planned: at ten a second, what is
planned beyond that would only keep room from those who could use it now."""


class Outstanding:
    """How many `pods` are to come, over all `jobs` (by uid); `crowded`: too many for more."""

    def __init__(self) -> None:
        self.pods = 0
        self.jobs: dict[str, Entry] = {}
        self.crowded = False

    @property
    def crowd(self) -> int:
        """The least number of pods yet to be created while that is too many for more, else 0."""
        return MOST_OUTSTANDING // 2 if self.crowded else 0

    def expect(self, entry: Entry, missing: int) -> bool:
        """Take in how many pods of a job are still to come; return whether more may be planned.

        Once there are too many nothing more is planned until half of them are there, so that who
        waits is looked at once per half, not once per pod, and nobody slips in between.
        """
        self.pods += missing - entry.missing
        entry.missing = missing
        if missing:
            self.jobs[entry.job.uid] = entry
        else:
            self.jobs.pop(entry.job.uid, None)
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

"""What a change of size costs a job: how long it stops the training, and what is done again.

The pause is that of the last change. Before the first one it is taken from the job's own start:
from its pods to its first step, and their grace period, which a change may have to wait for.
"""

from kfext.core.companion.operation import FRESH_SECONDS
from kfext.core.companion.scale import interrupts
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.state.progress import JobsProgress
from kfext.state.scaling.scaled_job import ScaledJob

USUAL_START = 30.0
"""Seconds from the pods of a job to its first step, where that was not seen."""
WATCHED_SECONDS = 60.0
"""How long after a change the end of its pause is looked for: the agents of torchrun may let the
processes train on for seconds before they meet."""
_UNSEEN_SECONDS = 30.0
"""How long after a change its answer, or what it did, may be seen for its pause to be measured."""


def cost(one: ScaledJob, progress: JobsProgress, *, now: float) -> float:
    """Return the seconds that a change costs a job by itself; `now` is in epoch seconds."""
    pause = one.pause or USUAL_START + _grace(one.tracked.job)
    saved = progress.checkpoints(one.uid).saved
    if saved is None or not interrupts(one.tracked.job):
        return pause
    # A change waits for a save that is no older than this.
    return pause + min(max(0.0, now - saved), FRESH_SECONDS)


def note_start(one: ScaledJob, progress: JobsProgress, pods: tuple[Pod, ...]) -> None:
    """Take in how long a job took to its first step, if it has never changed its size.

    A controller that met it when it ran already may not have read its first lines.
    """
    if one.pause or not one.starts or not pods:
        return
    created = max(pod.created for pod in pods)
    first = progress.resumed(one.uid, since=created, after=created)
    if first is not None:
        one.pause = first - created + _grace(one.tracked.job)


def note_pause(one: ScaledJob, progress: JobsProgress, now: Moment) -> None:
    """Take in for how long the last change has stopped a job, by the times in its log."""
    changed_at = one.tracked.state.scale.changed_at
    unseen = now.wall - changed_at - (now.monotonic - one.settled_at)
    if unseen > _UNSEEN_SECONDS:
        return  # an earlier controller may have seen the first step
    whole = now.wall - (now.monotonic - one.whole_at)
    resumed = progress.resumed(one.uid, since=changed_at, after=whole)
    if resumed is not None:
        one.pause = resumed - changed_at


def _grace(job: TrainingJob) -> int:
    """Return the longest grace period of the pods of a job, in seconds."""
    return max((group.grace for group in job.groups), default=0)

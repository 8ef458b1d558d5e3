"""Why kfext leaves the CPU or the workers of a job alone, when it starts and while it runs.

kfext takes nothing from a job that could not get it back: such a job starts whole and stays as it
is.
"""

from collections.abc import Sequence

from kfext.core.companion.restoring import noted
from kfext.core.companion.scale import SCALE, interrupts
from kfext.core.elastic import workers_of
from kfext.core.progress.reported import Reported
from kfext.core.settings.table import Settings
from kfext.core.settings.values import MetricsSource, Range
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import MOST_RESIZED, CpuState
from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import WORKER
from kfext.model.pod import Pod
from kfext.model.policy import Mode
from kfext.model.replica_group import ReplicaGroup
from kfext.model.verdict import Verdict
from kfext.names import (
    METRICS,
    REASON_NO_SHARED_VOLUME,
    REASON_RECOGNISED,
    REASON_STANDS_DOWN,
)


def why_no_resize(job: TrainingJob, pods: Sequence[Pod], state: CpuState) -> str:
    """Return why no policy changes the CPU of a job's pods; empty if policies may."""
    if why := _why_others(job):
        return why
    unlike = len(noted(state, ((pod, CpuSize()) for pod in pods), by=frozenset()).unlike)
    if len(pods) + unlike > MOST_RESIZED:
        varied = f", {unlike} of them with CPU of their own" if unlike else ""
        limit = f"at most {MOST_RESIZED}, where a pod with CPU of its own counts twice"
        return f"it has {len(pods)} pods{varied}; kfext changes the CPU of {limit}"
    for pod in pods:
        if pod.trainer is None or pod.replica is None:
            return (
                f"pod {pod.name} has no container {job.kind.container} with resources of its own: "
                "it is not known what trains"
            )
        if pod.trainer.restarts:
            return f"a resize restarts the container of pod {pod.name}, by its resizePolicy"
    return ""


def why_unread(reported: Reported | None, *, source: MetricsSource, left: float | None) -> str:
    """Return why both the growth and the end of a job are unknown; empty while it is too early.

    `source`: of its progress. `left`: the core-seconds to its end, or None.
    """
    if not source.is_log:
        return f"{METRICS} is {source.source}, so neither progress nor CPU use of it is read"
    if reported is None or reported.growth is not None or left is not None:
        return ""
    if reported.known is not None and reported.known.reason != REASON_RECOGNISED:
        return reported.known.message
    metric = reported.progress.metric
    unknown = metric and reported.state is None
    return f"it is not known whether {metric} improves upwards or downwards" if unknown else ""


def open_range(job: TrainingJob, settings: Settings) -> Range | None:
    """Return the range of training pods that kfext may choose from for a job, or None.

    Master and Chief count as training pods.
    """
    acts = SCALE.effective(settings).mode is Mode.ACT
    return settings.elastic if acts and not why_left_alone(job, settings) else None


def why_left_alone(job: TrainingJob, settings: Settings) -> str:
    """Return why kfext does not choose the size of a job that opted in; empty if it may."""
    if interrupts(job) and not settings.metrics.is_log:
        return (
            f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
        )
    return why_not_scaled(job)


def why_not_moved(job: TrainingJob, settings: Settings) -> Verdict | None:
    """Return why kfext leaves a job where it is although it opted in to moves, or None.

    Each message is a part of a sentence, and says what would change it.
    """
    why = _why_others(job) or _why_same_slots(job)
    if not settings.metrics.is_log:
        why = f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
    if why:
        return Verdict(REASON_STANDS_DOWN, why)
    if volume := next(filter(None, map(local_volume, job.groups)), ""):
        message = f"{volume} is on its node: save checkpoints on a volume that all nodes reach"
        return Verdict(REASON_NO_SHARED_VOLUME, message)
    return None


def local_volume(group: ReplicaGroup) -> str:
    """Return the volume on its node that may hold the checkpoints of a replica; empty if none does.

    A claim that is bound to a node counts. A directory of the node or of the pod counts if the
    replica mounts nothing else that it may write to.
    """
    for terms in group.constraints.volumes.terms:
        if terms and all(term.names_node for term in terms):
            return "the volume of a claim"
    return group.local_volume


def why_not_scaled(job: TrainingJob) -> str:
    """Return why the workers of a job are left alone; empty if they may change.

    Each reason is a part of a sentence, and says what would change it.
    """
    return _why_others(job) or _why_same_slots(job) or why_one_size(job)


def _why_same_slots(job: TrainingJob) -> str:
    return "it shares GPUs, and keeps its slots" if job.shares_gpus else ""


def _why_others(job: TrainingJob) -> str:
    """Return what else manages the size of a job; empty if nothing does."""
    if job.started_by:
        return f"{job.started_by} manages it, and accounts for what it has: submit the job alone"
    if job.scaling.autoscaled:
        # The autoscaler follows the use of the pods, so both would react to each other's changes.
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    return ""


def why_one_size(job: TrainingJob) -> str:
    """Return why only the present number of workers can train; empty if another number can."""
    if workers_of(job) or WORKER not in job.kind.types:
        return job.scaling.fixed
    return "it has no workers: add a replica type Worker"

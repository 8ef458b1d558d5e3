"""Why kfext leaves the CPU of a job alone while it runs."""

from collections.abc import Sequence

from kfext.core.companion.restoring import noted
from kfext.core.eligibility import why_others
from kfext.core.progress.reported import Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import MOST_RESIZED, CpuState
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.names import (
    METRICS,
    REASON_RECOGNISED,
)


def why_no_resize(job: TrainingJob, pods: Sequence[Pod], state: CpuState) -> str:
    """Return why no policy changes the CPU of a job's pods; empty if policies may."""
    if why := why_others(job):
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

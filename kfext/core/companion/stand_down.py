"""Why all policies leave a job alone, whatever it shows."""

from collections.abc import Sequence

from kfext.core.companion.owned import noted
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import MOST_RESIZED, CpuState
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod


def why_stand_down(job: TrainingJob, pods: Sequence[Pod], state: CpuState) -> str | None:
    """Return why the CPU of a job's pods is left alone, None if it need not be."""
    if job.kueue_managed:
        return "Kueue manages the job, and accounts for its resources"
    if job.scaling.autoscaled:
        # It goes by what the pods use, so both would change the job for what the other has done.
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    unlike = len(noted(state, ((pod, CpuSize(0)) for pod in pods), by=frozenset()).unlike)
    if len(pods) + unlike > MOST_RESIZED:
        own = f", {unlike} of them with CPU of their own" if unlike else ""
        most = f"at most {MOST_RESIZED}, where a pod with CPU of its own counts twice"
        return f"it has {len(pods)} pods{own}; kfext changes the CPU of {most}"
    for pod in pods:
        if pod.trainer is None or pod.replica is None:
            return (
                f"pod {pod.name} has no container {job.kind.container} with resources of its own: "
                "it is not known what trains"
            )
        if pod.trainer.restarts:
            return f"a resize restarts the container of pod {pod.name}, by its resizePolicy"
    return None

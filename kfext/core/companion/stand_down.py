"""Why all policies leave a job alone, whatever it shows."""

from collections.abc import Sequence

from kfext.model.cpu_state import MOST_RESIZED
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod


def why_stand_down(job: TrainingJob, pods: Sequence[Pod]) -> str | None:
    """Return why the CPU of a job's pods is left alone, None if it need not be."""
    if job.kueue_managed:
        return "Kueue manages the job, and accounts for its resources"
    if job.autoscaled:
        # It goes by what the pods use, so both would change the job for what the other has done.
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    if len(pods) > MOST_RESIZED:
        return f"it has {len(pods)} pods; kfext changes the CPU of at most {MOST_RESIZED}"
    for pod in pods:
        if pod.trainer is None or pod.replica is None:
            return (
                f"pod {pod.name} has no container {job.kind.container} with resources of its own: "
                "it is not known what trains"
            )
        if pod.trainer.restarts:
            return f"a resize restarts the container of pod {pod.name}, by its resizePolicy"
    return None

"""Why the number of workers of a job is left alone, whatever would be gained."""

from kfext.core.elastic import workers_of
from kfext.core.scale.change import can_scale
from kfext.model.job import TrainingJob
from kfext.names import KUEUE_QUEUE


def why_not_scaled(job: TrainingJob, *, autoscaler: bool, growing: bool) -> str:
    """Return why the workers of a job are left alone, empty if they need not be.

    Each reason is a part of a sentence, and says what would change it.

    `autoscaler`: whether the cluster has one, which adds nodes.
    `growing`: whether the job is to get more workers.
    """
    reasons = (
        (
            job.kueue_managed,
            "Kueue manages it, and would stop it if its size changed: submit it without the label "
            f"{KUEUE_QUEUE}",
        ),
        (
            job.autoscaled,
            "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy",
        ),
        (not workers_of(job), "it has no workers: add a replica type Worker"),
        (bool(fixed := can_scale(job)), fixed),
        (
            job.restarts == 0,
            "torchrun may not restart its workers, as each change of size does: set "
            "elasticPolicy.maxRestarts to more than 0",
        ),
        (
            growing and autoscaler,
            "it does not grow, as the cluster has an autoscaler, which would add nodes for it: "
            "jobs grow where no autoscaler runs",
        ),
    )
    return next((why for holds, why in reasons if holds), "")

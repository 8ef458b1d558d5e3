"""Why the number of workers of a job is left alone, whatever would be gained."""

from kfext.core.elastic import workers_of
from kfext.core.scale.change import can_scale
from kfext.model.job import TrainingJob
from kfext.model.kinds import PYTORCH
from kfext.names import KUEUE_QUEUE


def why_not_scaled(job: TrainingJob) -> str:
    """Return why the workers of a job are left alone, empty if they need not be.

    Each reason is a part of a sentence, and says what would change it.
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
            # The operator sets no default, and that of torchrun is 0.
            job.kind is PYTORCH and not job.restarts,
            "torchrun may not restart its workers, as it must when one leaves: set "
            "elasticPolicy.maxRestarts, e.g. to 100",
        ),
    )
    return next((why for holds, why in reasons if holds), "")

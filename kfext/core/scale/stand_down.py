"""Whether kfext may choose the number of workers of a job, when it starts and while it runs.

A job that could not get back what kfext took never has anything taken: it starts whole, and stays
as it is.
"""

from kfext.core.elastic import workers_of
from kfext.core.scale.change import can_scale, interrupts
from kfext.core.scale.parameters import choice_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.kinds import PYTORCH
from kfext.model.policy import Mode
from kfext.names import KUEUE_QUEUE, METRICS


def open_range(job: TrainingJob, settings: Settings) -> Range | None:
    """Return the training pods of which kfext may choose a number for a job, None if it may not.

    Master and Chief count as training pods.
    """
    acts = choice_of(settings).mode is Mode.ACT
    return settings.elastic if acts and not why_left_alone(job, settings) else None


def why_left_alone(job: TrainingJob, settings: Settings) -> str:
    """Return why kfext does not choose the size of a job that opted in, empty if it may."""
    if interrupts(job) and not settings.metrics.is_log:
        return (
            f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
        )
    return why_not_scaled(job)


def why_not_scaled(job: TrainingJob) -> str:
    """Return why the workers of a job are left alone, empty if they need not be.

    Each reason is a part of a sentence, and says what would change it.
    """
    if job.kueue_managed:
        return (
            "Kueue manages it, and would stop it if its size changed: submit it without the label "
            f"{KUEUE_QUEUE}"
        )
    if job.autoscaled:
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    return why_one_size(job)


def why_one_size(job: TrainingJob) -> str:
    """Return why no other number of workers than now can train, empty if another can."""
    reasons = (
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

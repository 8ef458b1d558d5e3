"""Which jobs cannot share GPUs as they are: they are refused, as they must not run otherwise."""

from kfext import names
from kfext.core.queue.unshareable import why_unshareable
from kfext.core.settings.table import Settings
from kfext.model.job import TrainingJob
from kfext.model.verdict import Verdict


def why_not_shared(job: TrainingJob, *, settings: Settings, verdict: Verdict) -> str:
    """Return why a job that asks for parts of GPUs is refused, empty if it is not.

    `verdict`: whether kfext handles it.
    """
    if not settings.shares_gpus or job.released:
        return ""
    if why := job.excess or (verdict.message if verdict.reason == names.REASON_HANDS_OFF else ""):
        return f"kfext does not place this job ({why})"
    return why_unshareable(job, settings)

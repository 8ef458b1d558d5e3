"""The job webhook's decision whether to hold a new job, and its reason."""

from kfext import names
from kfext.core.admission.review import ReviewContext
from kfext.core.eligibility import LeftToOthers, not_placed
from kfext.core.settings.table import PREFIX, Settings
from kfext.core.settings.values import Colocation
from kfext.model.job import TrainingJob
from kfext.model.verdict import Verdict


def hold_of(job: TrainingJob, *, settings: Settings, context: ReviewContext) -> Verdict:
    """Return the verdict that says whether a new job is held."""
    would_wait = waits(settings, context)
    if not context.handles(job.kind):
        message = f"kfext's controller does not handle {job.kind.plural} now; its log says why"
        return Verdict(names.REASON_HANDS_OFF, message)
    if (verdict := _not_handled(job, would_wait=would_wait)) is not None:
        return verdict
    why = why_not_placed(job, settings, context)
    return _not_held(job, why, would_wait=would_wait) or _held(job, settings, why)


def why_not_placed(job: TrainingJob, settings: Settings, context: ReviewContext) -> str:
    """Return the reason why kfext does not place a job that it handles, or an empty string."""
    if settings.colocation is Colocation.OFF:
        return f"colocation is off (from {settings.source(names.COLOCATION)})"
    if why := not_placed(job):
        return why.message
    alive = context.controller_alive or settings.shares_gpus
    return "" if alive else "kfext's controller does not answer"


def waits(settings: Settings, context: ReviewContext) -> bool:
    """Return whether a job that kfext cannot place waits instead of running on plain Kubernetes.

    Without a controller, only jobs that share GPUs wait.
    """
    return settings.shares_gpus or (context.controller_alive and bool(settings.why_never_released))


def outcome(job: TrainingJob, settings: Settings, context: ReviewContext) -> str:
    """Return the outcome for a job that kfext handles and does not place, as a clause."""
    if not waits(settings, context):
        return "it runs as on plain Kubernetes"
    return "its pods wait at the gate" if job.started_by else "it stays suspended"


def _not_handled(job: TrainingJob, *, would_wait: bool) -> Verdict | None:
    if job.excess and not job.released and not would_wait:
        return Verdict(names.REASON_HANDS_OFF, job.excess)
    if not (job.pods or job.kind.rendered):
        return Verdict(
            names.REASON_HANDS_OFF,
            f"the job has no replicas of the types that a {job.kind.name} supports "
            f"({', '.join(job.kind.types)}), so there is nothing to place",
        )
    if not job.run_by_operator:
        return Verdict(
            names.REASON_HANDS_OFF, f"{job.kind.policy_field('managedBy')} is {job.managed_by}"
        )
    if job.released:
        reason = job.annotations[names.RELEASED]
        return Verdict(names.REASON_RELEASED, f"annotation {names.RELEASED} is set ({reason})")
    why = not_placed(job)
    return why if isinstance(why, LeftToOthers) else None


def _not_held(job: TrainingJob, why: str, *, would_wait: bool) -> Verdict | None:
    """Return the reason why a job is not suspended now, or None.

    `why`: the obstacle to its placement, if any.
    """
    if other := job.started_by or job.counted_by:  # the mark `held` may be a copy
        consequence = f"kfext does not place it: {why}" if why else "then kfext places it"
        message = f"{other} decides when the job starts; {consequence}"
        return Verdict(names.REASON_NOT_HELD, message)
    if job.suspend and not job.held:
        field = job.kind.policy_field("suspend")
        return Verdict(names.REASON_SUSPENDED_BY_USER, f"{field} was set in the submitted job")
    if not why or would_wait:
        return None
    return not_placed(job) or Verdict(names.REASON_NOT_HELD, why)


def _held(job: TrainingJob, settings: Settings, why: str) -> Verdict:
    if why:
        return Verdict(names.REASON_HELD, f"suspended; kfext does not place it: {why}")
    reasons = ", ".join(
        f"{key.removeprefix(PREFIX)} {settings.value(key)}, from {settings.source(key)}"
        for key in dict.fromkeys((names.COLOCATION, *settings.node_limits))
    )
    count = "its" if job.kind.rendered else f"{job.pods}"
    message = f"suspended until {count} pods can be placed together ({reasons})"
    return Verdict(names.REASON_HELD, message)

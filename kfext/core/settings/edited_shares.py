"""What a job asks for of GPUs while it runs with something else: that holds from its next start."""

from collections.abc import Iterator, Mapping

from kfext import names
from kfext.core.settings.gpu_shares import as_written, shares_by
from kfext.core.settings.gpu_values import HIGH, LOW
from kfext.core.settings.of_job import gpu_settings_asked
from kfext.model.gpu_share import GpuShare
from kfext.model.gpu_slots import UNITS
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.quantity import MEMORY, human

_WHOLE = "1 (a whole GPU)"


def edited_shares(job: TrainingJob, plan: Plan | None) -> str:
    """Return what differs, in a sentence; empty if nothing does, or the job does not run."""
    if plan is None or job.suspend or job.finished or job.released:
        return ""
    wanted = shares_by(gpu_settings_asked(job), as_written(job))
    changes = [
        f"{key} of {type_} is {has} and was edited to {wants}"
        for type_ in sorted({*plan.shares, *wanted})
        for key, has, wants in _changes(plan.shares.get(type_), wanted.get(type_))
    ]
    return f"{'; '.join(changes)}; edits hold from the next start" if changes else ""


def _changes(has: GpuShare | None, wants: GpuShare | None) -> Iterator[tuple[str, str, str]]:
    """Yield each key with what a type has and what it asks for; without a share it is whole."""
    if has == wants:
        return
    if has is None or wants is None:
        share = f"{(has or wants or GpuShare(UNITS)).units / UNITS:g}"
        yield (names.GPU_SHARE, share, _WHOLE) if has else (names.GPU_SHARE, _WHOLE, share)
        return
    terms = _terms(wants)
    for key, value in _terms(has).items():
        if terms[key] != value:
            yield key, value, terms[key]


def _terms(share: GpuShare) -> Mapping[str, str]:
    memory = "that of its share" if share.memory is None else human(MEMORY, share.memory)
    return {
        names.GPU_SHARE: f"{share.units / UNITS:g}",
        names.GPU_MEMORY: memory,
        names.GPU_PRIORITY: HIGH if share.high else LOW,
        names.GPU_LOSS_BUDGET: f"{share.loss_budget:g}",
        names.GPU_MIN_SHARE: f"{share.min_share:g}",
    }

"""What each replica of a job is promised of a GPU, and a job as the solver sees it then."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kfext import names
from kfext.core.settings.gpu_values import HIGH, LOW
from kfext.core.settings.of_job import gpu_settings_of
from kfext.model.gpu_share import CardNeed, CardsFor, GpuShare, uncounted
from kfext.model.gpu_slots import UNITS, has_part, without_parts
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

_DEFAULT = GpuShare(units=UNITS)
_UNMEASURED: Mapping[str, int] = MappingProxyType({})


def as_sharing(
    job: TrainingJob, plan: Plan | None, *, busy: Mapping[str, int] = _UNMEASURED
) -> TrainingJob:
    """Return a job whose replicas request parts of GPUs instead of whole ones, as the solver does.

    The parts are those of its plan while it runs under one: whoever may edit the job cannot change
    what its pods were promised. `busy`: by type in lower case, see `GpuShare`.
    """
    if job.released:
        return job
    promised = plan is not None and not job.suspend
    shares = plan.shares if plan is not None and promised else shares_by(gpu_settings_of(job), job)
    if not shares:
        return job
    shares = {type_: replace(share, busy=busy.get(type_)) for type_, share in shares.items()}
    needs = {share.need for share in shares.values()}
    whole = any(
        NATIVE_GPU in group.requests for group in job.groups if group.type.lower() not in shares
    )
    groups = []
    for group in job.groups:
        share = shares.get(group.type.lower())
        counts = _counts(group.requests, share.need if share else None, needs=needs, whole=whole)
        own = {name: n for name, n in group.requests.items() if not share or name != NATIVE_GPU}
        charge = group.charge.sharing(share.units) if share else group.charge
        groups.append(replace(group, requests={**own, **dict(counts)}, share=share, charge=charge))
    return replace(job, groups=tuple(groups))


def shares_by(settings: Mapping[str, Any], job: TrainingJob) -> Mapping[str, GpuShare]:
    """Return the shares that some settings give a job, by type in lower case.

    The types share GPUs whose replicas request exactly one GPU.
    """
    share = share_of(settings)
    types = (group.type.lower() for group in job.groups if group.requests.get(NATIVE_GPU) == 1)
    return dict.fromkeys(types, share) if share else {}


def as_written(job: TrainingJob) -> TrainingJob:
    """Return the job as its templates state it: one GPU for a replica instead of a part of one."""
    if not job.shares_gpus:
        return job
    groups = []
    for group in job.groups:
        own = uncounted(group.requests)
        if group.share:
            own[NATIVE_GPU] = 1
        groups.append(replace(group, requests=own, share=None))
    return replace(job, groups=tuple(groups))


def as_template(requests: Resources) -> Resources:
    """Return the requests of a pod as its template states them: one GPU instead of a part of it."""
    if not has_part(requests):
        return requests
    return {**without_parts(requests), NATIVE_GPU: 1}


def share_of(settings: Mapping[str, Any]) -> GpuShare | None:
    """Return the share that some settings give each replica, None if they give none."""
    if names.GPU_SHARE not in settings:
        return None
    return GpuShare(
        units=int(settings[names.GPU_SHARE] * UNITS),
        memory=settings.get(names.GPU_MEMORY),
        high=settings.get(names.GPU_PRIORITY, LOW) == HIGH,
        loss_budget=float(settings.get(names.GPU_LOSS_BUDGET, _DEFAULT.loss_budget)),
        min_share=float(settings.get(names.GPU_MIN_SHARE, _DEFAULT.min_share)),
    )


def _counts(
    requests: Resources, need: CardNeed | None, *, needs: Collection[CardNeed], whole: bool
) -> Iterator[tuple[str, int]]:
    """Yield what a replica takes of the cards that count for a need, alone and with whole GPUs."""
    if need is not None:
        yield need.name, 1
    for counted in needs if whole else ():
        if number := requests.get(NATIVE_GPU, 0) if need is None else int(counted == need):
            yield CardsFor(counted, whole=True).name, number

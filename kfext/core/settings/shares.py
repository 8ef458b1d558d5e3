"""What each replica of a job is promised of a GPU, and a job as the solver sees it then."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from kfext import names
from kfext.core.settings.resolve import share_asked, share_of
from kfext.core.settings.values import HIGH, LOW
from kfext.model.gpu import UNITS, CardNeed, CardsFor, GpuShare, has_part, uncounted, without_parts
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.quantity import MEMORY, Resources, human
from kfext.names import NATIVE_GPU

_UNMEASURED: Mapping[str, int] = MappingProxyType({})
_WHOLE = "1 (a whole GPU)"


def as_sharing(
    job: TrainingJob, plan: Plan | None, *, busy: Mapping[str, int] = _UNMEASURED
) -> TrainingJob:
    """Return a job whose replicas request parts of GPUs instead of whole ones, as the solver does.

    The parts are those of its plan while it runs under one: whoever may edit the job cannot change
    what its pods were promised. `busy`: by type in lower case, see `GpuShare`.
    """
    if job.released:
        return job
    running = plan is not None and not job.suspend
    shares = plan.shares if plan is not None and running else _by_type(share_of(job), job)
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


def edited_shares(job: TrainingJob, plan: Plan | None) -> str:
    """Return what the annotations of a running job ask for and its plan has not, in a sentence.

    It is empty if nothing differs: such an edit holds from the next start.
    """
    if plan is None or job.suspend or job.finished or job.released:
        return ""
    wanted = _by_type(share_asked(job), as_written(job))
    changes = [
        f"{key} of {type_} is {has} and was edited to {wants}"
        for type_ in sorted({*plan.shares, *wanted})
        for key, has, wants in _changes(plan.shares.get(type_), wanted.get(type_))
    ]
    return f"{'; '.join(changes)}; edits hold from the next start" if changes else ""


def _by_type(share: GpuShare | None, job: TrainingJob) -> Mapping[str, GpuShare]:
    """Return the share of each type whose replicas request exactly one GPU, in lower case."""
    if share is None:
        return {}
    types = (group.type.lower() for group in job.groups if group.requests.get(NATIVE_GPU) == 1)
    return dict.fromkeys(types, share)


def _counts(
    requests: Resources, need: CardNeed | None, *, needs: Collection[CardNeed], whole: bool
) -> Iterator[tuple[str, int]]:
    """Yield what a replica takes of the cards that count for a need, alone and with whole GPUs."""
    if need is not None:
        yield need.name, 1
    for counted in needs if whole else ():
        if number := requests.get(NATIVE_GPU, 0) if need is None else int(counted == need):
            yield CardsFor(counted, whole=True).name, number


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

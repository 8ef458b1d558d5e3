"""The analysis of a run: its events, and the duration of each phase of a change of size.

The job shrinks when a second job, the gang, arrives, and grows once the gang has ended.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Self

from e2e.bench.rescale.watch import Pod, Sample
from e2e.harness.journal import worlds
from kfext import names

Object = dict[str, Any]
_ACTING = frozenset({names.REASON_AWAITS_CHECKPOINT, names.REASON_RESCALING})
"""The reasons of the condition Scaled while kfext changes the size."""


class NotSeenError(Exception):
    """The begin or the end of a phase was never observed in a run."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of the job's size from `before` to `after` workers; each phase in seconds.

    `idle`: from the cause (the gang arrives, or has ended) until kfext acts.
    `checkpoint`: from then until the new size is written.
    `pods`: from then until the removed pods are gone, or the new pods run.
    `rendezvous`: from then until training resumes; 0 if its processes were not stopped.
    `first_step`: from then until the next step.
    `stood_still`: the longest time without a step; `usual`: the median time of a step.
    """

    before: int
    after: int
    idle: float
    checkpoint: float
    pods: float
    rendezvous: float
    first_step: float
    stood_still: float
    usual: float


@dataclass(frozen=True, slots=True)
class Story:
    """A run. `to_bind`: seconds from the end of the last removed pod until the gang was bound."""

    shrink: Rescale
    to_bind: float
    growth: Rescale

    def stored(self) -> Object:
        return asdict(self)

    @classmethod
    def restore(cls, stored: Object) -> Self:
        shrink, growth = Rescale(**stored["shrink"]), Rescale(**stored["growth"])
        return cls(shrink, stored["to_bind"], growth)


def story(samples: Sequence[Sample], *, came: float, ended: float) -> Story:
    """Return the analysis of a run, given when the gang came and ended. Raises NotSeenError."""
    shrink = _rescale(samples, since=came)
    gone = came + shrink.idle + shrink.checkpoint + shrink.pods
    bound = _first(samples, is_bound, since=came, what="the gang was bound")
    return Story(shrink, max(0.0, bound - gone), _rescale(samples, since=ended))


def is_bound(sample: Sample) -> bool:
    # The gang has two pods, which appear one by one.
    return len(sample.gang) > 1 and all(pod.bound for pod in sample.gang)


def is_whole(sample: Sample) -> bool:
    """Return whether the job has all workers of its spec, and all of its pods run."""
    return sample.size == len(sample.workers) and all(
        pod.runs and not pod.ends for pod in sample.own
    )


def _rescale(samples: Sequence[Sample], *, since: float) -> Rescale:
    """Return the first change of size after a time. Raises NotSeenError."""
    state_before = [sample for sample in samples if sample.at <= since][-1]
    if state_before.size is None:
        raise NotSeenError("the job was not there")
    before = state_before.size

    def acts(sample: Sample) -> bool:
        begins_acting = sample.reason in _ACTING and state_before.reason not in _ACTING
        return (
            begins_acting
            or sample.checkpoint_request > state_before.checkpoint_request
            or sample.size != before
        )

    acted = _first(samples, acts, since=since, what="kfext acted")
    written = _first(
        samples, lambda sample: sample.size != before, since=acted, what="it was rescaled"
    )
    after = next(sample.size for sample in samples if sample.at == written) or 0
    changed = _first(
        samples,
        lambda sample: _pods_changed(sample, before, after),
        since=written,
        what="its pods had changed",
    )
    resumed = _resumed(samples, after, since=written)
    stepped = _first(
        samples, lambda sample: sample.steps, since=resumed or changed, what="it had done a step"
    )
    longest, usual = _gaps(samples, since=since, written=written, until=stepped)
    return Rescale(
        before,
        after,
        idle=acted - since,
        checkpoint=written - acted,
        pods=changed - written,
        rendezvous=max(0.0, resumed - changed) if resumed else 0.0,
        # The pod of a removed worker may end long after the others have resumed.
        first_step=max(0.0, stepped - max(changed, resumed or 0.0)),
        stood_still=longest,
        usual=usual,
    )


def _pods_changed(sample: Sample, before: int, after: int) -> bool:
    if after < before:
        return all(
            pod.worker_index is not None and pod.worker_index < after for pod in sample.workers
        )
    return len(sample.workers) == after and all(map(_runs, sample.workers))


def _runs(pod: Pod) -> bool:
    return pod.runs and not pod.ends


def _resumed(samples: Sequence[Sample], workers: int, *, since: float) -> float | None:
    """Return when training first restarted with `workers`; None means that it did not restart."""
    for sample in samples:
        if sample.at >= since and workers in worlds(sample.lines):
            return sample.at
    return None


def _gaps(
    samples: Sequence[Sample], *, since: float, written: float, until: float
) -> tuple[float, float]:
    """Return the longest time without a step around a change, and the median of a step before."""
    stepped = [sample.at for sample in samples if sample.steps]
    before = [new - old for old, new in pairwise(stepped) if new <= since]
    during = [new - old for old, new in pairwise(stepped) if written < new and old < until]
    return max(during, default=0.0), median(before) if before else 0.0


def _first(
    samples: Iterable[Sample], condition: Callable[[Sample], bool], *, since: float, what: str
) -> float:
    """Return the first time from `since` on at which a condition held. Raises NotSeenError."""
    for sample in samples:
        if sample.at >= since and condition(sample):
            return sample.at
    raise NotSeenError(f"it was never seen that {what}")

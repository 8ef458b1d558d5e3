"""Arms with a rule of kfext replaced by a former rule, or switched off.

A rule that improves no result is removed from kfext. `true` and `true-shortest` know the length of
each job, unlike any real cluster: they show the most that better forecasts could gain.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Self
from unittest.mock import patch

from kfext.core.queue.duration import USUAL_SECONDS
from kfext.model.job import TrainingJob
from kfext.model.parameters import Queueing, QueueOrder
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.arms import Arm
from kfext.sim.cluster import Cluster, World
from kfext.state.running.registry import POLICIES
from kfext.state.running.size import guard
from kfext.state.running.size.scale import SCALE, Sizes
from kfext.state.waiting.durations import DurationEstimates

_NEVER_SECONDS = 86_400.0
Patch = Callable[[Cluster], AbstractContextManager[Any]]
"""Returns a context in which a part of kfext is replaced while a cluster runs."""


def _policy(
    *, companion: bool, order: QueueOrder = QueueOrder.ARRIVAL, **scale: float
) -> TrainingPolicy:
    mode = Mode.ACT if companion else Mode.OFF
    choices = {policy.name: PolicyChoice(mode) for policy in POLICIES}
    choices[SCALE.name] = PolicyChoice(mode, scale)
    return TrainingPolicy("arm", companion=choices, queue=Queueing(order))


class _Patched(Cluster):
    """A cluster that runs with parts of kfext replaced by `patches`."""

    patches: tuple[Patch, ...] = ()

    def run(self) -> Self:
        with ExitStack() as stack:
            for replace_part in self.patches:
                stack.enter_context(replace_part(self))
            return super().run()


def _patched(policy: TrainingPolicy, *patches: Patch) -> Arm:
    def arm(world: World, luck: int) -> Cluster:
        cluster = _Patched(world, luck, policy=policy)
        cluster.patches = patches
        return cluster

    return arm


def _backfill_by_end_of_wait(_cluster: Cluster) -> AbstractContextManager[Any]:
    """Switch off backfill by estimates: a job may only start early if it certainly ends in time."""
    return patch.object(DurationEstimates, "likely_end", lambda *_args, **_now: -math.inf)


def _usual_is_constant(_cluster: Cluster) -> AbstractContextManager[Any]:
    return patch.object(DurationEstimates, "usual", lambda *_args: USUAL_SECONDS)


def _starts_short_by_wait(_cluster: Cluster) -> AbstractContextManager[Any]:
    """Also count the time waited so far in the decision to start with fewer workers."""

    def starts_short(
        workers: int, requested: int, *, length: float, wait: float, waited: float
    ) -> bool:
        return length * requested / workers - length <= wait + waited

    return patch("kfext.core.lifecycle.capacity.starts_short", starts_short)


def _donors_give_all(_cluster: Cluster) -> AbstractContextManager[Any]:
    """Scale a donor down to its minimum even for a job of unknown length."""
    lowest_size = guard.lowest_size

    def all_but_least(sizes: Sizes, *, most: float, length: float, **others: Any) -> int:
        return lowest_size(sizes, length=length, most=length, **others)

    return patch("kfext.state.running.size.scale_search.lowest_size", all_but_least)


def _true_lengths(cluster: Cluster) -> AbstractContextManager[Any]:
    def shown_remaining(_self: DurationEstimates, job: TrainingJob, *, now: float) -> float:
        live = cluster.api.jobs[job.uid]
        spec, training = live.spec, live.training
        training.advance()
        workers = training.workers or spec.workers + spec.leaders
        return (spec.steps - training.done) * spec.pace.seconds(workers, apart=training.apart)

    return patch.object(DurationEstimates, "shown_remaining", shown_remaining)


_KFEXT, _WITHOUT_COMPANION = partial(_policy, companion=True), partial(_policy, companion=False)
TRUE, TRUE_SHORTEST = "true", "true-shortest"
ARMS: Mapping[str, Arm] = {
    "gang-shortest": _patched(_WITHOUT_COMPANION(order=QueueOrder.SHORTEST)),
    "gang, no backfill by estimate": _patched(_WITHOUT_COMPANION(), _backfill_by_end_of_wait),
    "no backfill by estimate": _patched(_KFEXT(), _backfill_by_end_of_wait),
    "unknown lengths 300 s": _patched(_KFEXT(), _usual_is_constant),
    "short starts by wait": _patched(_KFEXT(), _starts_short_by_wait),
    "donors give all": _patched(_KFEXT(), _donors_give_all),
    "no growth": _patched(_KFEXT(ceiling=0.0)),
    "no guard": _patched(_KFEXT(wait=_NEVER_SECONDS)),
    TRUE: _patched(_KFEXT(), _true_lengths),
    TRUE_SHORTEST: _patched(_KFEXT(order=QueueOrder.SHORTEST), _true_lengths),
}

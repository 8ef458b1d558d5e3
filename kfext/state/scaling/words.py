"""What a job that opted in to be scaled is shown."""

from collections.abc import Iterator
from typing import assert_never

from kfext import names
from kfext.core import words
from kfext.core.companion.operation import Readiness
from kfext.core.companion.policy import Shown
from kfext.core.companion.scale import Change, Phase
from kfext.model.verdict import Verdict
from kfext.state.scaling.scaled_job import ScaledJob, is_ours


def shown_of(
    one: ScaledJob, ready: Readiness, *, would: str, now: float, autoscaler: bool = False
) -> Shown:
    """Return what to show of a job now; `would`: what a policy that only observes would do.

    `now` is monotonic. `autoscaler`: whether the cluster has one.
    """
    found = next(_verdicts(one, ready, would=would, now=now, autoscaler=autoscaler))
    return Shown(is_ours(one.tracked), found)


def _under_way(one: ScaledJob, change: Change) -> Verdict | None:
    """Return how far a change is; None on trial, where the job has its new size already."""
    now = words.workers(one.sizes.now)
    match one.phase:
        case Phase.SAVING:
            message = (
                f"it waits for a checkpoint to go from {now} to {change.workers}: {change.why}"
            )
            return Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        case Phase.WRITING | Phase.SETTLING | Phase.STEPPING:
            return Verdict(names.REASON_RESCALING, f"it has {now}: {change.why}")
        case Phase.TRIAL | None:
            return None
        case _:
            assert_never(one.phase)


def _verdicts(
    one: ScaledJob, ready: Readiness, *, would: str, now: float, autoscaler: bool
) -> Iterator[Verdict]:
    """Yield what is to be shown, the most important first."""
    sizes = one.sizes
    if one.change is not None and (under_way := _under_way(one, one.change)):
        yield under_way
    if rests := one.tracked.state.scale.rests:
        yield Verdict(names.REASON_RESTS, rests)
    if one.unfit:
        yield Verdict(names.REASON_STANDS_DOWN, one.unfit)
    if one.refused is not None and now < one.not_before:
        yield one.refused
    if ready is Readiness.NEVER:
        message = "it has shown no checkpoint yet, so another number of workers would cost it work"
        yield Verdict(names.REASON_NO_CHECKPOINT, message)
    if would:
        yield Verdict(names.REASON_WOULD_SCALE, would)
    has = f"it has {sizes.now} of the {words.workers(sizes.asked)} that it asked for"
    if sizes.now < sizes.asked:
        others = one.hindered or "it gets the others once there is room"
        yield Verdict(names.REASON_SHRUNK, f"{has}; {others}")
    if sizes.now > sizes.asked:
        message = f"it asked for {words.workers(sizes.asked)} and has {sizes.now}"
        yield Verdict(names.REASON_GROWN, message)
    message = f"it has the {words.workers(sizes.now)} that it asked for"
    message += f"; it may have {sizes.least} to {sizes.most}"
    if autoscaler and sizes.now < sizes.most:
        message += ", but gets no more than it asked for while the cluster has an autoscaler"
    yield Verdict(names.REASON_AS_ASKED, message)

"""The policy `preempt`: running jobs that opted in stop for a waiting job of higher priority.

Preemptions come after rescues, which cost no work, and before growth. Only a job that waits for
capacity preempts: no stop helps a job that waits for a quota, a volume or the operator.
"""

from collections.abc import Iterator

from kfext import names
from kfext.core.lifecycle.capacity import WAITS_FOR_CAPACITY
from kfext.core.queue.priority import lowest_class
from kfext.core.settings.table import Settings
from kfext.core.settings.values import OFF
from kfext.model.policy import Mode
from kfext.model.timestamps import past
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.policy import Condition, Parameter, Policy
from kfext.state.running.proposal import Proposal, Rank, Stop
from kfext.state.running.stop.search import VictimChoice


def _opted(settings: Settings) -> Mode:
    return Mode.OFF if settings.preempt == OFF else Mode.ACT


STOPPED = Condition(
    names.STOPPED,
    "Stop",
    names.REASON_STOP_REFUSED,
    frozenset(
        {
            *(names.REASON_STOPPED, names.REASON_MAY_STOP, names.REASON_WOULD_STOP),
            *(names.REASON_AWAITS_CHECKPOINT, names.REASON_NO_CHECKPOINT, names.REASON_RESTS),
            *(names.REASON_ON_DRAINED_NODE, names.REASON_DRAINED, names.REASON_STALLED),
            *(names.REASON_STOP_REFUSED, names.REASON_STANDS_DOWN, names.REASON_NO_SHARED_VOLUME),
        }
    ),
)
"""Whether kfext has stopped a job for other jobs."""
_DAY = 86_400.0
NEW_NODES_SECONDS = 120.0
"""A job that has asked for new nodes preempts only after this time, enough for most clouds."""
PREEMPT = Policy(
    name="preempt",
    effect="stops running jobs of lower priority that opted in, once they have saved their work, "
    "for a waiting job that then fits",
    condition=STOPPED,
    max_mode=_opted,
    evidence="tests/unit/sim/test_preempt.py",
    parameters={
        "unsaved": Parameter(
            0.0,
            0.0,
            _DAY,
            "seconds that a job waits before jobs with `kfext.dev/preempt: always` that have shown "
            "no checkpoint are stopped for it; taken from the policy of the waiting job",
        ),
        "wait": Parameter(
            30.0,
            1.0,
            _DAY,
            "seconds that a job waits for capacity before others stop for it; taken from the "
            "policy of the waiting job",
        ),
    },
)


def may_preempt(tracked: TrackedJob, settings: Settings, cluster: Cluster, *, now: float) -> bool:
    """Return whether running jobs may stop for a waiting job now; `now` is in epoch seconds.

    They do not stop for a job with a hold, which is about to start, for example after a rescue, or
    for a job that requested new nodes less than NEW_NODES_SECONDS ago.
    """
    job, ask = tracked.job, tracked.state.ask
    if tracked.not_started_reason not in WAITS_FOR_CAPACITY or not tracked.settled:
        return False
    if ask is not None and ask.is_open and now - past(ask.since, now=now) < NEW_NODES_SECONDS:
        return False
    if job.excess or job.shares_gpus or cluster.holds.hold_of(job.uid) is not None:
        return False
    waited = tracked.queued_seconds(now) >= PREEMPT.parameter(settings, "wait")
    return waited and lowest_class(job, cluster.classes).preempts


def stop_proposals(waiting: TrackedJob, choice: VictimChoice) -> Iterator[Proposal]:
    """Yield the proposals to stop jobs together for a waiting job."""
    change = Stop(waiting.job.uid, choice.victims)
    reason = "a job of higher priority waits for its capacity"
    for uid in choice.victims:
        yield Proposal(PREEMPT.name, uid, change, reason, rank=Rank.PREEMPT)

"""A job that opted in to a policy of the companion, as it is followed. Times are monotonic."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kfext import names
from kfext.core.companion.history import History, Work
from kfext.core.companion.operation import Operation, Trial
from kfext.core.companion.policy import Shown
from kfext.core.companion.restoring import last_written
from kfext.core.companion.signals import Budget
from kfext.core.lifecycle.steps import Resize
from kfext.core.progress.reported import Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.tracked_job import TrackedJob
from kfext.state.uses import Uses

_EARLY_SECONDS = 120.0
"""How long a job may print nothing before it counts as one that does not show how far it is."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 300.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A time after `failures` in a row in which nothing is tried.

    `changes`: how often the quotas of the namespace had changed then; another change ends it.
    `lasting`: whether nothing else does, for what a quota or a LimitRange refused.
    `restoring`: whether the last of them was to restore what the user wrote. Else that waits for
        nothing.
    """

    until: float
    failures: int
    changes: int
    lasting: bool
    restoring: bool

    def holds(self, now: float, *, changes: int, restoring: bool = False) -> bool:
        """Return whether nothing is tried yet; what the user wrote is restored again and again."""
        if changes != self.changes:
            return False
        if restoring:
            return self.restoring and now < self.until
        return self.lasting or now < self.until


@dataclass(slots=True)
class WatchedJob:
    """What the companion knows of a job.

    `began`: when the controller began to follow it. `work`: what its steps take.
    `peak`: the most that it was seen to use on a node, in millicores.
    `budget`: what it has used, and lost for others or lent them. `counted_at`: up to when a
        controller before this one has counted that, in epoch seconds; 0.0 once all is.
    `company`: the uids and the limits of the pods on its nodes, of jobs that opted in.
    `chosen`: the policies that the user and the administrator allow.
    `unfit`: why none of them looks at the job, empty if they do.
    `unread`: why nothing is known of its progress, empty if it is, or if it is too early to say.
    `measured_at`: when the CPU use of all its pods was known last, or it was first watched.
    `stood_down`: by policy, why it leaves the job alone for now, empty if it does not.
    `early`: whether a policy would take something from it, but has not seen enough of it yet.
    `pause`: after a failure, None if nothing has failed since the last success.
    `refused`: why, until something succeeds. `undo`: the policy whose sizes were not all written
        or set, and why: they are to be restored.
    `shown`: what its TrainingPlan shows. `seen`: by the uids of its pods, the last limits of ours
        that they were seen to have.
    """

    tracked: TrackedJob
    began: float
    work: Work = field(default_factory=Work)
    peak: int = 0
    history: History = field(default_factory=History)
    budget: Budget = field(default_factory=Budget)
    counted_at: float = 0.0
    trial: Trial | None = None
    operation: Operation | None = None
    chosen: Mapping[str, PolicyChoice] = field(default_factory=dict)
    unfit: str = ""
    unread: str = ""
    measured_at: float = -math.inf
    stood_down: dict[str, str] = field(default_factory=dict)
    company: frozenset[tuple[str, int | None]] = frozenset()
    early: bool = False
    pause: Pause | None = None
    refused: Verdict | None = None
    undo: tuple[str, Verdict] | None = None
    shown: Shown | None = None
    seen: dict[str, int] = field(default_factory=dict)

    def see(self, pods: Iterable[Pod]) -> None:
        """Take in which of its pods have had the last limit that was written for them."""
        before, self.seen = self.seen, {}
        for pod in pods:
            last = last_written(pod, self.tracked.state.cpu)
            now = pod.trainer.limit if pod.trainer else None
            if last is not None and last in {now, before.get(pod.uid)}:
                self.seen[pod.uid] = last

    def fail(self, now: float, *, lasting: bool, restoring: bool, changes: int) -> None:
        """Take in a failure; each in a row doubles the pause. What lasts, lasts."""
        failures = self.pause.failures + 1 if self.pause else 1
        if self.pause is not None and self.pause.changes == changes:
            lasting |= self.pause.lasting
        pause = exponential_backoff(failures, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
        self.pause = Pause(now + pause, failures, changes, lasting=lasting, restoring=restoring)

    def dated(self, step: Resize, now: Moment) -> Resize:
        """Return a step that also notes up to when its budget is counted, if it notes one."""
        cpu = step.state.cpu
        if cpu == CpuState():
            return step
        cpu = replace(cpu, counted_at=self.counted_at or now.wall)
        return replace(step, state=replace(step.state, cpu=cpu))

    def meet(self, company: frozenset[tuple[str, int | None]]) -> None:
        """Take in which pods share its nodes: figures from before a change compare with none after.

        Other pods end a trial, as nobody can tell any more what it has brought.
        """
        if company == self.company:
            return
        if {uid for uid, _ in company} != {uid for uid, _ in self.company}:
            self.trial = None
            if self.operation is not None:
                self.operation.trial = None
        self.history.forget()
        self.company = company

    def left(self, reported: Reported | None, now: float) -> float | None:
        """Return the core-seconds to its end: infinite while it is too early, None if unknown."""
        if reported is None or not reported.progress.metric:
            return math.inf if now - self.began < _EARLY_SECONDS else None
        return self.work.left(reported.progress)


def watch(tracked: TrackedJob, now: float) -> WatchedJob:
    """Begin to watch a job; what it lost before counts on."""
    noted = tracked.state.cpu
    budget = Budget(noted.used, noted.lost, noted.lent, noted.borrowed)
    return WatchedJob(
        tracked, began=now, budget=budget, counted_at=noted.counted_at, measured_at=now
    )


def why_unread(reported: Reported | None, *, source: MetricsSource, left: float | None) -> str:
    """Return why neither its growth nor its end is known of a job; empty while it is too early.

    `source`: of its progress. `left`: the core-seconds to its end, None if unknown.
    """
    if not source.is_log:
        return f"{names.METRICS} is {source.source}, so neither progress nor CPU use of it is read"
    if reported is None or reported.growth is not None or left is not None:
        return ""
    if reported.known is not None and reported.known.reason != names.REASON_RECOGNISED:
        return reported.known.message
    metric = reported.progress.metric
    unknown = metric and reported.state is None
    return f"it is not known whether {metric} improves upwards or downwards" if unknown else ""


def live_pods(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods that have not ended and are not about to."""
    return tuple(pod for pod in pods if not (pod.finished or pod.deleting))


def is_whole(watched: WatchedJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether all pods of a job exist, and run as far as they have not ended."""
    present = sum(not pod.deleting for pod in pods)
    return present >= watched.tracked.job.pods and all(
        pod.node_name and pod.phase == "Running" for pod in live_pods(pods)
    )


def all_measured(pods: tuple[Pod, ...], uses: Uses) -> bool:
    """Return whether the CPU use of all pods is known."""
    return all(uses.of(pod.uid) for pod in live_pods(pods))

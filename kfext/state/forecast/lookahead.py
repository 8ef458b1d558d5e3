"""A planner that runs ahead on a recording of the cluster, until the waiting jobs have started.

It decides as the planner of the cluster would. Running jobs end at their expected ends, and started
jobs after their expected durations; a job of unknown duration is called silent. No step is carried
out: a start remains unanswered, so its plan holds its places until the job ends.
"""

import heapq
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Self

from kfext.core.elastic import workers_of
from kfext.core.lifecycle.steps import SaveState, Step, Unsuspend
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.state.forecast.outset import Outset
from kfext.state.mirror.cards import Unreserve
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.planner.recording import restoring
from kfext.state.waiting.durations import DurationEstimates

HORIZON = 86_400.0
"""The length of the forecast in seconds, as in Slurm (bf_window)."""
_QUIET_SECONDS = 3600.0
"""The forecast continues this long after its last event: a reservation has its break by then."""
_DECISIONS = 8
"""The most decisions of a tick: the caller can do other work after each tick."""
_PAUSE, _FRACTION = 5.0, 0.05
"""Between two ends, ticks are at least 5 s, and 5 % of the time since the outset, apart: time alone
changes little, and each of 50 jobs may have an alarm in every second."""
_DELETION_SECONDS = 10.0
"""The seconds until the pods of a stopped job are deleted."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a waiting job, in epoch seconds.

    `after`: the uids of the jobs on its nodes that ended before the start.
    `silent`: the uids of all silent jobs that ended before the start.
    """

    at: float
    after: tuple[str, ...]
    silent: tuple[str, ...]


class _Lengths(DurationEstimates):
    """The durations of jobs in a forecast; `ending`: by uid, the end of each running job.

    The remaining time of a late job equals its delay.
    """

    def __init__(self, outset: Outset) -> None:
        self.lengths, self.ending = outset.lengths, dict[str, float]()
        self._usual_seconds = outset.usual

    def observe(self, job: TrainingJob) -> bool:
        return False

    def forget(self, uid: str) -> None:
        self.ending.pop(uid, None)

    def runs(self, job: TrainingJob) -> bool:
        return job.uid in self.ending

    def typical(self, job: TrainingJob) -> float | None:
        return self.lengths[job.uid].typical

    def usual(self, namespace: str = "") -> float:
        return self._usual_seconds

    def shown_remaining(self, job: TrainingJob, *, now: float) -> float | None:
        return self.remaining(job, now=now) if self.lengths[job.uid].known else None

    def remaining(self, job: TrainingJob, *, now: float) -> float:
        if self.runs(job):
            return abs(self.ending[job.uid] - now)
        return self.lengths[job.uid].seconds


class Lookahead:
    """A planner that runs ahead from an outset. Times are in epoch seconds.

    `silent_seconds`: the duration of each silent job, at most until its deadline; by default the
    usual duration. `arrivals`: the jobs that are created meanwhile. `starts`: by uid, the starts of
    waiting jobs.
    """

    def __init__(
        self,
        outset: Outset,
        *,
        silent_seconds: float | None = None,
        arrivals: Sequence[TrainingJob] = (),
    ) -> None:
        self.starts: dict[str, Start] = {}
        self._outset, self._arrivals, self._silent_seconds = outset, arrivals, silent_seconds
        self._lengths = _Lengths(outset)
        self.planner = Planner(durations=self._lengths, most=_DECISIONS)
        self._now = self._last_event_at = outset.now
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._ended: list[tuple[str, frozenset[str]]] = []

    def run(self) -> Generator[None, None, Self]:
        """Run until each waiting job has started, or none will, yielding every few milliseconds."""
        outset, planner = self._outset, self.planner
        yield from restoring(planner, outset.snapshot, self._moment)
        for uid, tracked in planner.cluster.jobs.items():
            if tracked.busy:  # it runs
                self._begin(tracked, outset.lengths[uid].seconds)
            elif self._silent_seconds == math.inf and uid in outset.staying:
                continue  # its pods may never end
            elif planner.cluster.pods(uid):
                self._at(self._now + _DELETION_SECONDS, partial(self._remove_pods, uid))
        for job in self._arrivals:
            self._at(job.created, partial(planner.cluster.record_job, job, {}))
        waiting = set(outset.waiting)
        while waiting - self.starts.keys() and self._now <= self._last_tick_at():
            remainder = 1
            while remainder:
                tick = planner.tick(self._moment)
                for tracked, step in tick.steps:
                    self._apply(tracked, step)
                remainder = tick.remainder
                yield
            self._now = self._next_time()
            while self._events and self._events[0][0] <= self._now:
                self._last_event_at, _, event = heapq.heappop(self._events)
                event()
        return self

    @property
    def was_cut(self) -> bool:
        """Whether the horizon ended the run while a job ran."""
        return self._outset.now + HORIZON < self._now < math.inf

    @property
    def _moment(self) -> Moment:
        return Moment(wall=self._now, monotonic=self._now)

    def _last_tick_at(self) -> float:
        horizon = self._outset.now + HORIZON
        return horizon if self._events else min(horizon, self._last_event_at + _QUIET_SECONDS)

    def _next_time(self) -> float:
        """Return the time of the next event or alarm."""
        soonest = self._now + max(_PAUSE, _FRACTION * (self._now - self._outset.now))
        alarm = max(self.planner.next_alarm(), soonest)
        return min(self._events[0][0], alarm) if self._events else alarm

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _apply(self, tracked: TrackedJob, step: Step) -> None:
        """Apply a step: a start begins a run, and a saved state may remove a job from the queue."""
        uid = tracked.job.uid
        if isinstance(step, Unsuspend):
            workers, fewer = workers_of(tracked.job), tracked.assumed_workers
            seconds = self._lengths.remaining(tracked.job, now=self._now)
            self._begin(tracked, seconds * (workers / fewer if fewer else 1.0))
            if uid in self._outset.waiting:
                nodes = frozenset(step.plan.nodes)
                after = tuple(ended for ended, on in self._ended if on & nodes)
                lengths = self._lengths.lengths
                silent = (ended for ended, _ in self._ended if not lengths[ended].known)
                self.starts[uid] = Start(self._now, after, tuple(silent))
        elif isinstance(step, SaveState) and step.state != tracked.state:
            tracked.state = step.state
            self.planner.finish(tracked, self._moment)

    def _begin(self, tracked: TrackedJob, seconds: float) -> None:
        """Run a job for `seconds`; the operator is assumed to create its pods at once."""
        uid = tracked.job.uid
        self._lengths.ending[uid] = self._now + seconds
        self.planner.cluster.claim_tracker.give_up(tracked)
        if self._silent_seconds is not None and not self._lengths.lengths[uid].known:
            seconds = min(self._silent_seconds, self._lengths.lengths[uid].most)
        if math.isfinite(seconds):
            self._at(self._now + max(1.0, seconds), partial(self._end, tracked))

    def _end(self, tracked: TrackedJob) -> None:
        """End a job, and remove its pods."""
        uid, cluster = tracked.job.uid, self.planner.cluster
        plan = tracked.assumed or tracked.plan
        self._ended.append((uid, frozenset((*cluster.homes(uid), *(plan.nodes if plan else ())))))
        self._remove_pods(uid)
        cluster.forget_job(uid)
        if tracked.shares_gpus:
            cluster.settle(self._now)
            for step in self.planner.card_steps(self._now):
                if isinstance(step, Unreserve):
                    cluster.observe_pod(step.pod, None)
                self.planner.cards.finish(step, self._now)

    def _remove_pods(self, uid: str) -> None:
        for pod in self.planner.cluster.pods(uid):
            self.planner.cluster.observe_pod(pod, None)

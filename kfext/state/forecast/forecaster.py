"""Forecasts of the start of each waiting job, when they are due, and their scores.

No decision depends on a forecast. A new process forecasts again, and begins without scores.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kfext.core.lifecycle.capacity import NEVER_FITS, WAITS_FOR_CAPACITY
from kfext.core.queue.expected import SHORTEST, Accuracy, ExpectedStart, Scores, lead, rounded
from kfext.model.moment import Moment
from kfext.names import REASON_QUOTA, REASON_WAITING_FOR_VOLUME
from kfext.state.forecast.lookahead import HORIZON, Lookahead, Start
from kfext.state.forecast.outset import MAX_JOBS, left_behind, outset_of
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.waiting.queue import visible_names

EVERY = 60.0
"""The shortest time between two forecasts, in seconds."""
_CHANGED = 0.2
"""The end of a job has changed if it has moved by this fraction of the remaining time."""
_WHY = {
    REASON_QUOTA: "a quota of its namespace stops it",
    REASON_WAITING_FOR_VOLUME: "one of its volumes is not bound",
}
_FOR_CAPACITY = (WAITS_FOR_CAPACITY | NEVER_FITS) - _WHY.keys()
_NEW_NODES = "it waits for new nodes, which an autoscaler may add"
_NEVER = f"no capacity for it is expected within {HORIZON / 3600:g} hours"
_TOO_LARGE = "it would not fit even after all running jobs have ended"
_BEHIND = f"it is behind the first {MAX_JOBS} jobs of the queue"
OTHER = "it does not wait for capacity"
_ERROR = "an error of kfext; see the controller's log"


@dataclass(frozen=True, slots=True)
class Score:
    """The quality of a forecast after the start of its job; times are in seconds.

    `lead`: the class of the expected wait. `was`: whether the start was before, in or after the
    expected range. `error`: the absolute difference between the expected start and the start.
    `wait`: the time from the forecast to the start. `width`: the width of the expected range.
    """

    lead: str
    was: Accuracy
    error: float
    wait: float
    width: float


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The forecasts of a waiting job.

    `shown`: the present forecast. `first`: the first forecast of each class of wait: its time, the
    shown range, the expected start, and the expected start behind new jobs; in epoch seconds.
    """

    shown: ExpectedStart
    first: dict[str, tuple[float, ExpectedStart, float, float]]


class Forecaster:
    """Forecasts the starts of a planner's waiting jobs; `scores`: the scores of the last starts."""

    def __init__(self, planner: Planner) -> None:
        self.scores = Scores()
        self._planner = planner
        self._waiting: dict[str, _Waiting] = {}
        self._news: set[str] = set()
        self._next_at = -math.inf
        self._seen_ends: Mapping[str, float | None] = {}

    def expected(self, uid: str) -> ExpectedStart | None:
        """Return the expected start of a waiting job, or None before its first forecast."""
        waiting = self._waiting.get(uid)
        return waiting.shown if waiting else None

    def news(self) -> list[TrackedJob]:
        """Return the waiting jobs with a changed expected start since the last call."""
        news, self._news = self._news, set()
        return [self._planner.cluster.jobs[uid] for uid in news & self._queued().keys()]

    # --- forecasts ------------------------------------------------------------------------------

    def due(self, now: Moment) -> bool:
        """Return whether a forecast is due: jobs came, started or ended, or an end has changed.

        A forecast is also due if the start of a job is late, less often as the delay grows.
        """
        if now.monotonic < self._next_at or not self._queued():
            return False
        ends, before = self._ends(now.wall), self._seen_ends
        return (
            ends.keys() != before.keys()
            or any(_has_changed(before[key], end, now=now.wall) for key, end in ends.items())
            or any(_is_late(waiting, now.wall) for waiting in self._waiting.values())
        )

    def forecast(self, now: Moment) -> Generator[None, None, None]:
        """Forecast the start of each waiting job; each step of the generator takes milliseconds.

        An error is raised after all starts are set to unknown.
        """
        try:
            yield from self._forecast(now)
        except Exception:
            for uid in self._queued():
                self._show(uid, ExpectedStart(unknown=_ERROR), now=now.wall)
            raise

    def _forecast(self, now: Moment) -> Generator[None, None, None]:
        self._next_at, self._seen_ends = now.monotonic + EVERY, self._ends(now.wall)
        outset = outset_of(self._planner, now)
        usual = yield from Lookahead(outset).run()
        # `behind`: with new jobs; `forever`, `at_once`: if silent jobs never end, or end at once.
        behind = forever = at_once = usual
        latest = max((start.at for start in usual.starts.values()), default=0.0)
        if arrivals := [job for job in outset.arrivals if job.created < latest]:
            behind = yield from Lookahead(outset, arrivals=arrivals).run()
        if outset.staying or not all(length.known for length in outset.lengths.values()):
            forever = yield from Lookahead(outset, silent_seconds=math.inf).run()
            at_once = yield from Lookahead(outset, silent_seconds=0.0).run()
        for uid, tracked in self._queued().items():
            start, last = usual.starts.get(uid), forever.starts.get(uid)
            if start and last:
                start_behind = max(start.at, behind.starts.get(uid, start).at)
                self._expect(tracked, start.at, start_behind, last, now=now.wall)
            elif start:
                silent = self._names(start.silent, viewer=tracked) or "a job before it"
                soonest = at_once.starts.get(uid)
                known = soonest.at if soonest and soonest.at > now.wall + EVERY else None
                why = f"the duration of {silent} is unknown"
                if uid in outset.staying or (outset.staying and not start.silent):
                    staying = self._names(sorted(outset.staying), viewer=tracked)
                    why = f"the pods of {staying} have not ended"
                self._show(uid, ExpectedStart(earliest=known, unknown=why), now=now.wall)
            elif uid in outset.waiting:
                reason = usual.planner.cluster.jobs[uid].not_started_reason
                why = _WHY.get(reason, OTHER)
                if reason in _FOR_CAPACITY:
                    never = _NEVER if usual.was_cut else _TOO_LARGE
                    why = _NEW_NODES if self._planner.queue.autoscaler else never
                self._show(uid, ExpectedStart(unknown=why), now=now.wall)
            elif len(outset.waiting) == MAX_JOBS:  # else it was created meanwhile
                self._show(uid, ExpectedStart(unknown=_BEHIND), now=now.wall)

    def _queued(self) -> dict[str, TrackedJob]:
        jobs = self._planner.cluster.jobs.items()
        return {uid: tracked for uid, tracked in jobs if tracked.queued}

    def _ends(self, now: float) -> dict[str, float | None]:
        """Return the inputs of a forecast: by uid, when each job should end, or None.

        A waiting job has infinity; 0.0 is an end that is due. Further keys are left-behind pods and
        the number of nodes.
        """
        cluster, durations = self._planner.cluster, self._planner.queue.durations
        ends: dict[str, float | None] = dict.fromkeys(self._queued(), math.inf)
        ends |= {f"pods of {uid}": None for uid in left_behind(cluster)}
        for uid, tracked in cluster.jobs.items():
            if not (tracked.job.suspend or tracked.job.finished):
                remaining = durations.shown_remaining(tracked.job, now=now)
                ends[uid] = now + remaining if remaining else remaining
        return {**ends, f"{cluster.ledger.node_count} nodes": None}

    def _names(self, uids: Sequence[str], *, viewer: TrackedJob) -> str:
        """Return the names of the jobs in `uids` that exist, as the users of `viewer` see them."""
        jobs = self._planner.cluster.jobs
        return visible_names([jobs[uid].job for uid in uids if uid in jobs], viewer=viewer.job)

    def _expect(
        self, tracked: TrackedJob, start: float, behind: float, last: Start, *, now: float
    ) -> None:
        """Show a start; `last`: the start if jobs of unknown duration never end."""
        low, high = self.scores.range(start - now, behind=behind - now)
        ends = self._names(last.after, viewer=tracked)
        expected = ExpectedStart(start, now + low, max(now + high, last.at), after=ends)
        waiting = self._show(tracked.job.uid, expected, now=now)
        waiting.first.setdefault(lead(start - now), (now, waiting.shown, start, behind))

    def _show(self, uid: str, expected: ExpectedStart, *, now: float) -> _Waiting:
        """Show an expected start if it is news; return the forecasts of the job."""
        expected, waiting = rounded(expected, now=now), self._waiting.get(uid)
        if waiting is None or expected.is_news(waiting.shown, now=now):
            waiting = _Waiting(expected, waiting.first if waiting else {})
            self._waiting[uid] = waiting
            self._news.add(uid)
        return waiting

    # --- scores ---------------------------------------------------------------------------------

    def scores_of_started(self, now: float) -> Iterator[Score]:
        """Yield the scores of jobs that started since the last call, and forget deleted jobs."""
        for uid in tuple(self._waiting):
            tracked = self._planner.cluster.jobs.get(uid)
            if tracked and tracked.job.suspend and (tracked.queued or tracked.busy):
                continue
            waiting = self._waiting.pop(uid)
            if tracked and not (tracked.job.suspend or tracked.job.released):
                yield from self._scores_of(waiting, now)

    def _scores_of(self, waiting: _Waiting, now: float) -> Iterator[Score]:
        for name, (at, shown, start, behind) in waiting.first.items():
            wait = now - at
            if wait >= SHORTEST and shown.time and shown.latest and shown.earliest is not None:
                self.scores.add(wait, expected=start - at, behind=behind - at)
                width = shown.latest - shown.earliest
                yield Score(name, shown.accuracy(now), abs(shown.time - now), wait, width)


def _is_late(waiting: _Waiting, now: float) -> bool:
    """Return whether a start is late by a fraction of the time since its first forecast."""
    time, since = waiting.shown.time, min((at for at, *_ in waiting.first.values()), default=now)
    return time is not None and time < now - max(EVERY, _CHANGED * (now - since))


def _has_changed(before: float | None, end: float | None, *, now: float) -> bool:
    """Return whether an end has changed by more than a fraction of the remaining time."""
    if before is None or end is None or before == end:
        return before != end
    return abs(end - before) > max(EVERY, _CHANGED * (before - now))

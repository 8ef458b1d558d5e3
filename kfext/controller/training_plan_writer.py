"""Writes one TrainingPlan for each job, for people to read.

Losing it is safe: all of it is derived, except the history of the job, which nothing depends on.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import structlog

from kfext.controller.training_plan import (
    TrainingPlanStatus,
    Transition,
    WrittenTrainingPlan,
    as_written,
    body_of,
    encode_status,
    same_but_details,
)
from kfext.core.job_history import JobHistory
from kfext.core.progress import reported
from kfext.core.progress.reported import Reported, looks_the_same
from kfext.core.queue.expected import ExpectedStart
from kfext.errors import ApiError, Conflict, NotFound, NotServed
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.backoff import exponential_backoff
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.timestamps import timestamp
from kfext.names import BINDING, FINISHED, GATED, PLACED, PLANNED, QUEUED, SCALED, SUSPENDED
from kfext.state.running.policy import ConditionStatus

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 1.0
"""Pause between two writes of a TrainingPlan: otherwise each new pod of a gang would be a write."""
_SAME_SECONDS = 10.0
"""Pause before a write that only updates numbers and messages."""
_PASSING = frozenset({PLANNED, GATED, BINDING})
_PASSING_SECONDS = 2.0
"""A phase that a gang passes in seconds is written only after this time. So the TrainingPlan of a
job that starts at once is created and written once, when its pods are bound."""
_STOPPED = frozenset({QUEUED, SUSPENDED, FINISHED})
"""The phases without running pods, so that no job in them is stalled."""
_START_SECONDS = 30.0
"""New pods after a change of size get an entry of their own only if they start later than this."""
_LONGEST_PAUSE_SECONDS = 300.0
"""The longest pause after a refused write; each refusal in a row doubles the pause."""
_WORKERS = 16
_REFRESH_SECONDS = 0.05
"""Pause between two writes that only update numbers: a change of free capacity changes the messages
of all waiting jobs, and writing them at once would load the API server."""


class TrainingPlanWriter:
    """Writes statuses in the background; only the newest status of a job is ever written.

    New phases, nodes and reasons are written first; new numbers alone wait longer.
    """

    def __init__(
        self,
        *,
        client: Client,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._monotonic = monotonic
        self._wanted: dict[str, tuple[TrainingJob, TrainingPlanStatus]] = {}
        self._written: dict[str, TrainingPlanStatus] = {}
        self._wall = wall
        self._transitions: dict[str, dict[str, Transition]] = {}
        self._histories: dict[str, JobHistory] = {}
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._refreshes: asyncio.Queue[str] = asyncio.Queue()
        self._queued: dict[str, asyncio.Queue[str]] = {}
        self._failures: Counter[str] = Counter()
        self._tried_at: dict[str, float] = {}
        self._phases: dict[str, tuple[str, float]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def observe(self, old: WrittenTrainingPlan | None, new: WrittenTrainingPlan | None) -> None:
        """Record the present version of a TrainingPlan; a deleted TrainingPlan is created again."""
        if old is not None and (new is None or new.job_uid != old.job_uid):
            self._written.pop(old.job_uid, None)
            self._histories.pop(old.job_uid, None)
            if old.job_uid not in self._wanted:
                self._transitions.pop(old.job_uid, None)
            self._enqueue(old.job_uid)
        if new is not None:
            self._written[new.job_uid] = new.status
            self._transitions.setdefault(new.job_uid, {}).update(new.transitions)
            if new.job_uid not in self._wanted:  # else the history here is newer
                self._histories[new.job_uid] = new.history

    def show(
        self, job: TrainingJob, status: TrainingPlanStatus, *, keeping: Collection[str] = ()
    ) -> None:
        """Show `status` on the TrainingPlan of a job; its progress and expected start remain.

        `keeping`: the types of the other conditions that remain.
        """
        _, shown = self._wanted.get(job.uid, (job, self._written.get(job.uid)))
        self._record_phase(job, status, shown)
        if shown is not None:
            kept = {
                type_: condition
                for type_, condition in shown.conditions.items()
                if type_ in keeping
            }
            conditions, progress = {**status.conditions, **kept}, shown.progress
            if progress is not None and status.phase in _STOPPED:
                progress = replace(progress, moves=None)
            status = replace(status, progress=progress, conditions=conditions)
            if status.phase == QUEUED:
                status = replace(status, expected=shown.expected)
        self._want(job, status)

    def show_progress(self, job: TrainingJob, progress: Reported | None) -> None:
        """Show the progress of a job on its TrainingPlan; None removes it and its curve.

        Numbers that differ only in their third digit are not worth a write.
        """
        if job.uid not in self._wanted:
            return  # its phase comes first
        _, status = self._wanted[job.uid]
        written = self._written.get(job.uid)
        if progress is None:
            self._histories[job.uid] = replace(self._history(job), curve="")
        else:
            self._record_progress(job, progress, status.progress)
            progress = reported.as_written(progress.after(status.progress or Reported()))
            shown = written.progress if written else None
            if progress and shown and looks_the_same(shown, progress):
                progress = shown
        self._want(job, replace(status, progress=progress))

    def show_expected(self, job: TrainingJob, expected: ExpectedStart | None) -> None:
        """Show when a job should start, while it is queued."""
        _, status = self._wanted.get(job.uid, (job, None))
        if status is not None and status.phase == QUEUED:  # else its phase comes first
            self._want(job, replace(status, expected=expected))

    def show_companion(self, job: TrainingJob, type_: str, shown: ConditionStatus | None) -> None:
        """Show a condition of the companion on the TrainingPlan of a job, or remove it."""
        if job.uid in self._wanted:  # else its phase comes first
            _, status = self._wanted[job.uid]
            conditions = dict(status.conditions)
            conditions.pop(type_, None)
            if shown is not None:
                conditions[type_] = as_written(shown)
            self._want(job, replace(status, conditions=conditions))

    def record(
        self, job: TrainingJob, event: str, why: str, *, nodes: Sequence[str], since: float = 0.0
    ) -> None:
        """Add an event to the history of a job, which the next patch writes.

        `since`: when it happened, in epoch seconds; 0.0 means now.
        """
        self._histories[job.uid] = self._history(job).with_entry(
            event, why, at=since or self._wall(), workers=job.training_pods, nodes=nodes
        )

    def _history(self, job: TrainingJob) -> JobHistory:
        return self._histories.get(job.uid, JobHistory())

    def _record_phase(
        self, job: TrainingJob, status: TrainingPlanStatus, shown: TrainingPlanStatus | None
    ) -> None:
        """Add a new phase to the history of a job, and a new reason to wait.

        `shown`: the previous status. The phases of a start count as one phase. A start soon after a
        change of size is a part of that change.
        """
        phase = PLANNED if status.phase in _PASSING else status.phase
        history, since = self._history(job), 0.0
        known, last = history.phase, history.entries[-1] if history.entries else None
        waits_anew = phase == QUEUED and (shown is None or shown.reason != status.reason)
        if phase == known and not waits_anew:
            return
        lately = last and last.event == SCALED and self._wall() - last.at < _START_SECONDS
        if lately and phase == PLANNED:
            return
        planned = status.conditions.get(PLANNED) if phase == PLANNED else None
        why = planned.verdict.message if planned else status.message
        stays = shown is not None and shown.phase == phase and phase in {QUEUED, PLACED}
        if not known and stays:  # an earlier version kept no history, or it was lost
            since = self.since(job, PLACED)
        self.record(job, phase, why, nodes=status.nodes, since=since)

    def _record_progress(self, job: TrainingJob, new: Reported, old: Reported | None) -> None:
        """Add a report of a job to its curve, which has the values of a single metric."""
        history, progress = self._history(job), new.progress
        if old is not None and progress.metric and old.progress.metric not in {"", progress.metric}:
            history = history.without_values()
        at, step, value = self._wall(), progress.step, progress.value
        self._histories[job.uid] = history.with_point(at, step, value)

    def shows(self, job: TrainingJob) -> bool:
        """Return whether a job has a TrainingPlan, or is about to get one."""
        return job.uid in self._wanted or job.uid in self._written

    def progress(self, job: TrainingJob) -> Reported:
        """Return the progress last shown for a job, perhaps by an earlier controller."""
        _, status = self._wanted.get(job.uid, (job, self._written.get(job.uid)))
        return (status.progress if status else None) or Reported()

    def since(self, job: TrainingJob, type_: str) -> float:
        """Return when the status of a condition last changed, in epoch seconds; 0.0 if unknown."""
        transition = self._transitions.get(job.uid, {}).get(type_)
        return timestamp(transition.since) if transition else 0.0

    def reason(self, job: TrainingJob) -> str:
        """Return the reason last shown for a job, or an empty string."""
        _, status = self._wanted.get(job.uid, (job, self._written.get(job.uid)))
        return status.reason if status else ""

    def forget(self, uid: str) -> None:
        """Forget a job that is gone: its TrainingPlan is deleted with it."""
        known = self._wanted, self._written, self._transitions, self._histories, self._failures
        for memory in (*known, self._tried_at, self._phases):
            memory.pop(uid, None)
        self._cancel_timer(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(self._news, pause=0.0))
            workers.create_task(self._work(self._refreshes, pause=_REFRESH_SECONDS))

    def _want(self, job: TrainingJob, status: TrainingPlanStatus) -> None:
        self._wanted[job.uid] = (job, status)
        if self._written.get(job.uid) != status:
            self._enqueue(job.uid)

    def _enqueue(self, uid: str) -> None:
        if uid not in self._wanted:
            return
        _, status = self._wanted[uid]
        same, now = same_but_details(status, self._written.get(uid)), self._monotonic()
        phase, since = self._phases.get(uid, ("", now))
        if phase != status.phase:
            since = now
        self._phases[uid] = (status.phase, since)
        due = self._tried_at.get(uid, -math.inf) + _SAME_SECONDS if same else -math.inf
        if status.phase in _PASSING:
            due = max(due, since + _PASSING_SECONDS)
        if due > now:
            loop = asyncio.get_running_loop()
            at, timer = loop.time() + due - now, self._timers.get(uid)
            if timer is None or timer.when() > at:
                self._cancel_timer(uid)
                self._timers[uid] = loop.call_at(at, self._end_wait, uid)
            return
        queue = self._refreshes if same else self._news
        if self._queued.get(uid) not in {self._news, queue}:
            self._queued[uid] = queue
            queue.put_nowait(uid)

    def _cancel_timer(self, uid: str) -> None:
        if uid in self._timers:
            self._timers.pop(uid).cancel()

    def _end_wait(self, uid: str) -> None:
        self._timers.pop(uid)
        self._want(*self._wanted[uid])

    async def _work(self, queue: asyncio.Queue[str], *, pause: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            uid = await queue.get()
            job, status = self._wanted.get(uid, (None, None))
            if job is not None and status is not None and self._written.get(uid) != status:
                self._tried_at[uid] = self._monotonic()
                await self._attempt(job, status)
            # The job stays queued during the pause, so that further changes wait too.
            loop.call_later(self._pause_seconds(uid), self._end_pause, uid)
            await asyncio.sleep(pause)

    async def _attempt(self, job: TrainingJob, status: TrainingPlanStatus) -> None:
        try:
            written = await self._write(job, status)
        except ApiError as error:
            _log.warning("TrainingPlan not written", job=job.name, error=str(error))
            if not error.final:
                return  # it is written once the API server is back
            written = False
        except Exception:
            # The status of one job must not end the writer of all jobs.
            _log.exception("TrainingPlan not written", job=job.name)
            written = False
        if written:
            self._written[job.uid] = status
            self._failures.pop(job.uid, None)
        elif job.uid in self._wanted:
            self._failures[job.uid] += 1

    def _pause_seconds(self, uid: str) -> float:
        """Return the pause before a TrainingPlan is written again.

        The API server may refuse every write: an orphaned TrainingPlan may have the same name.
        """
        return exponential_backoff(
            max(self._failures[uid], 1), first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS
        )

    def _end_pause(self, uid: str) -> None:
        self._queued.pop(uid, None)
        if uid in self._wanted:
            self._want(*self._wanted[uid])

    async def _write(self, job: TrainingJob, status: TrainingPlanStatus) -> bool:
        """Write a status; return False if the TrainingPlan is of an earlier job with this name."""
        path = paths.plans(job.namespace, job.training_plan, "status")
        transitions = self._transitions.setdefault(job.uid, {})
        shown = encode_status(status, transitions, now=self._wall()) | self._history(job).encode()
        exists = job.uid in self._written
        before = self._written.get(job.uid, TrainingPlanStatus()).facts.requests
        shown["requests"] = dict.fromkeys(before) | shown["requests"]  # null removes
        body = {"status": shown}
        while True:
            if not exists:
                try:
                    await self._client.create(paths.plans(job.namespace), body_of(job))
                except Conflict:
                    pass  # created before a restart of kfext
                except NotServed:
                    raise  # the CRD is gone; it may come back
                except NotFound:
                    return True  # the namespace is being deleted
            try:
                # Otherwise it belongs to an earlier job of the same name.
                return planned_uid(await self._client.merge_patch(path, body)) == job.uid
            except NotFound:
                if not exists:
                    return False
                exists = False

"""Keep one TrainingPlan per job for people to read. It is derived, so losing one loses nothing."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import structlog

from kfext.controller.companion_condition import as_written as companion_as_written
from kfext.controller.conditions import Conditions
from kfext.controller.training_plan import (
    TrainingPlanStatus,
    WrittenTrainingPlan,
    body_of,
    encode_status,
    same_but_texts,
)
from kfext.core.companion.policy import Shown
from kfext.core.progress.reported import Reported, as_written, looks_the_same
from kfext.errors import ApiError, Conflict, NotFound, NotServed
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.backoff import exponential_backoff
from kfext.model.job import TrainingJob, planned_uid

_log = structlog.get_logger(__name__)

_CALM_SECONDS = 1.0
"""Pause between two writes of one TrainingPlan, so that it does not count a gang's pods one by one.
"""
_SAME_SECONDS = 10.0
"""Pause before a write that only updates numbers and messages."""
_LONGEST_PAUSE_SECONDS = 300.0
"""The longest pause after a write that was refused; each in a row doubles it."""
_WORKERS = 16
_REFRESH_SECONDS = 0.05
"""Pause between two writes that only update numbers: whenever free capacity changes, so do the
messages of all waiting jobs, and writing them at once would load the API server."""


class TrainingPlanWriter:
    """Writes statuses in the background; only the newest status of a job is ever written.

    New phases, nodes and reasons go first; new numbers alone wait for their turn.
    """

    def __init__(
        self,
        *,
        client: Client,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._wanted: dict[str, tuple[TrainingJob, TrainingPlanStatus]] = {}
        self._written: dict[str, TrainingPlanStatus] = {}
        self._conditions = Conditions(wall)
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._refreshes: asyncio.Queue[str] = asyncio.Queue()
        self._queued: dict[str, asyncio.Queue[str]] = {}
        self._failures: Counter[str] = Counter()
        self._tried_at: dict[str, float] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def observe(self, old: WrittenTrainingPlan | None, new: WrittenTrainingPlan | None) -> None:
        """Take in the present version of a TrainingPlan; a deleted one is created again."""
        if old is not None and (new is None or new.job_uid != old.job_uid):
            self._written.pop(old.job_uid, None)
            if old.job_uid not in self._wanted:
                self._conditions.forget(old.job_uid)
            self._enqueue(old.job_uid)
        if new is not None:
            self._written[new.job_uid] = new.status
            self._conditions.observe(new.job_uid, new.marks)

    def show(self, job: TrainingJob, status: TrainingPlanStatus) -> None:
        """Have the job's TrainingPlan show `status`, beside its progress and its companion."""
        _, shown = self._wanted.get(job.uid, (job, self._written.get(job.uid)))
        if shown is not None:
            status = replace(status, progress=shown.progress, companion=shown.companion)
        self._want(job, status)

    def show_progress(self, job: TrainingJob, progress: Reported | None) -> None:
        """Have the job's TrainingPlan show its progress, or none.

        Numbers that differ in their third digit only are not worth a write.
        """
        if job.uid not in self._wanted:
            return  # its phase comes first
        _, status = self._wanted[job.uid]
        written = self._written.get(job.uid)
        if progress is not None:
            progress = as_written(progress.after(status.progress or Reported()))
            if written and written.progress and looks_the_same(written.progress, progress):
                progress = written.progress
        self._want(job, replace(status, progress=progress))

    def show_companion(self, job: TrainingJob, type_: str, shown: Shown | None) -> None:
        """Have the job's TrainingPlan show a condition of the companion, None to have it gone."""
        if job.uid in self._wanted:  # else its phase comes first
            _, status = self._wanted[job.uid]
            companion = {key: one for key, one in status.companion.items() if key != type_}
            if shown is not None:
                companion[type_] = companion_as_written(shown)
            self._want(job, replace(status, companion=companion))

    def shows(self, job: TrainingJob) -> bool:
        """Return whether a job has a TrainingPlan, or is about to get one."""
        return job.uid in self._wanted or job.uid in self._written

    def reason(self, job: TrainingJob) -> str:
        """Return the reason last shown for a job, empty if none."""
        _, status = self._wanted.get(job.uid, (job, self._written.get(job.uid)))
        return status.reason if status else ""

    def forget(self, uid: str) -> None:
        """Take in that a job is gone: its TrainingPlan goes with it."""
        for memory in (self._wanted, self._written, self._failures, self._tried_at):
            memory.pop(uid, None)
        if uid in self._waiting:
            self._waiting.pop(uid).cancel()
        self._conditions.forget(uid)

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
        queue = self._news
        if same_but_texts(status, self._written.get(uid)):
            queue = self._refreshes
            wait = self._tried_at.get(uid, -math.inf) + _SAME_SECONDS - time.monotonic()
            if wait > 0:
                if uid not in self._waiting:
                    loop = asyncio.get_running_loop()
                    self._waiting[uid] = loop.call_later(wait, self._waited, uid)
                return
        if self._queued.get(uid) not in {self._news, queue}:
            self._queued[uid] = queue
            queue.put_nowait(uid)

    def _waited(self, uid: str) -> None:
        self._waiting.pop(uid)
        self._want(*self._wanted[uid])

    async def _work(self, queue: asyncio.Queue[str], *, pause: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            uid = await queue.get()
            job, status = self._wanted.get(uid, (None, None))
            if job is not None and status is not None and self._written.get(uid) != status:
                self._tried_at[uid] = time.monotonic()
                await self._attempt(job, status)
            # Until then the job counts as queued, so that changes in the meantime wait too.
            loop.call_later(self._calm_seconds(uid), self._calm_again, uid)
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
            # What one job has made of its status must not end the writer of all jobs.
            _log.exception("TrainingPlan not written", job=job.name)
            written = False
        if written:
            self._written[job.uid] = status
            self._failures.pop(job.uid, None)
        elif job.uid in self._wanted:
            self._failures[job.uid] += 1

    def _calm_seconds(self, uid: str) -> float:
        """Return for how long a TrainingPlan is not written again.

        One that cannot be written may never be: a TrainingPlan of an earlier job of that name that
        was orphaned, for example, stays.
        """
        return exponential_backoff(
            max(self._failures[uid], 1), first=_CALM_SECONDS, longest=_LONGEST_PAUSE_SECONDS
        )

    def _calm_again(self, uid: str) -> None:
        self._queued.pop(uid, None)
        if uid in self._wanted:
            self._want(*self._wanted[uid])

    async def _write(self, job: TrainingJob, status: TrainingPlanStatus) -> bool:
        """Write a status; return False if the TrainingPlan is of an earlier job of that name."""
        path = paths.plans(job.namespace, job.training_plan, "status")
        body = {"status": encode_status(job.uid, status, self._conditions)}
        made = job.uid in self._written
        while True:
            if not made:
                try:
                    await self._client.create(paths.plans(job.namespace), body_of(job))
                except Conflict:
                    pass  # made before, by ourselves before a restart
                except NotServed:
                    raise  # without their kind there are none; it may come back
                except NotFound:
                    return True  # the namespace is going away
            try:
                # Else it is of an earlier job of the same name.
                return planned_uid(await self._client.merge_patch(path, body)) == job.uid
            except NotFound:
                if not made:
                    return False
                made = False

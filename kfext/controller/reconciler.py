"""The one loop of the controller: what changed is decided on at once, what was decided is written.

1. take the jobs that changed, in the queue's order; 2. ask core.lifecycle for the next step of
each; 3. note on the ledger what a step will take, and what is kept for the head of the queue, so
that the next decision counts it; 4. write, many jobs at once, at most one step of one job at a
time; 5. tell the jobs that wait why, and at which place.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from kfext.controller.metrics import Metrics
from kfext.controller.writer import Writer
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.queued import HOPELESS
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Amend, Bind, Start, Step, Wait
from kfext.core.patches.json_patch import Unpatchable
from kfext.errors import ApiError
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.entry import Entry
from kfext.state.line import Line
from kfext.state.settings import JobSettings, SettingsSource

_log = structlog.get_logger(__name__)

_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 30.0
_TICK_SECONDS = 5.0  # without any event; only so that liveness can be seen

Report = Callable[[Entry, str | None, Verdict | None], None]
"""Told the phase of a job and why, whenever it was looked at."""


class Reconciler:
    """Runs the loop over a cluster; `report` hears what becomes of each job."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        wake: asyncio.Event,
        settings: SettingsSource,
        writer: Writer,
        report: Report,
        metrics: Metrics,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ticked_at = monotonic()
        self._cluster = cluster
        self._wake = wake
        self._settings = settings
        self._writer = writer
        self._report = report
        self._metrics = metrics
        self._wall = wall
        self._monotonic = monotonic
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self.line = Line(cluster=cluster, settings=self._settings_of, wall=wall)

    async def run(self) -> None:
        """Decide and write until cancelled."""
        try:
            async with asyncio.TaskGroup() as writes:
                while True:
                    self.tick(writes)
                    try:
                        async with asyncio.timeout(_TICK_SECONDS):
                            await self._wake.wait()
                    except TimeoutError:
                        continue
        finally:
            for alarm in self._alarms.values():
                alarm.cancel()

    def since_tick(self) -> float:
        """Return the seconds since the loop last turned."""
        return self._monotonic() - self._ticked_at

    def tick(self, writes: asyncio.TaskGroup) -> None:
        """Decide on every job that changed since the last time."""
        self._wake.clear()
        self._ticked_at = self._monotonic()
        self._cluster.settle()
        changed, self._cluster.changed = self._cluster.changed, set()
        entries = []
        for uid in changed:
            if entry := self._cluster.jobs.get(uid):
                entries.append(entry)
            else:
                self.line.forget(uid)
        told: dict[str, Entry] = {}
        for entry in sorted(entries, key=self.line.turn):
            if entry.busy or self._monotonic() < entry.not_before:
                continue  # it is marked again when its write is done, or is to be tried again
            self._decide(entry, writes)
            self.line.note(entry)
            told[entry.job.uid] = entry
            if holder := self.line.keep_room_after(entry):
                told[holder.job.uid] = holder
        if holder := self.line.keep_room():
            told[holder.job.uid] = holder
        told.update((entry.job.uid, entry) for entry in self.line.moved())
        for entry in told.values():
            if not entry.busy:
                self._report(entry, entry.phase, self.line.sentence(entry))

    def _decide(self, entry: Entry, writes: asyncio.TaskGroup) -> None:
        try:
            with self._metrics.decision.time():
                situation = self._situation(entry)
                step = next_step(situation, self._cluster.ledger, self.line.refusals)
        except Exception:
            # One job that we cannot judge must not keep all others from being placed.
            _log.exception("no decision", job=entry.job.name, namespace=entry.job.namespace)
            self._metrics.steps.labels(step="none", outcome="failed").inc()
            self._alarm(entry.job.uid, _LONGEST_RETRY_SECONDS)
            return
        entry.hopeless_since = self._hopeless_since(entry, step)
        if isinstance(step, Wait):
            self._enter(entry, step)
            self._alarm(entry.job.uid, step.again)
            return
        if isinstance(step, Start | Amend):
            entry.assumed = step.plan
            self._cluster.sync_claims(entry)
        entry.busy = True
        writes.create_task(self._carry_out(entry, step))

    def _enter(self, entry: Entry, wait: Wait) -> None:
        """Note the phase that a job is in, and how long it was in the one before."""
        if wait.phase != entry.phase:
            now = self._monotonic()
            if entry.phase is not None:
                self._metrics.phases.labels(phase=entry.phase).observe(now - entry.phase_since)
            entry.phase_since = now
        entry.phase, entry.verdict = wait.phase, wait.verdict

    def _hopeless_since(self, entry: Entry, step: Step) -> float | None:
        """Return since when the job would not fit even the empty cluster, None if it would."""
        if not isinstance(step, Wait) or step.verdict is None:
            return None
        if step.verdict.reason not in HOPELESS:
            return None
        return self._monotonic() if entry.hopeless_since is None else entry.hopeless_since

    def _situation(self, entry: Entry) -> Situation:
        now = self._monotonic()
        settings = self._settings_of(entry)
        return Situation(
            job=entry.job,
            pods=self._cluster.pods(entry.job.uid),
            plan=entry.plan,
            state=entry.state,
            now=self._wall(),
            placement=settings.placement,
            colocation=settings.colocation,
            elastic=settings.elastic,
            managed=settings.managed,
            host_network=settings.host_network,
            waited=now - entry.since,
            quiet=now - self._cluster.pod_created_at,
            settled=now - entry.settled_at,
            hopeless=0.0 if entry.hopeless_since is None else now - entry.hopeless_since,
            around=self.line.around(entry),
        )

    def _settings_of(self, entry: Entry) -> JobSettings:
        """Return what holds for a job, found out anew only if something of it has changed."""
        known = entry.settings
        if known is None or known[0] != self._settings.version or known[1] is not entry.job:
            settings = self._settings.of(entry.job)
            known = entry.settings = (self._settings.version, entry.job, settings)
        return known[2]

    async def _carry_out(self, entry: Entry, step: Step) -> None:
        """Write one step. What failed is tried again, decided anew on what is then the case."""
        job = entry.job
        log = _log.bind(job=job.name, namespace=job.namespace, uid=job.uid, kind=job.kind.name)
        again: float | None = None
        try:
            complete = await self._writer.write(entry, step)
            log.info("step", step=type(step).__name__, complete=complete)
            again = None if complete else _RETRY_SECONDS
            entry.failures = 0
            self._count(step)
        except (ApiError, Unpatchable) as error:
            log.warning("step failed", step=type(step).__name__, error=str(error))
            self._metrics.steps.labels(step=type(step).__name__, outcome="failed").inc()
            again = min(_RETRY_SECONDS * 2**entry.failures, _LONGEST_RETRY_SECONDS)
            entry.failures = min(entry.failures + 1, 10)
            entry.not_before = self._monotonic() + again
        finally:
            entry.assumed = None
            entry.busy = False
            self._cluster.sync_claims(entry)
        self._cluster.mark(job.uid) if again is None else self._alarm(job.uid, again)

    def _count(self, step: Step) -> None:
        self._metrics.steps.labels(step=type(step).__name__, outcome="done").inc()
        if isinstance(step, Start | Amend):
            self._metrics.plans.labels(cause=step.verdict.reason).inc()
        if isinstance(step, Bind):
            self._metrics.pins.inc(len(step.pins))

    def _alarm(self, uid: str, seconds: float | None) -> None:
        """Look at a job again after some seconds, in place of an earlier alarm."""
        earlier = self._alarms.pop(uid, None)
        if earlier is not None:
            earlier.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._alarms[uid] = loop.call_later(seconds, self._ring, uid)

    def _ring(self, uid: str) -> None:
        self._alarms.pop(uid, None)
        entry = self._cluster.jobs.get(uid)
        if entry is not None:
            entry.not_before = 0.0
        self._cluster.mark(uid)

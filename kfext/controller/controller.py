"""One controller process: it watches the cluster, waits for the Lease, then runs the loop."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

import structlog

from kfext.controller.job_display import JobDisplay
from kfext.controller.metrics import Metrics, guard
from kfext.controller.progress_reader import ProgressReader
from kfext.controller.reconciler import Reconciler
from kfext.controller.records import CapacityKeeper, UsageKeeper
from kfext.controller.start_forecast import StartForecast
from kfext.controller.step_executor import StepExecutor
from kfext.controller.training_plan import WrittenTrainingPlan
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.controller.watch import forget_deleted, informers, read_all
from kfext.errors import ApiError
from kfext.kube.certs import Issuer
from kfext.kube.client import Client
from kfext.kube.discovery import has_autoscaler, placeholder_template
from kfext.kube.events import EventRecorder
from kfext.kube.lease import LeaseHolder
from kfext.kube.usage import Usage
from kfext.model.kinds.job_kind import JobKind
from kfext.model.moment import Moment
from kfext.state.planner.planner import Planner

_log = structlog.get_logger(__name__)

_STALE_SECONDS = 150.0
"""After this long without an event or a bookmark, an informer's cache is too old to act on."""
_TICK_LIMIT_SECONDS = 15.0
_RECHECK_SECONDS = 300.0
_SETTLE_SECONDS = 10.0
_REFRESH_SECONDS = 30.0


class Controller:
    """One controller process.

    `kinds`: the kinds of jobs that the cluster serves.
    `client`: the client for all requests but the requests of the next two.
    `lease_client`: the client for the Lease: a renewal must not queue behind the pins of a gang.
    `log_client`: the client for logs and CPU use, so that pins do not queue behind them.
    `identity`: a name that no other replica has.
    `certificates`: whether the leader issues the webhook's certificates.
    """

    def __init__(
        self,
        *,
        client: Client,
        lease_client: Client,
        log_client: Client,
        identity: str,
        kinds: Collection[JobKind],
        metrics: Metrics,
        certificates: bool = True,
    ) -> None:
        self._wake = asyncio.Event()
        self._client = client
        self._kinds = kinds
        self._metrics = metrics
        self._certificates = certificates
        self.planner = Planner(wake=self._wake.set)
        self.plan_writer = TrainingPlanWriter(client=client)
        self._events = EventRecorder(client, reporter="kfext-controller", instance=identity)
        display = JobDisplay(self.planner, self.plan_writer, self._events)
        self._writer = StepExecutor(
            client=client, cluster=self.planner.cluster, events=self._events
        )
        self._forecast = StartForecast(self.planner, self.plan_writer, metrics, now=self.now)
        self._reconciler = Reconciler(
            planner=self.planner,
            wake=self._wake,
            writer=self._writer,
            display=display,
            metrics=metrics,
            calm=self._forecast.begin,
        )
        self.progress_reader = ProgressReader(
            log_client,
            usage=Usage(log_client, labels={kind.job_label for kind in kinds}),
            planner=self.planner,
            show=display.show_progress,
            now=self.now,
        )
        metrics.follow(self.planner)
        metrics.follow_jobs(self.planner.progress.reports)
        self._informers = informers(
            client, planner=self.planner, observe_plan=self._observe_plan, kinds=kinds
        )
        metrics.follow_watches(self._informers)
        metrics.follow_events(lambda: self._events.dropped)
        self._lease = LeaseHolder(
            lease_client,
            identity=identity,
            healthy=self._healthy,
            kinds=[kind.name for kind in kinds],
            suspects=self.planner.starts.suspects,
        )
        self._usage = UsageKeeper(client, self.planner)
        self._listed = self._had_template = False

    async def run(self) -> None:
        """Watch the cluster, and place jobs while holding the Lease. Raises LeaseLost, ApiError."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            await read_all(self._client, self.planner, self._kinds)
            await self._look_for_autoscaler()
            self._listed = True
            tasks.create_task(self._events.run())
            tasks.create_task(self._lease.run())
            tasks.create_task(self._settle_until_leading())
            await self._lease.held.wait()
            self._client.forbid_writes_unless(self._lease.may_act)
            self._metrics.lead(self.planner)
            cluster = self.planner.cluster
            _log.info("leading", jobs=len(cluster.jobs), claims=len(cluster.ledger))
            await self._usage.keep()
            tasks.create_task(self.plan_writer.run())
            tasks.create_task(self._recheck())
            tasks.create_task(self._refresh())
            if self._certificates:
                tasks.create_task(Issuer(self._client).run())
            tasks.create_task(self._reconciler.run())
            tasks.create_task(self.progress_reader.run())
            tasks.create_task(self._forecast.run())
            tasks.create_task(CapacityKeeper(self._client, self.planner).run())

    def _observe_plan(
        self, old: WrittenTrainingPlan | None, new: WrittenTrainingPlan | None
    ) -> None:
        self.plan_writer.observe(old, new)
        self.progress_reader.observe(old, new)

    def now(self) -> Moment:
        """Return the present moment."""
        return self._reconciler.now()

    def readiness_problem(self) -> str | None:
        """Return the reason why kfext cannot place jobs, if any."""
        if not self._listed:
            return "jobs, pods and nodes are not listed yet"
        for name, informer in self._informers.items():
            if informer.last_event_age() > _STALE_SECONDS:
                return f"the watch of {name} has been silent for too long"
        return None

    def liveness_problem(self) -> str | None:
        """Return the reason to restart the process, if any."""
        if not self._lease.held.is_set():
            return None
        age = self._reconciler.since_tick()
        return f"the loop has not turned for {age:.0f} s" if age > _TICK_LIMIT_SECONDS else None

    def _healthy(self) -> bool:
        return self.readiness_problem() is None and self.liveness_problem() is None

    async def _recheck(self) -> None:
        """Every 5 minutes, forget deleted objects, look for an autoscaler and store the usage."""
        while True:
            with guard("sweep"), suppress(ApiError):
                await self._look_for_autoscaler()
                await forget_deleted(
                    self._client, self.planner, self.plan_writer, kinds=self._kinds
                )
            await asyncio.sleep(_RECHECK_SECONDS)
            with guard("keep usage"):
                await self._usage.keep()

    async def _refresh(self) -> None:
        """Keep the free capacity in the messages of the first waiting jobs up to date."""
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            with guard("refresh messages"):
                self.planner.refresh_messages()

    async def _look_for_autoscaler(self) -> None:
        present = await has_autoscaler(self._client)
        template = await placeholder_template(self._client) if present else {}
        # A template that is missing for a moment must not release jobs.
        can_ask = bool(template or self._had_template)
        self._had_template = bool(template)
        self._writer.placeholder_template = template or self._writer.placeholder_template
        self.planner.queue.observe_autoscaler(present=present, can_ask=can_ask)

    async def _settle_until_leading(self) -> None:
        """While standing by, settle queued changes regularly: few are left when the loop begins."""
        while not self._lease.held.is_set():
            await asyncio.sleep(_SETTLE_SECONDS)
            self.planner.cluster.stand_by(self.now().monotonic)
            self.planner.progress.stand_by(self.now().monotonic)

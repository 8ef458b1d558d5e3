"""One controller: it follows the cluster, holds the Lease, and has the loop place jobs."""

import asyncio
from contextlib import suppress

import structlog

from kfext.controller.informers import informers
from kfext.controller.metrics import Metrics
from kfext.controller.reconciler import Reconciler
from kfext.controller.step_executor import StepExecutor, reference
from kfext.controller.training_plan import status_of
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.core.network.eligibility import why_network
from kfext.core.settings.values import HOST, POD
from kfext.errors import ApiError
from kfext.kube import paths
from kfext.kube.autoscaler import has_autoscaler
from kfext.kube.certs.issuing import Issuer
from kfext.kube.client import Client
from kfext.kube.events import EventRecorder
from kfext.kube.lease import LeaseHolder
from kfext.kube.listing import objects, uids
from kfext.model.kinds import KINDS
from kfext.model.moment import Moment
from kfext.model.plan import Plan
from kfext.model.policy import parse_policy
from kfext.model.verdict import Verdict
from kfext.names import PLACED, QUEUED
from kfext.state.planner import Planner
from kfext.state.tracked_job import TrackedJob

_log = structlog.get_logger(__name__)

_STALE_SECONDS = 150.0
"""After this long without an event or a bookmark, a mirror is too old to act on."""
_TICK_LIMIT_SECONDS = 15.0
_SWEEP_SECONDS = 300.0
_STAND_BY_SECONDS = 10.0


class Controller:
    """One controller process. `identity` must be unique among the replicas.

    The Lease has a client of its own: its renewal must not queue behind the pins of a big gang.
    """

    def __init__(
        self, *, client: Client, lease_client: Client, identity: str, metrics: Metrics
    ) -> None:
        self._wake = asyncio.Event()
        self._client = client
        self._metrics = metrics
        self.planner = Planner(wake=self._wake.set)
        self.plan_writer = TrainingPlanWriter(client=client)
        self._events = EventRecorder(client, reporter="kfext-controller", instance=identity)
        self._reconciler = Reconciler(
            planner=self.planner,
            wake=self._wake,
            writer=StepExecutor(client=client, cluster=self.planner.cluster, events=self._events),
            show=self._show,
            metrics=metrics,
        )
        metrics.follow(self.planner)
        self._informers = informers(client, planner=self.planner, plan_writer=self.plan_writer)
        metrics.follow_watches(self._informers)
        metrics.follow_events(lambda: self._events.dropped)
        self._lease = LeaseHolder(lease_client, identity=identity, healthy=self._healthy)
        self._listed = False

    async def run(self) -> None:
        """Follow the cluster; place jobs while the Lease is ours. Raises LeaseLost, ApiError."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            await self._list_people_kinds()
            self.planner.queue.observe_autoscaler(present=await has_autoscaler(self._client))
            self._listed = True
            tasks.create_task(self._events.run())
            tasks.create_task(self._lease.run())
            tasks.create_task(self._stand_by())
            await self._lease.held.wait()
            self._client.write_only_while(self._lease.may_act)
            self._metrics.leading.set(1)
            cluster = self.planner.cluster
            _log.info("leading", jobs=len(cluster.jobs), claims=len(cluster.ledger))
            tasks.create_task(self.plan_writer.run())
            tasks.create_task(self._sweep())
            tasks.create_task(Issuer(self._client).run())
            tasks.create_task(self._reconciler.run())

    def now(self) -> Moment:
        """Return the present moment."""
        return self._reconciler.now()

    def wrong(self) -> str | None:
        """Return what keeps kfext from placing jobs, None if nothing does."""
        if not self._listed:
            return "jobs, pods and nodes are not listed yet"
        for name, informer in self._informers.items():
            if informer.last_event_age() > _STALE_SECONDS:
                return f"the watch of {name} has been silent for too long"
        return None

    def stuck(self) -> str | None:
        """Return why the process should be restarted, None while the loop turns."""
        if not self._lease.held.is_set():
            return None
        age = self._reconciler.since_tick()
        return f"the loop has not turned for {age:.0f} s" if age > _TICK_LIMIT_SECONDS else None

    def _healthy(self) -> bool:
        return self.wrong() is None and self.stuck() is None

    async def _list_people_kinds(self) -> None:
        """List what kopf watches: kopf does not say when its first list is complete."""
        for raw in await self._client.list_all(paths.policies()):
            self.planner.settings.observe_policy(parse_policy(raw))
        for kind in KINDS.values():
            async for raw in objects(self._client, paths.jobs(kind.plural)):
                self.planner.cluster.observe_job({"kind": kind.name, **raw})

    async def _sweep(self) -> None:
        """Forget deleted jobs and policies that kopf missed.

        It reports no deletion from before a new list.

        Look for an autoscaler too, which may come and go.
        """
        cluster, queue = self.planner.cluster, self.planner.queue
        while True:
            known = set(cluster.jobs)
            with suppress(ApiError):
                queue.observe_autoscaler(present=await has_autoscaler(self._client))
                present: set[str] = set()
                for kind in KINDS.values():
                    present |= await uids(self._client, paths.jobs(kind.plural))
                for uid in known - present:
                    cluster.forget_job(uid)
                    self.plan_writer.forget(uid)
                await self._sweep_policies()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _sweep_policies(self) -> None:
        settings = self.planner.settings
        known = {policy.name for policy in settings.policies()}
        present = {parse_policy(raw).name for raw in await self._client.list_all(paths.policies())}
        for name in known - present:
            settings.forget_policy(name)
        if known - present:
            self.planner.cluster.mark_queue()

    async def _stand_by(self) -> None:
        """Bound what is noted for the loop until it runs."""
        while not self._lease.held.is_set():
            await asyncio.sleep(_STAND_BY_SECONDS)
            self.planner.cluster.stand_by(self.now().monotonic)

    def _network(self, tracked: TrackedJob, plan: Plan | None) -> str:
        """Return the network that a job's pods have, or will have while there are none."""
        pods = self.planner.cluster.pods(tracked.job.uid)
        on_host = any(pod.on_host for pod in pods) if pods else plan is not None and plan.port > 0
        return HOST if on_host else POD

    def _show(self, tracked: TrackedJob, phase: str | None, verdict: Verdict | None) -> None:
        """Show a job's phase on its TrainingPlan, and a new reason to wait as an event."""
        if phase is None:
            return
        plan = tracked.assumed or tracked.plan
        planned = plan.nodes if plan else ()
        of_job = self.planner.settings.of_tracked(tracked)
        invalid = "; ".join(str(error) for error in of_job.settings.errors)
        status = status_of(
            tracked.job,
            phase=phase,
            verdict=verdict,
            # Pods that our webhook missed may be on other nodes than the plan's.
            nodes=self.planner.cluster.homes(tracked.job.uid) if phase == PLACED else planned,
            network=self._network(tracked, plan),
            asked=why_network(
                of_job.host_network,
                tracked.job,
                plan,
                tracked.state,
                self.planner.cluster.pods(tracked.job.uid),
            ),
            planned=plan.why if plan else "",
            invalid=invalid,
        )
        if phase == QUEUED and verdict and self.plan_writer.reason(tracked.job) != verdict.reason:
            _log.info(
                "waits",
                job=tracked.job.name,
                namespace=tracked.job.namespace,
                reason=verdict.reason,
                why=verdict.message,
            )
            self._events.record(
                reference(tracked.job),
                reason=verdict.reason,
                message=verdict.message,
                action="Wait",
            )
        self.plan_writer.show(tracked.job, status)

"""Shows the planner's decisions to people: as TrainingPlans and as events."""

from collections import Counter

import structlog

from kfext.controller.training_plan import Facts, largest_requests, status_of
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.core.elastic import allowed_range, fewest_workers, requested_workers, workers_of
from kfext.core.ledger.cards import as_written
from kfext.core.lifecycle.cards import edited_shares
from kfext.core.lifecycle.network import why_network
from kfext.core.lifecycle.steps import ChangeOfRunningJob, Resize, Step, event_of, plan_after
from kfext.core.progress.stall import stalled
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HOST, POD
from kfext.kube.events import EventRecorder
from kfext.model.plan import Plan
from kfext.model.verdict import Verdict
from kfext.names import FINISHED, PHASE_RELEASED, PLACED, PROGRESSING, QUEUED, REASON_HANDS_OFF
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.registry import CONDITIONS

_log = structlog.get_logger(__name__)

_HANDS_OFF = Verdict(REASON_HANDS_OFF, "kfext no longer handles it")


class JobDisplay:
    """Shows each job on its TrainingPlan, and as an event if a user should notice it."""

    def __init__(
        self, planner: Planner, plan_writer: TrainingPlanWriter, events: EventRecorder
    ) -> None:
        self._planner = planner
        self._plan_writer = plan_writer
        self._events = events

    def show(self, tracked: TrackedJob, phase: str | None, verdict: Verdict | None) -> None:
        """Show a job's phase, which is None for a job that kfext does not handle."""
        if phase is not None:
            self._show(tracked, phase, verdict)
        elif self._plan_writer.shows(tracked.job) and not self._awaits_release(tracked):
            # Otherwise the status from the time when kfext handled the job would stay.
            ended = tracked.job.finished or tracked.job.deleting
            self._show(tracked, *((FINISHED, verdict) if ended else (PHASE_RELEASED, _HANDS_OFF)))

    def show_progress(self, tracked: TrackedJob) -> None:
        """Show the progress that the log of a job reports."""
        progress, job = self._planner.progress, tracked.job
        before = self._plan_writer.progress(job)
        since = self._plan_writer.since(job, PROGRESSING)
        progress.silences.inherit(progress.followed(job.uid), before.moves, since=since)
        reported = progress.reported(job.uid)
        # The setting may have changed during the read.
        reads_log = self._planner.settings.settings_of(tracked).metrics.is_log
        if reported is not None and reads_log:
            self._plan_writer.show_progress(job, reported)
            if (verdict := stalled(reported.moves)) and not stalled(before.moves):
                self._events.record(job, verdict, action="Watch", warning=True)

    def show_companion(
        self, tracked: TrackedJob, type_: str, shown: ConditionStatus | None
    ) -> None:
        """Show a condition of the companion; record an event for a refusal."""
        self._plan_writer.show_companion(tracked.job, type_, shown)
        condition = CONDITIONS[type_]
        if shown is not None and shown.verdict.reason == condition.refused:
            self._events.record(tracked.job, shown.verdict, action=condition.action, warning=True)

    def record(self, tracked: TrackedJob, step: Step) -> None:
        """Add a written step to the history of a job, if the companion changed the job by it."""
        job, event = tracked.job, event_of(step)
        only_forgets = isinstance(step, Resize) and not step.sizes
        condition = "" if only_forgets else tracked.executor_condition
        changed = condition and isinstance(step, ChangeOfRunningJob)
        if changed and event and self._plan_writer.shows(job):
            plan, _ = plan_after(step)
            homes = () if job.suspend else tuple(self._planner.cluster.homes(job.uid))
            nodes, why = plan.nodes if plan else homes, event.verdict.message
            self._plan_writer.record(job, condition, why, nodes=nodes)

    def _show(self, tracked: TrackedJob, phase: str, verdict: Verdict | None) -> None:
        plan = tracked.assumed or tracked.plan
        settings = self._planner.settings.settings_of(tracked)
        facts = self._facts(tracked, phase, plan, settings)
        invalid = "; ".join(str(error) for error in settings.errors)
        status = status_of(
            tracked.job,
            phase=phase,
            verdict=verdict,
            ahead=self._planner.queue.ahead(tracked),
            nodes=tuple(facts.places),
            facts=facts,
            network=self._network(tracked, plan),
            network_reason=why_network(
                self._planner.settings.host_network(tracked),
                tracked.job,
                plan,
                tracked.state,
                self._planner.cluster.pods(tracked.job.uid),
            ),
            planned=plan.why if plan else "",
            invalid=invalid,
            edited=edited_shares(tracked.job, tracked.plan) if tracked.shares_gpus else "",
        )
        if phase == QUEUED and verdict and self._plan_writer.reason(tracked.job) != verdict.reason:
            _log.info(
                "waits",
                job=tracked.job.name,
                namespace=tracked.job.namespace,
                reason=verdict.reason,
                why=verdict.message,
            )
            self._events.record(tracked.job, verdict, action="Wait")
        self._plan_writer.show(tracked.job, status, keeping=tracked.changes_shown(settings))
        if not settings.metrics.is_log:
            self._plan_writer.show_progress(tracked.job, None)

    def _facts(
        self, tracked: TrackedJob, phase: str, plan: Plan | None, settings: Settings
    ) -> Facts:
        job, minimum, places = tracked.job, tracked.job.training_pods, Counter[str]()
        if phase == PLACED:
            # If the webhook did not see the pods, they may be on nodes that are not in the plan.
            places.update(self._planner.cluster.homes(job.uid))
        elif plan is not None:
            places.update(plan.assignment.values())
        if phase == QUEUED and settings.elastic is not None:
            minimum -= workers_of(job) - fewest_workers(job, allowed_range(job, settings))
        requested = job.training_pods + requested_workers(job, tracked.state) - workers_of(job)
        return Facts(
            dict(sorted(places.items())),
            largest_requests(as_written(job) if tracked.shares_gpus else job),
            minimum=minimum if minimum < job.training_pods else None,
            requested=requested if requested != job.training_pods else None,
        )

    def _network(self, tracked: TrackedJob, plan: Plan | None) -> str:
        """Return the network of a job's pods; before there are any, the network of its plan."""
        pods = self._planner.cluster.pods(tracked.job.uid)
        on_host = any(pod.on_host for pod in pods) if pods else plan is not None and plan.port > 0
        return HOST if on_host else POD

    def _awaits_release(self, tracked: TrackedJob) -> bool:
        """Return whether kfext is about to release a held job, or its pods from the gate."""
        pods = self._planner.cluster.pods(tracked.job.uid)
        return tracked.job.held or any(pod.behind_gate for pod in pods)

"""A job as the planner tracks it: the API server's object, and decisions not yet in it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kfext.core.elastic import scale_mode, with_workers
from kfext.core.lifecycle.capacity import NEVER_FITS
from kfext.core.lifecycle.situation import forming, queued_since
from kfext.core.lifecycle.steps import Step, Wait, plan_after
from kfext.core.settings.table import Settings
from kfext.core.settings.values import NEVER, OFF, Resize
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_state import CpuState
from kfext.model.gpu import Place
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan, shares_gpus
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.policy import Mode
from kfext.model.timestamps import past
from kfext.model.verdict import Verdict
from kfext.names import MOVED, QUEUED, REASON_WRITE_REFUSED, RESIZED, SCALED, STOPPED

_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 30.0
MAX_REFUSALS = 5
"""After this many refusals in a row that look final, a step is paused. With the back-off this is
half a minute, longer than a conflict lasts."""
REFUSED_SECONDS = 300.0
"""A paused step is tried again after this time."""
_LONGEST_ANSWER = 512


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that the API server refused.

    `count`: the number of refusals in a row.
    `message`: the last answer of the API server.
    `until`: when the step may be tried again, in monotonic seconds; 0.0 means at any time.
    """

    count: int
    message: str
    until: float = 0.0


@dataclass(slots=True)
class TrackedJob:
    """A job and the state that kfext tracks for it. Times are in monotonic seconds.

    `raw`: the JSON object that patches apply to.
    `assumed`: a plan that is being written to the job; it claims capacity until the answer comes.
    `assumed_workers`: the number of workers of that plan; None means the present number.
    `busy`: whether a step is being written.
    `executor_condition`: the condition of the executor that decided on the step, or empty.
    `not_before`: when a failed step may be tried again.
    `step`: the name of the step that was last written.
    `refusals`: the refusals that look final, by the name of the step.
    `unclaimed`: whether the plan claims no capacity at all, because it cannot be carried out now.
    `phase`, `verdict`: the last decision; the phase of a job that kfext ignores is None.
    `not_started_reason`: the reason of the verdict, or the reason why it waits for new nodes.
    `progressed_at`: when the job last made progress.
    `unbound_since`: when each pod was first seen without a node, by its uid and if it is gated.
    `unreserved_since`: when each slot was first seen without a reserved GPU.
    `settled_at`: when the set of pods last changed.
    `never_fits_since`: when it was first found not to fit even the empty cluster, or None.
    `gated`: whether a pod is gated.
    `succeeded`: the replicas with a succeeded pod that was deleted while the job ran.
    `lapsed`: whether the plan claims no capacity any more for pods that kfext cannot stop.
    `enlarged_at`: when an edit last made the job larger, in epoch seconds; 0.0 means never.
    `turns_used`: the number of turns at the reservation that a queued job counts as used; jobs
        with fewer turns come first. None means that it is not queued.
    `draining`: whether the job has pods on a node that is being drained.
    `last_rescue`: its strikes when donors were last scaled down for it, and that epoch time.
    """

    raw: Mapping[str, Any]
    job: TrainingJob
    plan: Plan | None
    state: JobState
    assumed: Plan | None = None
    assumed_workers: int | None = None
    busy: bool = False
    executor_condition: str = ""
    not_before: float = 0.0
    step: str = ""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    unclaimed: bool = False
    phase: str | None = None
    verdict: Verdict | None = None
    not_started_reason: str = ""
    progressed_at: float = 0.0
    unbound_since: dict[tuple[str, bool], float] = field(default_factory=dict)
    unreserved_since: dict[Place, float] = field(default_factory=dict)
    settled_at: float = 0.0
    never_fits_since: float | None = None
    gated: bool = False
    succeeded: set[ReplicaKey] = field(default_factory=set)
    lapsed: bool = False
    enlarged_at: float = 0.0
    turns_used: int | None = None
    draining: bool = False
    last_rescue: tuple[int, float] = (0, 0.0)
    _failures: int = 0
    _phase_since: float = 0.0
    _marker: tuple[object, ...] | None = None

    @property
    def waiting(self) -> bool:
        """Whether the job waits for capacity: in the queue, or with gated pods."""
        queued = self.job.suspend and self.job.held
        return (queued or self.gated) and not self.job.finished

    @property
    def forming(self) -> bool:
        """Whether kfext has started the job and its gang has not been complete since."""
        return forming(self.job, self.plan, self.state)

    @property
    def shares_gpus(self) -> bool:
        """Whether GPU sharing concerns the job."""
        return shares_gpus(self.job, self.plan)

    @property
    def job_after_step(self) -> TrainingJob:
        """The job as it will be after the step that is being written."""
        if self.assumed is None:
            return self.job
        job = replace(self.job, suspend=False)
        return job if self.assumed_workers is None else with_workers(job, self.assumed_workers)

    @property
    def queued(self) -> bool:
        """Whether the job is in the queue; a job that just started keeps its phase for a while."""
        return self.phase == QUEUED and self.job.suspend

    def changes_shown(self, settings: Settings) -> frozenset[str]:
        """Return the condition types (Scaled, Moved, …) that the job's TrainingPlan shows.

        The job opted in to such a change, or kfext has made a change that it may have to revert.
        """
        job, state = self.job, self.state
        if job.finished or job.deleting or job.released:
            return frozenset()
        shown = {
            SCALED: bool(state.requested or state.scale.cause or state.scale.disabled),
            MOVED: bool(state.move.source),
            STOPPED: self.stopped or self.draining,
            RESIZED: state.cpu != CpuState(),
        }
        if self.phase is not None:
            shown[SCALED] |= scale_mode(settings) is not Mode.OFF
            shown[MOVED] |= settings.migrate != NEVER and _on(settings, "migrate")
            shown[STOPPED] |= settings.preempt != OFF and _on(settings, "preempt")
            shown[STOPPED] |= settings.restarts_stalled
            shown[RESIZED] |= settings.resize is not Resize.OFF and _on(settings, "resize", "shift")
        shown[RESIZED] &= not job.suspend
        return frozenset(type_ for type_, is_shown in shown.items() if is_shown)

    def queued_seconds(self, now: float) -> float:
        """Return the seconds that the job has been in the queue at its present size.

        `now`: in epoch seconds. A job without a credible stored time counts as long queued.
        """
        enlarged = past(self.enlarged_at, now=now)
        return now - max(queued_since(self.job, self.state, now=now), enlarged)

    @property
    def stopped(self) -> bool:
        """Whether kfext has stopped the job, for another job or because of a drained node."""
        suspended = self.job.suspend and self.state.stopped_for_others
        return bool(self.state.stop.waiting) or suspended

    @property
    def settled(self) -> bool:
        """Whether the last decision holds: no step is being written or waits for a retry."""
        return not (self.busy or self.not_before)

    @property
    def failing(self) -> bool:
        """Whether the last write failed."""
        return self._failures > 0

    def update(
        self, raw: Mapping[str, Any], job: TrainingJob, plan: Plan | None, state: JobState
    ) -> None:
        """Record a newer version of the job: a failed step may be tried again at once.

        A paused step may be tried again only if a field that its patch tests has changed.
        """
        if _tested_fields(self.job, self.plan) != _tested_fields(job, plan):
            self.refusals.clear()
        self.raw, self.job, self.plan, self.state = raw, job, plan, state
        self.not_before = 0.0
        if job.suspend:
            self.succeeded.clear()  # all pods will be replaced

    def observe_progress(self, marker: tuple[object, ...], *, at: float) -> None:
        """Restart the clock of the present step if the marker differs, as after progress."""
        if marker != self._marker:
            self._marker, self.progressed_at = marker, at

    def observe_unbound(self, pods: Iterable[Pod], *, at: float) -> None:
        """Record when each pod was first seen without a node."""
        waiting = (pod for pod in pods if not (pod.node_name or pod.deleting or pod.finished))
        keys = ((pod.uid, pod.gated) for pod in waiting)
        self.unbound_since = {key: self.unbound_since.get(key, at) for key in keys}

    def observe_unreserved(self, places: Iterable[Place], *, at: float) -> None:
        """Record when each slot was first seen without a reserved GPU."""
        self.unreserved_since = {place: self.unreserved_since.get(place, at) for place in places}

    def decide(self, step: Step, *, at: float) -> tuple[str, float] | None:
        """Record a decision; return the phase that ended with its length in seconds, or None."""
        self.never_fits_since = self._never_fits_since(step, at=at)
        if not isinstance(step, Wait):
            self.busy, self.unclaimed, self.step = True, False, type(step).__name__
            self.assumed, self.assumed_workers = plan_after(step)
            return None
        ended = None
        if step.phase != self.phase:
            if self.phase is not None:
                ended = (self.phase, at - self._phase_since)
            self._phase_since = at
        self.phase, self.verdict = step.phase, step.verdict
        reason = step.verdict.reason if step.verdict else ""
        self.not_started_reason = step.not_started_reason or reason
        self.unclaimed = reason == REASON_WRITE_REFUSED
        return ended

    def _never_fits_since(self, step: Step, *, at: float) -> float | None:
        if not isinstance(step, Wait) or step.verdict is None:
            return None
        if step.verdict.reason not in NEVER_FITS:
            return None
        return at if self.never_fits_since is None else self.never_fits_since

    def end_step(self) -> None:
        """Record that the step was written or abandoned."""
        self.assumed, self.assumed_workers = None, None
        self.busy, self.executor_condition = False, ""

    def write_accepted(self) -> None:
        """Record that a write was accepted."""
        self._failures = 0
        self.refusals.pop(self.step, None)

    def write_refused(self, message: str, *, at: float) -> None:
        """Record that the API server refused the step and would refuse it again."""
        last = self.refusals.get(self.step)
        count = min((last.count if last else 0) + 1, MAX_REFUSALS)
        self.unclaimed = count == MAX_REFUSALS
        until = at + REFUSED_SECONDS if self.unclaimed else 0.0
        self.refusals[self.step] = Refusal(count, message[:_LONGEST_ANSWER], until)

    def write_failed(self, *, at: float) -> float:
        """Record that a write has failed; return the seconds until the next attempt."""
        self._failures += 1
        pause = exponential_backoff(
            self._failures, first=_RETRY_SECONDS, longest=_LONGEST_RETRY_SECONDS
        )
        self.not_before = at + pause
        return pause


def _on(settings: Settings, *policies: str) -> bool:
    """Return whether the administrator lets any of these policies handle a job that opted in."""
    return any(settings.choice(name, Mode.ACT).mode is not Mode.OFF for name in policies)


class Failures:
    """The errors of kfext since the last call of `take`, each with its job."""

    def __init__(self) -> None:
        self._errors: list[tuple[TrackedJob, Exception]] = []

    @contextmanager
    def collect_errors_of(self, tracked: TrackedJob) -> Iterator[None]:
        """Collect an error of the block about a job, so that other jobs are not affected."""
        try:
            yield
        except Exception as error:
            self._errors.append((tracked, error))

    def take(self) -> list[tuple[TrackedJob, Exception]]:
        """Return the errors, and forget them."""
        errors, self._errors = self._errors, []
        return errors


def _tested_fields(job: TrainingJob, plan: Plan | None) -> tuple[object, ...]:
    """Return the fields of a job that patches test; see `TrackedJob.update`."""
    sizes = tuple(group.replicas for group in job.groups)
    return job.suspend, job.held, job.released, sizes, plan.generation if plan else 0

"""What is seen of the jobs of a round, what the demo claims of it, and whether a run shows it."""

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple, Self

from e2e.testbed.api import Api, ApiError
from e2e.testbed.progress import Advance, bar

Object = dict[str, Any]
_LOOK_SECONDS = 0.5
_STEP = re.compile(r"^step=(\d+) loss=(\S+)", re.MULTILINE)
_TAIL_LINES = 3


@dataclass(frozen=True, slots=True)
class PodRun:
    """One pod: its node, empty if it was never bound, and its times as seconds since the epoch.

    `started` is unset while its container has not run, `trains` while its job has done no step.
    `ended` is the last time at which the pod was seen, or the end of its container.
    """

    job: str
    replica: str
    node: str
    created: float
    started: float | None
    ended: float
    trains: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is watched: the pod that logs its steps, and how many steps it is to do."""

    name: str
    first_pod: str
    steps: int


@dataclass(slots=True)
class Recorder:
    """Watches the pods and the steps of some jobs in the background, and moves their bars.

    A pod that is deleted is remembered as it was last seen.
    """

    api: Api
    namespace: str
    jobs: Sequence[Job]
    _pods: dict[str, PodRun] = field(default_factory=dict)
    _first_step: dict[str, float] = field(default_factory=dict)
    _steps: dict[str, int] = field(default_factory=dict)
    _bars: dict[str, Advance] = field(default_factory=dict)
    _shown: ExitStack = field(default_factory=ExitStack)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        for job in self.jobs:
            title = f"{self.namespace}/{job.name}"
            self._bars[job.name] = self._shown.enter_context(bar(title, job.steps))
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread:
            self._thread.join()
        self._look()
        self._shown.close()

    def pods(self) -> tuple[PodRun, ...]:
        """Return every pod that was seen, also if it is gone, by job and replica."""
        found = [
            replace(run, trains=self._first_step.get(run.job)) for run in list(self._pods.values())
        ]
        return tuple(sorted(found, key=lambda run: (run.job, run.replica, run.created)))

    def steps(self, job: str) -> int:
        """Return the last step that a job has printed."""
        return self._steps.get(job, 0)

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        now = datetime.now(UTC).timestamp()
        names = {job.name for job in self.jobs}
        for pod in self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]:
            if (run := pod_run(pod, now)).job in names:
                self._pods[pod["metadata"]["uid"]] = run
        for job in self.jobs:
            self._read(job, now)

    def _read(self, job: Job, now: float) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{job.first_pod}/log"
        try:
            log = self.api.get(f"{path}?tailLines={_TAIL_LINES}")
        except ApiError:
            return  # the container has not started yet
        for number, loss in _STEP.findall(log if isinstance(log, str) else ""):
            self._first_step.setdefault(job.name, now)
            self._steps[job.name] = int(number)
            self._bars[job.name](int(number), f"steps, loss {loss}")


def pod_run(pod: Object, now: float) -> PodRun:
    """Return a pod as it is `now`, in seconds since the epoch."""
    labels = pod["metadata"]["labels"]
    replica = "training.kubeflow.org/replica-"
    states = [
        status["state"]
        for status in pod["status"].get("containerStatuses", [])
        if "state" in status
    ]
    ran = [state[key] for state in states for key in ("running", "terminated") if key in state]
    started = [_seconds(state["startedAt"]) for state in ran if state.get("startedAt")]
    ended = [_seconds(state["finishedAt"]) for state in ran if state.get("finishedAt")]
    return PodRun(
        job=labels["training.kubeflow.org/job-name"],
        replica=f"{labels[f'{replica}type']}-{labels[f'{replica}index']}",
        node=pod["spec"].get("nodeName", ""),
        created=_seconds(pod["metadata"]["creationTimestamp"]),
        started=min(started, default=None),
        ended=max(ended, default=now),
    )


def by_node(pods: Iterable[PodRun]) -> dict[str, list[PodRun]]:
    """Return the pods of each node, as they came, by its name; pods without a node come last."""
    found: dict[str, list[PodRun]] = {}
    for run in sorted(pods, key=lambda run: (not run.node, run.node, run.created)):
        found.setdefault(run.node, []).append(run)
    return found


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


@dataclass(frozen=True, slots=True)
class Round:
    """The same jobs, once: who placed them, from when on, the pods, and the steps done by job.

    `step_ms`: the median milliseconds of a step of each job that has done one.
    """

    placed_by: str
    began: float
    pods: tuple[PodRun, ...]
    steps: dict[str, int]
    step_ms: dict[str, float]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence with its figures, and whether it holds in this run."""

    said: str
    holds: bool


def faster(job: str, *, plain: Sequence[Round], kfext: Round) -> Claim:
    """Claim that kfext is ahead by more than the runs of plain Kubernetes differ."""
    times = [once.step_ms[job] for once in plain]
    usual, time = mean(times), kfext.step_ms[job]
    saved, noise = 1 - time / usual, (max(times) - min(times)) / usual
    written = " and ".join(f"{time:.0f}" for time in times)
    said = (
        f"{job}, {kfext.placed_by}: {time:.0f} ms a step against {written} under plain Kubernetes "
        f"({-saved:+.0%}; the two differ by {noise:.0%})"
    )
    return Claim(said, holds=saved > noise)


def half_gangs(plain: Round, *, seconds: float) -> Claim:
    """Claim that under plain Kubernetes each job holds room that the others lack."""
    parts, stuck = [], True
    for job, steps in plain.steps.items():
        pods = [run for run in plain.pods if run.job == job]
        bound = sum(run.node != "" for run in pods)
        parts.append(f"{bound} of {len(pods)} pods of {job} have a node, {steps} steps are done")
        stuck &= 0 < bound < len(pods) and steps == 0
    return Claim(f"{plain.placed_by}, after {seconds:.0f} s: {'; '.join(parts)}", holds=stuck)


def one_after_the_other(kfext: Round) -> Claim:
    """Claim that under kfext all jobs end, and that no pod runs before the job ahead has ended."""
    spans = sorted(_span(kfext, job) for job in kfext.steps)
    in_turn = all(ahead.end <= behind.begin for ahead, behind in pairwise(spans))
    order = ", then ".join(span.job for span in spans)
    said = f"{kfext.placed_by}: {order}; {len(kfext.ended)} of {len(spans)} jobs have ended"
    return Claim(said, holds=in_turn and set(kfext.ended) == kfext.steps.keys())


def on_one_node(job: str, nodes: Mapping[str, Sequence[str]]) -> Claim:
    """Claim that kfext put the pods of a TrainJob on one node; `nodes`: of its pods, by the way."""
    *_, by_kfext = nodes.values()
    said = "; ".join(f"{way}: {', '.join(found)}" for way, found in nodes.items())
    return Claim(f"TrainJob {job}, its pods: {said}", holds=len(set(by_kfext)) == 1)


class _Span(NamedTuple):
    begin: float
    end: float
    job: str


def _span(once: Round, job: str) -> _Span:
    """Return when the first container of a job began and its last ended."""
    pods = [run for run in once.pods if run.job == job]
    begins = [run.ended if run.started is None else run.started for run in pods]
    return _Span(min(begins, default=0.0), max((run.ended for run in pods), default=0.0), job)

"""What is seen of the jobs of a round, what the demo claims of it, and whether a run shows it.

A claim is of what no busy machine changes: places, bytes, order, ends. Speed is a figure.
"""

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple, Self

import urllib3

from e2e.testbed.api import Api, ApiError
from e2e.testbed.progress import Advance, bar

Object = dict[str, Any]
_LOOK_SECONDS = 0.5
_STEP = re.compile(r"^step=(\d+)\S* loss=(\S+)", re.MULTILINE)
_TAIL_LINES = 3
_LAST_LOOKS = 20
_SILENT = (ApiError, urllib3.exceptions.HTTPError)
_LITTLE = 0.1
"""What kfext may leave on the link, as a part of what plain Kubernetes sends over it."""


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
        self._shown.close()
        self._look_last()

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
            with suppress(*_SILENT):  # a busy API server answers the next time
                self._look()

    def _look_last(self) -> None:
        """Look once more: what is claimed of the jobs is what this look sees."""
        for _ in range(_LAST_LOOKS):
            with suppress(*_SILENT):
                self._look()
                return
            time.sleep(_LOOK_SECONDS)
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

    `step_ms`: the median milliseconds of a step of each job that has done one. `ended`: the jobs
    that have succeeded. `wire`: the bytes that passed between the nodes meanwhile.
    """

    placed_by: str
    began: float
    pods: tuple[PodRun, ...]
    steps: dict[str, int]
    step_ms: dict[str, float]
    ended: tuple[str, ...]
    wire: float = 0.0

    def nodes(self, job: str) -> set[str]:
        """Return the nodes of a job's pods."""
        return {run.node for run in self.pods if run.job == job and run.node}


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence with its figures, and whether it holds in this run."""

    said: str
    holds: bool


def together(kfext: Sequence[Round]) -> Claim:
    """Claim that kfext put all pods of each job on one node, and that each job has ended."""
    jobs = [(once, job) for once in kfext for job in once.steps]
    on_one = sum(len(once.nodes(job)) == 1 for once, job in jobs)
    over = sum(job in once.ended for once, job in jobs)
    said = f"kfext: {on_one} of {len(jobs)} jobs had all pods on one node, {over} have succeeded"
    return Claim(said, holds=on_one == over == len(jobs))


def off_the_link(*, plain: Sequence[Round], kfext: Sequence[Round]) -> Claim:
    """Claim that under kfext the nodes send each other a tenth of the bytes, or less.

    Where plain Kubernetes happens to keep each job on one node, there is nothing to save.
    """
    usual, sent = (mean(once.wire for once in rounds) / 1e6 for rounds in (plain, kfext))
    apart = any(len(once.nodes(job)) > 1 for once in plain for job in once.steps)
    said = f"kfext: {sent:.0f} MB a round between the nodes; plain Kubernetes: {usual:.0f} MB"
    return Claim(said, holds=sent <= _LITTLE * usual or not apart)


def one_after_the_other(kfext: Round, *, pods: int) -> Claim:
    """Claim that under kfext each gang runs with all its pods and ends, and then the next gang."""
    spans = sorted(_span(kfext, job) for job in kfext.steps)
    whole = {
        span.job: sum(run.started is not None for run in kfext.pods if run.job == span.job)
        for span in spans
    }
    in_turn = all(ahead.end <= behind.begin for ahead, behind in pairwise(spans))
    order = ", then ".join(f"{job} with {ran} of {pods} pods" for job, ran in whole.items())
    said = f"{kfext.placed_by}: {order}; {len(kfext.ended)} of {len(spans)} gangs have succeeded"
    all_ran = all(ran == pods for ran in whole.values())
    return Claim(said, holds=in_turn and all_ran and set(kfext.ended) == kfext.steps.keys())


def on_one_node(job: str, nodes: Mapping[str, Sequence[str]]) -> Claim:
    """Claim that kfext put the pods of a TrainJob on one node; `nodes`: of its pods, by the way.

    A job that has not succeeded has no nodes here.
    """
    *_, by_kfext = nodes.values()
    said = "; ".join(f"{way}: {', '.join(found) or 'failed'}" for way, found in nodes.items())
    return Claim(f"TrainJob {job}, its pods: {said}", holds=len(set(by_kfext)) == 1)


def half_gangs(plain: Round, *, pods: int, seconds: float) -> str:
    """Say which part of each gang plain Kubernetes has started."""
    parts = []
    for job, steps in plain.steps.items():
        bound = sum(run.node != "" for run in plain.pods if run.job == job)
        parts.append(f"{bound} of {pods} pods of {job} have a node, {steps} steps are done")
    return f"{plain.placed_by}, after {seconds:.0f} s: {'; '.join(parts)}"


TOO_BUSY = "too busy to tell"


def change(plain: Sequence[float], kfext: Sequence[float]) -> str:
    """Return by how much the mean of some times differs from plain Kubernetes, such as "-45%".

    It is too busy to tell where times of the same way differ by as much.
    """
    if not plain or not kfext:
        return "no step"
    by = mean(kfext) / mean(plain) - 1
    return f"{by:+.0%}" if abs(by) > max(spread(plain), spread(kfext)) else TOO_BUSY


def spread(times: Sequence[float]) -> float:
    """Return by how much times of the same way differ, as a part of their mean (A/A)."""
    return (max(times) - min(times)) / mean(times)


def speed(job: str, *, plain: Sequence[Round], kfext: Sequence[Round]) -> str:
    """Say how long a step of a job was in each round, and what that tells."""
    usual, times = times_of(job, plain), times_of(job, kfext)
    written = " and ".join(f"{time:.0f}" for time in usual)
    by_kfext = " and ".join(f"{time:.0f}" for time in times)
    noise = " and ".join(f"{spread(same):.0%}" for same in (usual, times) if len(same) > 1)
    return (
        f"{job}, {kfext[0].placed_by}: {by_kfext} ms a step against {written} under plain "
        f"Kubernetes: {change(usual, times)} (A/A {noise or 'unknown'})"
    )


def times_of(job: str, rounds: Sequence[Round]) -> list[float]:
    """Return the milliseconds of a step in each round in which a job did one."""
    return [once.step_ms[job] for once in rounds if job in once.step_ms]


class _Span(NamedTuple):
    begin: float
    end: float
    job: str


def _span(once: Round, job: str) -> _Span:
    """Return when the first container of a job began and its last ended."""
    pods = [run for run in once.pods if run.job == job]
    begins = [run.ended if run.started is None else run.started for run in pods]
    return _Span(min(begins, default=0.0), max((run.ended for run in pods), default=0.0), job)

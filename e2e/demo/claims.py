"""Records what the jobs of a round do, and judges the claims of the demo from these records.

Claims are about facts that a busy machine does not change: nodes, bytes, order and ends. Speed is
only reported, as a figure.
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
_POLL_SECONDS = 0.5
_STEP = re.compile(r"^step=(\d+)\S* loss=(\S+)", re.MULTILINE)
_TAIL_LINES = 3
_LAST_TRIES = 20
_NO_ANSWER = (ApiError, urllib3.exceptions.HTTPError)
_MAX_TRAFFIC = 0.1
"""The fraction of plain Kubernetes' traffic that kfext may leave on the link."""


@dataclass(frozen=True, slots=True)
class PodRun:
    """One pod. `node`: empty if it was never bound. Times are in seconds since the epoch.

    `started`: the start of its container. `trains`: the first step of its job. None
        means that it has not happened.
    `ended`: the end of its container, or the time at which the pod was last seen.
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
    """A watched job: the pod that logs its steps, and the number of its steps."""

    name: str
    first_pod: str
    steps: int


@dataclass(slots=True)
class Recorder:
    """Polls the pods and steps of jobs in the background, and advances their progress bars.

    It keeps the last state of deleted pods.
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
        self._poll_last()

    def pods(self) -> tuple[PodRun, ...]:
        """Return all pods that were seen, deleted pods included, sorted by job and replica."""
        pods = [
            replace(run, trains=self._first_step.get(run.job)) for run in list(self._pods.values())
        ]
        return tuple(sorted(pods, key=lambda run: (run.job, run.replica, run.created)))

    def steps(self, job: str) -> int:
        """Return the last step that a job has logged."""
        return self._steps.get(job, 0)

    def _watch(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            with suppress(*_NO_ANSWER):  # a busy API server will answer the next poll
                self._poll()

    def _poll_last(self) -> None:
        """Poll once more, even if this takes several tries: this state decides about the claims."""
        for _ in range(_LAST_TRIES):
            with suppress(*_NO_ANSWER):
                self._poll()
                return
            time.sleep(_POLL_SECONDS)
        self._poll()

    def _poll(self) -> None:
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
    """Return the record of a pod that exists at the time `now`, in seconds since the epoch."""
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
    """Return the pods by node, in order of creation; pods without a node are last."""
    runs: dict[str, list[PodRun]] = {}
    for run in sorted(pods, key=lambda run: (not run.node, run.node, run.created)):
        runs.setdefault(run.node, []).append(run)
    return runs


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


@dataclass(frozen=True, slots=True)
class Round:
    """A run of the jobs of an act in one way. `placed_by`: the title of the way.

    `steps`: the last step of each job. `step_ms`: the median step time of each job with steps, in
    milliseconds. `ended`: the jobs that succeeded. `wire`: the bytes sent between the nodes.
    """

    placed_by: str
    began: float
    pods: tuple[PodRun, ...]
    steps: dict[str, int]
    step_ms: dict[str, float]
    ended: tuple[str, ...]
    wire: float = 0.0

    def nodes(self, job: str) -> set[str]:
        return {run.node for run in self.pods if run.job == job and run.node}


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence with numbers, and whether it holds in this run."""

    text: str
    holds: bool


def together(kfext: Sequence[Round]) -> Claim:
    """Claim that kfext put all pods of each job on one node, and that each job succeeded."""
    jobs = [(result, job) for result in kfext for job in result.steps]
    on_one = sum(len(result.nodes(job)) == 1 for result, job in jobs)
    ended = sum(job in result.ended for result, job in jobs)
    text = f"kfext: {on_one} of {len(jobs)} jobs had all pods on one node, {ended} have succeeded"
    return Claim(text, holds=on_one == ended == len(jobs))


def off_the_link(*, plain: Sequence[Round], kfext: Sequence[Round]) -> Claim:
    """Claim that under kfext the nodes send each other at most a tenth of the bytes.

    The claim also holds if plain Kubernetes happened to put each job on one node.
    """
    usual, sent = (mean(result.wire for result in rounds) / 1e6 for rounds in (plain, kfext))
    spread_out = any(len(result.nodes(job)) > 1 for result in plain for job in result.steps)
    text = f"kfext: {sent:.0f} MB a round between the nodes; plain Kubernetes: {usual:.0f} MB"
    return Claim(text, holds=sent <= _MAX_TRAFFIC * usual or not spread_out)


def one_after_the_other(kfext: Round, *, pods: int) -> Claim:
    """Claim that under kfext each gang runs with all its pods and ends before the next starts."""
    spans = sorted(_span(kfext, job) for job in kfext.steps)
    pods_run = {
        span.job: sum(run.started is not None for run in kfext.pods if run.job == span.job)
        for span in spans
    }
    in_turn = all(ahead.end <= behind.begin for ahead, behind in pairwise(spans))
    order = ", then ".join(f"{job} with {ran} of {pods} pods" for job, ran in pods_run.items())
    text = f"{kfext.placed_by}: {order}; {len(kfext.ended)} of {len(spans)} gangs have succeeded"
    all_ran = all(ran == pods for ran in pods_run.values())
    return Claim(text, holds=in_turn and all_ran and set(kfext.ended) == kfext.steps.keys())


def on_one_node(job: str, nodes: Mapping[str, Sequence[str]]) -> Claim:
    """Claim that kfext put the pods of a TrainJob on one node.

    `nodes`: the nodes of its pods, by title of the way; empty if the job did not succeed.
    """
    *_, by_kfext = nodes.values()
    text = "; ".join(f"{way}: {', '.join(names) or 'failed'}" for way, names in nodes.items())
    return Claim(f"TrainJob {job}, its pods: {text}", holds=len(set(by_kfext)) == 1)


def half_gangs(plain: Round, *, pods: int, seconds: float) -> str:
    """Return a text with the bound pods and the steps of each gang under plain Kubernetes."""
    parts = []
    for job, steps in plain.steps.items():
        bound = sum(run.node != "" for run in plain.pods if run.job == job)
        parts.append(f"{bound} of {pods} pods of {job} have a node, {steps} steps are done")
    return f"{plain.placed_by}, after {seconds:.0f} s: {'; '.join(parts)}"


TOO_BUSY = "too busy to tell"


def change(plain: Sequence[float], kfext: Sequence[float]) -> str:
    """Return how much the mean time differs from plain Kubernetes, such as "-45%".

    Returns TOO_BUSY if the times of one way differ among themselves by as much.
    """
    if not plain or not kfext:
        return "no step"
    difference = mean(kfext) / mean(plain) - 1
    return f"{difference:+.0%}" if abs(difference) > max(spread(plain), spread(kfext)) else TOO_BUSY


def spread(times: Sequence[float]) -> float:
    """Return the range of the times of one way, as a fraction of their mean (A/A)."""
    return (max(times) - min(times)) / mean(times)


def speed(job: str, *, plain: Sequence[Round], kfext: Sequence[Round]) -> str:
    """Return a text with the step times of a job in both ways, and their difference."""
    usual, times = times_of(job, plain), times_of(job, kfext)
    written = " and ".join(f"{time:.0f}" for time in usual)
    by_kfext = " and ".join(f"{time:.0f}" for time in times)
    noise = " and ".join(f"{spread(same):.0%}" for same in (usual, times) if len(same) > 1)
    return (
        f"{job}, {kfext[0].placed_by}: {by_kfext} ms a step against {written} under plain "
        f"Kubernetes: {change(usual, times)} (A/A {noise or 'unknown'})"
    )


def times_of(job: str, rounds: Sequence[Round]) -> list[float]:
    """Return the step times of a job, in milliseconds, of the rounds in which it made a step."""
    return [result.step_ms[job] for result in rounds if job in result.step_ms]


class _Span(NamedTuple):
    begin: float
    end: float
    job: str


def _span(result: Round, job: str) -> _Span:
    """Return the time from the start of a job's first container to the end of its last."""
    pods = [run for run in result.pods if run.job == job]
    begins = [run.ended if run.started is None else run.started for run in pods]
    return _Span(min(begins, default=0.0), max((run.ended for run in pods), default=0.0), job)

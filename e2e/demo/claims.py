"""What the demo claims, and whether a run bears it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from e2e.demo.record import PodRun


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
    written = " and ".join(f"{one:.0f}" for one in times)
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


class _Span(NamedTuple):
    begin: float
    end: float
    job: str


def _span(once: Round, job: str) -> _Span:
    """Return when the first container of a job began and its last ended."""
    pods = [run for run in once.pods if run.job == job]
    begins = [run.ended if run.started is None else run.started for run in pods]
    return _Span(min(begins, default=0.0), max((run.ended for run in pods), default=0.0), job)

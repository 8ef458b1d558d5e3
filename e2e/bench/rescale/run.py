"""The benchmark: every case in turn; stored runs are not repeated.

In a case the job fills the nodes, the gang arrives and ends, and the job ends.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import urllib3

from e2e.bench.companion.arms import DECIDES
from e2e.bench.companion.site import Pods, Site, four_nodes
from e2e.bench.rescale.cases import (
    CASES,
    GANG,
    GANG_KIND,
    PACE,
    QUICK_CASES,
    QUICK_PACE,
    UNDISTURBED,
    Case,
    Pace,
    gang,
)
from e2e.bench.rescale.parts import NotSeenError, is_bound, is_whole, story
from e2e.bench.rescale.tables import bought_table, guard_table, pause_table, work_table
from e2e.bench.rescale.watch import Sample, Watch
from e2e.bench.store import Interleaved, SpoiledError, Store, first_unspoiled
from e2e.harness.jobs import jobs_path
from e2e.harness.journal import redone, resumes
from e2e.harness.training import policy
from e2e.testbed import paths
from e2e.testbed.api import ApiError
from e2e.testbed.progress import say, step

Object = dict[str, Any]
_PATIENCE_SECONDS = 600.0
"""The wait for the next event: a job that did not answer a checkpoint request is ineligible for
300 s."""
_UNANSWERED = (ApiError, urllib3.exceptions.HTTPError)
"""One request of the ten thousand of a benchmark may fail."""
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("cases", "parts", "watch", "run")),
    paths.REPOSITORY / "e2e/harness/elastic_jobs.py",
    _HERE.parent / "companion" / "site.py",
    *(paths.REPOSITORY / "e2e/jobs" / f"{name}.py" for name in ("elastic_ddp", "elastic_ps")),
)
_MINUTES = {True: 7.0, False: 6.0}
"""The duration of a run, by whether the gang arrives."""
_QUICK = 0.5
"""The duration of a quick run, as a part of it."""


@dataclass(slots=True)
class _Run:
    """A run in progress."""

    pods: Pods
    case: Case
    pace: Pace
    watch: Watch

    def gang_comes_and_goes(self) -> tuple[float, float]:
        """Return the times of the gang's arrival and end, once the job has grown back."""
        watch = self.watch
        watch.rest(self.pace.quiet)
        came = watch.now()
        self.create(GANG_KIND, gang(self.pace))
        self.until(is_bound, "the gang is bound")
        say(f"    {watch.now():4.0f} s: the gang is bound after {watch.now() - came:.0f} s")
        self.until(
            lambda sample: is_bound(sample) and all(pod.runs for pod in sample.gang),
            "the gang runs",
        )
        self.until(
            lambda sample: not any(pod.runs for pod in sample.gang), "the gang's pods have ended"
        )
        went = watch.now()  # their capacity is free now, and a TFJob may grow within a second
        self.until(lambda _: watch.gang_has_ended(), "the gang has trained")
        self.pods.bed.api.delete(jobs_path(self.pods.namespace, GANG_KIND, GANG))
        self.until(lambda sample: not sample.gang, "the gang is gone")
        self.until(self.trains, "the job has grown back")
        say(f"    {watch.now():4.0f} s: the job has grown back after {watch.now() - went:.0f} s")
        return came, went

    def trains(self, sample: Sample) -> bool:
        """Return whether the whole job trains; raise SpoiledError if it has ended."""
        if sample.ended:
            raise SpoiledError("the job ended before it had all of its workers")
        world = resumes(self.watch.lines)[-1].world if resumes(self.watch.lines) else 0
        whole = is_whole(sample) and len(sample.workers) == self.case.pods
        return whole and sample.steps and world in {0, self.case.pods}

    def until(self, condition: Any, what: str) -> None:
        """Wait for the next event."""
        self.watch.until(condition, what=what, seconds=_PATIENCE_SECONDS)

    def create(self, kind: str, body: Object) -> None:
        self.pods.bed.api.create(jobs_path(self.pods.namespace, kind), body)


def run(pods: Pods, case: Case, pace: Pace) -> Object:
    """Return the result of a run as JSON; raise SpoiledError if it does not count."""
    folder = pods.bed.folder / "checkpoints" / pods.namespace
    try:
        with policy(pods.bed, pods.namespace, companion={"scale": _scale(pace)}):
            rescale = _Run(pods, case, pace, Watch(pods, case.kind, folder))
            rescale.create(case.kind, case.manifest(pace, folder))
            rescale.until(rescale.trains, "the whole job trains")
            times = rescale.gang_comes_and_goes() if case.disturbed else None
            rescale.until(lambda seen: seen.ended, "the job has ended")
            rescale.watch.look()
            return _measured(rescale.watch, times)
    except (NotSeenError, *_UNANSWERED) as error:
        raise SpoiledError(str(error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _scale(pace: Pace) -> Object:
    return {"mode": "act", "parameters": dict(pace.parameters)}


def _measured(watch: Watch, times: tuple[float, float] | None) -> Object:
    lines = watch.lines
    measured: Object = {
        "loss": json.loads(lines[-1])["loss"],
        "redone": redone(lines),
        "lost": sum(not start.kept for start in resumes(lines)),
        "resumes": len(resumes(lines)) - 1,
    }
    if times is not None:
        came, went = times
        measured["story"] = story(watch.samples, came=came, went=went).stored()
    return measured


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    """Run the missing runs, and return the tables; `anew` first deletes the stored runs."""
    cases, pace = (QUICK_CASES, QUICK_PACE) if quick else (CASES, PACE)
    arms = bench(cases, pace, repeats=repeats)
    if anew:
        arms.forget()
    by_title = {case.title: case for case in cases}
    missing = [by_title[title] for _, title in arms.missing()]
    minutes = sum(_MINUTES[case.disturbed] for case in missing) * (_QUICK if quick else 1)
    say(f"to run: {len(missing)} runs, about {minutes:.0f} minutes")
    if missing:
        with four_nodes("bench-rescale") as site:
            arms.measure(lambda repeat, title: _one(site, by_title[title], pace, repeat=repeat))
    runs = arms.runs()
    tables = (guard_table(runs), pause_table(runs), work_table(runs), bought_table(runs))
    return "\n\n".join(tables)


def bench(cases: Sequence[Case], pace: Pace, *, repeats: int) -> Interleaved:
    """Return the runs of some cases; undisturbed cases run once."""
    kfext = [paths.REPOSITORY / "kfext" / package for package in DECIDES]
    stores = {
        case.title: Store(
            f"rescale {case.title}", [repr(case), repr(asdict(pace))], [*_SOURCES, *kfext]
        )
        for case in cases
    }
    once = [case.title for case in UNDISTURBED.values()]
    return Interleaved(stores, repeats=repeats, once=once)


def _one(site: Site, case: Case, pace: Pace, *, repeat: int) -> Object:
    def attempt() -> Object:
        with (
            step(f"{case.title}, repeat {repeat + 1}"),
            site.namespace("rescale", managed=True) as pods,
        ):
            return run(pods, case, pace)

    measured, spoiled = first_unspoiled(case.title, attempt)
    return {**measured, "spoiled": spoiled}

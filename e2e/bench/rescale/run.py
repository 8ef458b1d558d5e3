"""The benchmark: runs every case in turn, unless its runs are stored.

In each case the job fills the nodes, the gang arrives and ends, and the job ends.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import urllib3

from e2e.bench.companion.arms import DECIDING_PACKAGES
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
from e2e.bench.rescale.tables import guard_table, improvements_table, pause_table, work_table
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
"""How long to wait for the next event: a job that did not answer a checkpoint request is ineligible
for 300 s."""
_REQUEST_ERRORS = (ApiError, urllib3.exceptions.HTTPError)
"""Of the ten thousand requests of a benchmark, one may fail; then the run is repeated."""
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("cases", "parts", "watch", "run")),
    paths.REPOSITORY / "e2e/harness/elastic_jobs.py",
    _HERE.parent / "companion" / "site.py",
    *(paths.REPOSITORY / "e2e/jobs" / f"{name}.py" for name in ("elastic_ddp", "elastic_ps")),
)
_MINUTES = {True: 7.0, False: 6.0}
"""The duration of a run in minutes, by whether the gang arrives."""
_QUICK_FRACTION = 0.5
"""The duration of a quick run as a fraction of it."""


@dataclass(slots=True)
class _Run:
    """A run in progress."""

    pods: Pods
    case: Case
    pace: Pace
    watch: Watch

    def gang_comes_and_goes(self) -> tuple[float, float]:
        """Run the gang until the job has grown back; return when the gang came and ended."""
        watch = self.watch
        watch.poll_for(self.pace.quiet)
        gang_start = watch.now()
        self.create(GANG_KIND, gang(self.pace))
        self.until(is_bound, "the gang is bound")
        say(f"    {watch.now():4.0f} s: the gang is bound after {watch.now() - gang_start:.0f} s")
        self.until(
            lambda sample: is_bound(sample) and all(pod.runs for pod in sample.gang),
            "the gang runs",
        )
        self.until(
            lambda sample: not any(pod.runs for pod in sample.gang), "the gang's pods have ended"
        )
        gang_end = watch.now()  # from now on a TFJob may grow, within a second
        self.until(lambda _: watch.gang_has_ended(), "the gang has trained")
        self.pods.bed.api.delete(jobs_path(self.pods.namespace, GANG_KIND, GANG))
        self.until(lambda sample: not sample.gang, "the gang is gone")
        self.until(self.all_train, "the job has grown back")
        say(
            f"    {watch.now():4.0f} s: the job has grown back after {watch.now() - gang_end:.0f} s"
        )
        return gang_start, gang_end

    def all_train(self, sample: Sample) -> bool:
        """Return whether all pods of the job train. Raises SpoiledError if the job has ended."""
        if sample.ended:
            raise SpoiledError("the job ended before it had all of its workers")
        world = resumes(self.watch.lines)[-1].world if resumes(self.watch.lines) else 0
        is_complete = is_whole(sample) and len(sample.workers) == self.case.pods
        return is_complete and sample.steps and world in {0, self.case.pods}

    def until(self, condition: Any, what: str) -> None:
        self.watch.until(condition, what=what, seconds=_PATIENCE_SECONDS)

    def create(self, kind: str, body: Object) -> None:
        self.pods.bed.api.create(jobs_path(self.pods.namespace, kind), body)


def run(pods: Pods, case: Case, pace: Pace) -> Object:
    """Return the result of a run as JSON. Raises SpoiledError if the run does not count."""
    folder = pods.bed.folder / "checkpoints" / pods.namespace
    try:
        with policy(pods.bed, pods.namespace, companion={"scale": _scale(pace)}):
            rescale = _Run(pods, case, pace, Watch(pods, case.kind, folder))
            rescale.create(case.kind, case.manifest(pace, folder))
            rescale.until(rescale.all_train, "the whole job trains")
            times = rescale.gang_comes_and_goes() if case.disturbed else None
            rescale.until(lambda seen: seen.ended, "the job has ended")
            rescale.watch.poll()
            return _result(rescale.watch, times)
    except (NotSeenError, *_REQUEST_ERRORS) as error:
        raise SpoiledError(str(error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _scale(pace: Pace) -> Object:
    return {"mode": "act", "parameters": dict(pace.parameters)}


def _result(watch: Watch, times: tuple[float, float] | None) -> Object:
    lines = watch.lines
    result: Object = {
        "loss": json.loads(lines[-1])["loss"],
        "redone": redone(lines),
        "lost": sum(not start.kept for start in resumes(lines)),
        "resumes": len(resumes(lines)) - 1,
    }
    if times is not None:
        gang_start, gang_end = times
        result["story"] = story(watch.samples, came=gang_start, ended=gang_end).stored()
    return result


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    """Make the missing runs, and return the tables; `anew` first deletes the stored runs."""
    cases, pace = (QUICK_CASES, QUICK_PACE) if quick else (CASES, PACE)
    arms = bench(cases, pace, repeats=repeats)
    if anew:
        arms.forget()
    by_title = {case.title: case for case in cases}
    missing = [by_title[title] for _, title in arms.missing()]
    minutes = sum(_MINUTES[case.disturbed] for case in missing) * (_QUICK_FRACTION if quick else 1)
    say(f"to run: {len(missing)} runs, about {minutes:.0f} minutes")
    if missing:
        with four_nodes("bench-rescale") as site:
            arms.measure(
                lambda repeat, title: _run_case(site, by_title[title], pace, repeat=repeat)
            )
    runs = arms.runs()
    tables = (guard_table(runs), pause_table(runs), work_table(runs), improvements_table(runs))
    return "\n\n".join(tables)


def bench(cases: Sequence[Case], pace: Pace, *, repeats: int) -> Interleaved:
    kfext = [paths.REPOSITORY / "kfext" / package for package in DECIDING_PACKAGES]
    stores = {
        case.title: Store(
            f"rescale {case.title}", [repr(case), repr(asdict(pace))], [*_SOURCES, *kfext]
        )
        for case in cases
    }
    once = [case.title for case in UNDISTURBED.values()]
    return Interleaved(stores, repeats=repeats, once=once)


def _run_case(site: Site, case: Case, pace: Pace, *, repeat: int) -> Object:
    def attempt() -> Object:
        with (
            step(f"{case.title}, repeat {repeat + 1}"),
            site.namespace("rescale", managed=True) as pods,
        ):
            return run(pods, case, pace)

    result, spoiled = first_unspoiled(case.title, attempt)
    return {**result, "spoiled": spoiled}

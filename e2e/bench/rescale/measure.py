"""The benchmark: every case in turn, what is stored is not run again, and the tables."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from e2e.bench.companion.arms import DECIDES
from e2e.bench.companion.site import Site
from e2e.bench.four_nodes import four_nodes
from e2e.bench.interleaved import Interleaved, first_unspoiled
from e2e.bench.rescale.cases import (
    CASES,
    PACE,
    QUICK_CASES,
    QUICK_PACE,
    UNDISTURBED,
    Case,
    Pace,
)
from e2e.bench.rescale.run import run
from e2e.bench.rescale.tables import bought_table, guard_table, pause_table, work_table
from e2e.bench.store import Store
from e2e.testbed import paths
from e2e.testbed.progress import say, step

Object = dict[str, Any]
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("cases", "samples", "parts", "watch", "run")),
    *(_HERE.parent / f"{name}.py" for name in ("elastic_body", "four_nodes")),
    *(paths.REPOSITORY / "e2e/jobs" / f"{name}.py" for name in ("elastic_ddp", "elastic_ps")),
)
_MINUTES = {True: 7.0, False: 6.0}
"""Of a run, by whether the gang comes."""
_QUICK = 0.5
"""A quick run takes this part of it."""


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    """Measure what is not stored yet, and return the tables; `anew` forgets what is stored."""
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
    """Return the runs of some cases; those that are not disturbed run once."""
    kfext = [paths.REPOSITORY / "kfext" / package for package in DECIDES]
    stores = {
        case.title: Store(
            f"rescale {case.title}", [repr(case), repr(asdict(pace))], [*_SOURCES, *kfext]
        )
        for case in cases
    }
    once = [case.title for case in UNDISTURBED.values()]
    return Interleaved(stores, repeats=repeats, once=lambda: once)


def _one(site: Site, case: Case, pace: Pace, *, repeat: int) -> Object:
    def one() -> Object:
        with (
            step(f"{case.title}, repeat {repeat + 1}"),
            site.namespace("rescale", managed=True) as pods,
        ):
            return run(pods, case, pace)

    found, spoiled = first_unspoiled(case.title, one)
    return {**found, "spoiled": spoiled}

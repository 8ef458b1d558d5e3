"""The benchmark: a training's pace, then all arms in turn; stored runs are not repeated."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

import structlog

from e2e.bench.gpu_share import tables
from e2e.bench.gpu_share.cards import CARDS, Card, Python
from e2e.bench.gpu_share.group import MEMBERS, WAYS, GroupOutcome, Pace, Way, run_group
from e2e.bench.gpu_share.processes import SCRIPTS
from e2e.bench.gpu_share.run import (
    EXCLUSIVE,
    LOW,
    WARM_UP_SECONDS,
    Arm,
    Outcome,
    figures,
    run,
    smoke,
    wakes,
)
from e2e.bench.store import Interleaved, Store, unspoiled
from e2e.testbed import paths
from e2e.testbed.progress import say, step

Object = dict[str, Any]
WAKES, SMOKE, FIGURES, GROUP, CLUSTER = PARTS = ("wakes", "smoke", "figures", "group", "cluster")
DEFAULT_PARTS = (FIGURES, GROUP)
_HERE = Path(__file__).parent
_FRAME = (
    *(_HERE / f"{name}.py" for name in ("run", "processes", "cards", "group")),
    *(paths.REPOSITORY / "e2e/jobs" / name for name in SCRIPTS),
    paths.REPOSITORY / "e2e/gpu/cpu_card.py",
)
"""The files on which the runs of every arm depend."""
_AGENT = ("card", "process", "sharer")
_SHARING = (
    *(paths.REPOSITORY / "kfext/gpu/agent" / f"{name}.py" for name in _AGENT),
    paths.REPOSITORY / "kfext/gpu/rules",
    paths.REPOSITORY / "kfext/gpu/hook",
)
"""The files on which only runs with the hook depend."""
_AROUND_SECONDS = 6.0
"""The time in a run to import PyTorch."""
_SMOKE_SECONDS, _PACE_SECONDS = 5.0, 4.0
_WINDOW_SECONDS = {True: 5.0, False: 30.0}
"""By whether it is a quick run. In 30 s kfext pauses low for one second, to measure."""
_CLUSTER_STEPS = {True: 200, False: 600}
"""The steps of the job of high priority in each trial, by whether it is a quick run."""
_GROUP_SECONDS = {True: 4.0, False: 15.0}
"""The time of each job of the group alone, by whether it is a quick run."""


def measure(
    *,
    card: str,
    parts: Sequence[str],
    repeats: int,
    quick: bool,
    anew: bool,
    minutes: float | None = None,
) -> str:
    """Run the missing runs, and return the tables. Raises Unavailable.

    `minutes`: see `Measurement`; None means no limit.
    """
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    chosen = CARDS[card]()
    measurement = Measurement(
        chosen,
        chosen.python(),
        seconds=_WINDOW_SECONDS[quick],
        repeats=1 if quick else repeats,
        minutes=math.inf if minutes is None else minutes,
        anew=anew,
    )
    tables_of: dict[str, Callable[[], str]] = {
        WAKES: measurement.wakes,
        SMOKE: measurement.smoke,
        FIGURES: lambda: measurement.figures(thorough=card == "cpu"),
        GROUP: lambda: measurement.group(quick=quick),
        CLUSTER: lambda: cluster(card, steps=_CLUSTER_STEPS[quick]),
    }
    return "\n\n".join(tables_of[name]() for name in PARTS if name in parts)


def cluster(card: str, *, steps: int) -> str:
    """Return the table of the GPU demo: all of kfext around two jobs, in a cluster of one node.

    It needs root and the testbed, unlike all other parts.
    """
    demo = import_module("e2e.demo_gpu")
    return tables.cluster_table(demo.CARDS[card].title, demo.run(card, steps=steps))


class Measurement:
    """The parts of the benchmark on one card. `seconds`: the length of each window.

    `minutes`: the time limit; no run begins that would not end before it.
    """

    def __init__(
        self,
        card: Card,
        python: Python,
        *,
        seconds: float,
        repeats: int,
        minutes: float,
        anew: bool,
    ) -> None:
        self._card = card
        self._python = python
        self._seconds = seconds
        self._repeats = repeats
        self._deadline = monotonic() + 60 * minutes
        self._anew = anew
        self._known_pace: Pace | None = None

    def wakes(self) -> str:
        """Return the table of the delays of a thread that waits for work. Raises Unavailable."""
        return tables.wakes_table(self._card.title, wakes(self._card, self._python))

    def smoke(self) -> str:
        """Return the table of a few short runs, which are not stored."""
        pace = self._measured_pace(_PACE_SECONDS)
        runs = {arm: [self._arm(arm, pace, _SMOKE_SECONDS).stored()] for arm in smoke()}
        return tables.all_of(self._card.title, _outcomes(runs), _SMOKE_SECONDS)

    def figures(self, *, thorough: bool) -> str:
        """Return the tables of all arms that have been measured."""
        pace = self._pace()
        by_title = {arm.title: arm for arm in figures(thorough=thorough)}
        stores = {title: self._store(arm, pace) for title, arm in by_title.items()}
        around = WARM_UP_SECONDS + _AROUND_SECONDS
        runs = self._measure(
            stores,
            lambda title: self._arm(by_title[title], pace, self._seconds).stored(),
            seconds=self._seconds + around,
        )
        outcomes = _outcomes({by_title[title]: some for title, some in runs.items()})
        return tables.all_of(self._card.title, outcomes, self._seconds)

    def group(self, *, quick: bool) -> str:
        pace, seconds = self._pace(), _GROUP_SECONDS[quick]
        ways = {way.name: way for way in WAYS}
        stores = {name: self._group_store(way, pace, seconds) for name, way in ways.items()}
        runs = self._measure(
            stores,
            lambda name: self._way(ways[name], pace, seconds).stored(),
            seconds=seconds * len(MEMBERS) + _AROUND_SECONDS,
        )
        outcomes = {name: list(map(GroupOutcome.restore, some)) for name, some in runs.items()}
        return tables.group_table(self._card.title, outcomes, seconds)

    def _measure(
        self, stores: Mapping[str, Store], measured: Callable[[str], Object], *, seconds: float
    ) -> Mapping[str, Sequence[Object]]:
        """Run the missing runs within the time limit; each takes about `seconds`."""
        interleaved = Interleaved(stores, repeats=self._repeats)
        if self._anew:
            interleaved.forget()
        while missing := interleaved.missing():
            minutes = len(missing) * seconds / 60
            if monotonic() + seconds > self._deadline:
                say(f"{len(missing)} runs remain for another time, about {minutes:.0f} minutes")
                break
            repeat, title = missing[0]
            with step(f"{title}, repeat {repeat + 1}; {minutes:.0f} minutes to go"):
                interleaved.keep(repeat, title, measured(title))
        return interleaved.runs()

    def _arm(self, arm: Arm, pace: Pace, seconds: float) -> Outcome:
        load = pace.load(arm.u) if arm.u is not None else 0.0
        return unspoiled(
            arm.title, lambda: run(self._card, self._python, arm, load=load, seconds=seconds)
        )

    def _way(self, way: Way, pace: Pace, seconds: float) -> GroupOutcome:
        return unspoiled(
            way.name,
            lambda: run_group(self._card, self._python, way, pace=pace, seconds=seconds),
        )

    def _pace(self) -> Pace:
        """Return the pace of the training, measured once."""
        if self._known_pace is None:
            store = Store(f"gpu-share pace {self._card.title}", self._card.model, _FRAME)
            if self._anew:
                store.forget()
            if store.find("pace") is None:
                store.put("pace", asdict(self._measured_pace(self._seconds)))
            self._known_pace = Pace(**(store.find("pace") or {}))
        return self._known_pace

    def _measured_pace(self, seconds: float) -> Pace:
        with step("the time of a step without loading"):
            unloaded = Arm(EXCLUSIVE, None, low=True)
            outcome = self._arm(unloaded, Pace(0.0, 0.0), seconds)
        step_seconds = 1 / fmean(outcome.rates[LOW])
        return Pace(step_seconds, step_seconds * outcome.busy)

    def _store(self, arm: Arm, pace: Pace) -> Store:
        sources = _FRAME if arm.sharing is None else (*_FRAME, *_SHARING)
        return self._named(arm.title, [repr(arm), repr(pace), repr(self._seconds)], sources)

    def _group_store(self, way: Way, pace: Pace, seconds: float) -> Store:
        sources = (*_FRAME, *_SHARING) if way.hooked else _FRAME
        return self._named(f"group {way.name}", [repr(way), repr(pace), repr(seconds)], sources)

    def _named(self, title: str, inputs: Sequence[str], sources: Sequence[Path]) -> Store:
        name = f"gpu-share {self._card.title} {title}"
        return Store(name, [*inputs, *self._card.model], sources)


def _outcomes(runs: Mapping[Arm, Sequence[Object]]) -> tables.Runs:
    return {arm: [Outcome.restore(stored) for stored in some] for arm, some in runs.items()}

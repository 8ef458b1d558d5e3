"""Tables V3 and V4: schedulers of Pollux's published simulator, published and rebuilt.

All results are simulated, so they do not depend on the machine. One core.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from e2e.bench.model.beside import rows as rows_beside
from e2e.bench.model.pollux import by_kfext
from e2e.bench.model.pollux.application import Application
from e2e.bench.model.pollux.cluster import Scheduler, run
from e2e.bench.model.pollux.elastic import Elastic
from e2e.bench.model.pollux.files import (
    LOADS,
    WORKLOADS,
    read_applications,
    read_published,
    read_workload,
)
from e2e.bench.model.pollux.optimus import Optimus
from e2e.bench.model.pollux.tiresias import Tiresias
from e2e.bench.report import table, verdict
from e2e.testbed.progress import say
from kfext.sim.cluster import World

_ELASTIC = "pollux"
_RIGID = ("tiresias", "optimus")
_SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "tiresias": Tiresias,
    "optimus": Optimus,
    _ELASTIC: Elastic,
}
"""The rebuilt schedulers, by the name of the published results."""
_JOBS_WORKLOAD = "workload-6"
"""The workload that is compared job by job."""
_QUICK_LOAD = 1.0
_ARMS = ("gang", "gang-shortest", "kfext", "kfext-shortest")
_MISLED = tuple(
    f"{arm}-shortest, {part} false" for arm in ("gang", "kfext") for part in ("10%", "30%")
)
_MISLED_LOAD = 1.0
_AGAINST = "tiresias"
_MODULES = ("pollux/application", "pollux/by_kfext", "pollux/files", "pollux/step_time")
_TIME_TOLERANCE = 0.001
"""The tolerance of a time, as a fraction of the published time."""
_RATIO_TOLERANCE = 0.05
"""The tolerance of a ratio of two means."""
_HEAD = ("scheduler", "load", "figure", "published", "rebuilt", "difference", "tolerance", "")

Times = Mapping[str, Mapping[str, float]]
"""Completion times in seconds by workload and job."""


class _Pair(NamedTuple):
    """The times of a scheduler at a load, published and rebuilt."""

    published: Times
    rebuilt: Times

    def of_workload(self, workload: str) -> "_Pair":
        return _Pair(*({workload: times[workload]} for times in self))

    def means(self) -> tuple[float, float]:
        """Return the mean over workloads of the mean time of a job, published and rebuilt."""
        published, rebuilt = (
            fmean(fmean(jobs.values()) for jobs in times.values()) for times in self
        )
        return published, rebuilt


def measure(data: Path, *, quick: bool) -> str:
    """Return V3 and V4, and a table with kfext for each load.

    `data`: the folder with pollux/. `quick`: one workload at one load, without kfext.

    Raises UserError.
    """
    applications = read_applications(data)
    workloads, loads = ((_JOBS_WORKLOAD,), (_QUICK_LOAD,)) if quick else (WORKLOADS, LOADS)

    def pair(name: str, load: float) -> _Pair:
        say(f"  {name} at load {load}: {len(workloads)} workloads")
        published, rebuilt = {}, {}
        for workload in workloads:
            published[workload] = read_published(data, name, load=load, workload=workload)
            requests = read_workload(data, applications, load=load, workload=workload)
            rebuilt[workload] = run(requests, _SCHEDULERS[name]())
        return _Pair(published, rebuilt)

    rigid = {(name, load): pair(name, load) for name in _RIGID for load in loads}
    elastic = {load: pair(_ELASTIC, load) for load in loads}
    times = [
        [name, str(load), *row]
        for (name, load), pair_ in rigid.items()
        for row in _time_rows(pair_)
    ]
    ratios = [
        [_ELASTIC, str(load), f"mean s / mean s of {name}", *_ratio_cells(elastic[load], pair_)]
        for (name, load), pair_ in rigid.items()
    ]
    tables = [
        table("V3: completion times of Tiresias and Optimus", _HEAD, times),
        table("V4: an elastic scheduler with Pollux's objective", _HEAD, ratios),
    ]
    with_kfext = [] if quick else [_with_kfext(data, applications, load) for load in loads]
    return "\n\n".join([*tables, *with_kfext])


def _with_kfext(data: Path, applications: Mapping[str, Application], load: float) -> str:
    say(f"  kfext at load {load}")

    def draw(number: int) -> World:
        workload = WORKLOADS[number]
        requests = read_workload(data, applications, load=load, workload=workload)
        return by_kfext.world_of(requests)

    def published(arm: str, number: int) -> Mapping[str, float] | None:
        if arm not in _SCHEDULERS:
            return None
        return read_published(data, arm, load=load, workload=WORKLOADS[number])

    misled = _MISLED if load == _MISLED_LOAD else ()
    return rows_beside(
        f"kfext in V3 and V4, load {load}",
        draw,
        (*_SCHEDULERS, *_ARMS, *misled),
        numbers=range(len(WORKLOADS)),
        published=published,
        against=_AGAINST,
        modules=_MODULES,
    )


def _time_rows(pair: _Pair) -> Iterator[list[str]]:
    """Yield the rows of V3: for all workloads, for one workload, and for the jobs of that one."""
    parts = {f"{len(pair.published)} workloads": pair} if len(pair.published) > 1 else {}
    for figure, part in {**parts, _JOBS_WORKLOAD: pair.of_workload(_JOBS_WORKLOAD)}.items():
        published, rebuilt = part.means()
        change = rebuilt / published - 1
        yield [
            f"mean s, {figure}",
            f"{published:.1f}",
            f"{rebuilt:.1f}",
            f"{change:+.2%}",
            f"{_TIME_TOLERANCE:.1%}",
            verdict(abs(change) <= _TIME_TOLERANCE),
        ]
    jobs, rebuilt_jobs = pair.published[_JOBS_WORKLOAD], pair.rebuilt[_JOBS_WORKLOAD]
    changes = [rebuilt_jobs[name] / jobs[name] - 1 for name in jobs]
    agree = sum(abs(change) <= _TIME_TOLERANCE for change in changes)
    yield [
        f"jobs of {_JOBS_WORKLOAD} that agree",
        str(len(jobs)),
        str(agree),
        f"at most {max(map(abs, changes)):.2%}",
        f"{_TIME_TOLERANCE:.1%} each",
        verdict(agree == len(jobs)),
    ]


def _ratio_cells(elastic: _Pair, rigid: _Pair) -> list[str]:
    published, rebuilt = (
        less / more for less, more in zip(elastic.means(), rigid.means(), strict=True)
    )
    return [
        f"{published:.3f}",
        f"{rebuilt:.3f}",
        f"{rebuilt - published:+.3f}",
        f"{_RATIO_TOLERANCE:g}",
        verdict(abs(rebuilt - published) <= _RATIO_TOLERANCE),
    ]

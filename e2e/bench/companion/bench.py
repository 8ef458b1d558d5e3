"""One schedule under every arm, the arms in turn; what is stored is not run again."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from e2e.bench.companion.arms import Makers
from e2e.bench.companion.run import Outcome, run
from e2e.bench.companion.site import Site
from e2e.bench.companion.tables import Runs
from e2e.bench.companion.workload import Schedule
from e2e.bench.interleaved import Interleaved, unspoiled
from e2e.bench.store import Store
from e2e.testbed import paths
from e2e.testbed.progress import step

Object = dict[str, Any]
_HERE = Path(__file__).parent
_JOBS = ("converge", "converge_tf", "converge_torch", "train_tf")
_FRAME = (
    *(_HERE / f"{name}.py" for name in ("pods", "run", "arms", "site")),
    *(paths.REPOSITORY / "e2e/jobs" / f"{name}.py" for name in _JOBS),
)
"""On which the runs of every arm depend."""
_AROUND_SECONDS = 25.0
"""Of a run: the first pod starts, and the namespace is deleted."""


class Bench:
    """A schedule under `arms`, each of them `repeats` times.

    Those in `grid` are tried in the first repeat only; the one of them whose mean job ended first
    is an arm like the others from then on.
    """

    def __init__(
        self, schedule: Schedule, arms: Makers, *, repeats: int, grid: Makers | None = None
    ) -> None:
        self.schedule = schedule
        self._grid = dict(grid or {})
        self._makers = {**arms, **self._grid}
        stores = {
            name: Store(f"{schedule.name} {name}", [repr(schedule)], [*_FRAME, *make().sources])
            for name, make in self._makers.items()
        }
        self._runs = Interleaved(stores, repeats=repeats, once=self._worse)

    def missing(self) -> list[tuple[int, str]]:
        """Return repeat and arm of each run that is not stored, the arms in turn.

        Until the grid has been tried, its best is counted as the first of it.
        """
        return self._runs.missing()

    def seconds(self) -> float:
        """Return about how long the runs that are missing take."""
        return len(self.missing()) * (self.schedule.lasts + _AROUND_SECONDS)

    def measure(self, site: Site) -> None:
        """Run what is missing, and store each run when it has ended."""

        def one(repeat: int, arm: str) -> Object:
            title = f"{self.schedule.name}, repeat {repeat + 1} of {self._runs.repeats}, {arm}"
            with step(f"{title}; {len(self.missing())} runs to go"):
                return self._one(site, arm).stored()

        self._runs.measure(one)

    def keep(self, repeat: int, arm: str, outcome: Outcome) -> None:
        """Store what came of a run."""
        self._runs.keep(repeat, arm, outcome.stored())

    def forget(self) -> None:
        """Remove all that is stored."""
        self._runs.forget()

    def runs(self) -> Runs:
        """Return what is stored of each arm, by repeat."""
        found = self._runs.runs()
        return {arm: list(map(Outcome.of, found.get(arm, []))) for arm in self._makers}

    def _worse(self) -> Collection[str]:
        """Return all of the grid but its best."""
        return self._grid.keys() - {best(self.runs(), list(self._grid))} if self._grid else ()

    def _one(self, site: Site, name: str) -> Outcome:
        def one() -> Outcome:
            arm = self._makers[name]()
            with site.namespace(self.schedule.name, managed=arm.managed) as pods:
                return run(pods, arm, self.schedule)

        return unspoiled(name, one)


def best(runs: Mapping[str, Sequence[Outcome]], names: Sequence[str]) -> str:
    """Return the arm whose mean job was shortest in the first repeat; the first if none has run."""

    def mean(name: str) -> float:
        first = runs[name][0]
        return fmean(job.seconds for job in first.jobs.values())

    tried = [name for name in names if runs.get(name)]
    return min(tried, key=mean) if tried else names[0]

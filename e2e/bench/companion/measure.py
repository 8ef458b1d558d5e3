"""The benchmark: calibration, then every schedule under every arm, the arms in turn."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.bench.companion import calibrate, workload
from e2e.bench.companion.arms import Arm, arms, sources
from e2e.bench.companion.pods import Pods
from e2e.bench.companion.run import Outcome, SpoiledError, run
from e2e.bench.companion.store import Store
from e2e.bench.companion.tables import Runs, arms_table, jobs_table
from e2e.bench.companion.workload import Schedule
from e2e.harness.install import create_namespace, kubectl
from e2e.testbed import lifecycle, paths
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import Node, nodes

NAME = "bench-companion"
_HERE = Path(__file__).parent
_FRAME = (_HERE / "pods.py", _HERE / "run.py", _HERE / "arms.py", paths.REPOSITORY / "e2e/jobs")
"""On which the runs of every arm depend."""
_TRIES = 3


def measure(*, quick: bool, repeats: int, only_calibrate: bool, anew: bool) -> str:
    """Measure what is not stored yet, and return the tables; `anew` forgets what is stored."""
    schedules = () if only_calibrate else workload.QUICK if quick else workload.FULL
    benches = [Bench(schedule, repeats=repeats) for schedule in schedules]
    calibration = Store([str(quick)], [_HERE / "pods.py", _HERE / "calibrate.py"])
    if anew:
        for store in (
            calibration,
            *(store for bench in benches for store in bench.stores.values()),
        ):
            store.forget()
    if not calibrate.complete(calibration) or any(bench.missing() for bench in benches):
        with lifecycle.running(NAME, real_nodes=1) as bed:
            node = nodes(bed)[0].with_one_cpu()
            with _namespace(bed, node, "calibrate") as pods:
                calibrate.measure(pods, calibration, quick=quick)
            say(calibrate.table_of(calibration))
            if benches:
                with step("warm up: what training reads from disk"):
                    _warm_up(bed, node)
            for bench in benches:
                bench.measure(bed, node)
    tables = [calibrate.table_of(calibration)]
    for bench in benches:
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    return "\n\n".join(tables)


class Bench:
    """One schedule under every arm."""

    def __init__(self, schedule: Schedule, *, repeats: int) -> None:
        self.schedule, self._repeats = schedule, repeats
        self._arms = arms(schedule.interval)
        self.stores = {
            arm: Store([arm, repr(schedule)], [*_FRAME, *sources(make())])
            for arm, make in self._arms.items()
        }

    def missing(self) -> list[tuple[int, str]]:
        """Return repeat and arm of each run that is not stored, the arms in turn."""
        order = random.Random(1)
        turns = [
            (repeat, arm)
            for repeat in range(self._repeats)
            for arm in order.sample(list(self._arms), len(self._arms))
        ]
        return [turn for turn in turns if self.stores[turn[1]].find(_name(turn[0])) is None]

    def measure(self, bed: Testbed, node: Node) -> None:
        """Run what is missing, and store each run when it has ended."""
        for number, (repeat, arm) in enumerate(self.missing()):
            title = f"{self.schedule.name}, repeat {repeat + 1} of {self._repeats}, {arm}"
            with step(title):
                outcome = self._one(bed, node, f"{self.schedule.name}-{number}", arm)
            self.keep(repeat, arm, outcome)

    def keep(self, repeat: int, arm: str, outcome: Outcome) -> None:
        """Store what came of a run."""
        self.stores[arm].put(_name(repeat), outcome.stored())

    def _one(self, bed: Testbed, node: Node, namespace: str, arm: str) -> Outcome:
        for number in range(_TRIES):
            try:
                with _namespace(bed, node, f"{namespace}-{number}") as pods:
                    return run(pods, self._arms[arm](), self.schedule)
            except SpoiledError as error:
                say(f"    once more: {error}")
        raise RuntimeError(f"{arm}: {_TRIES} runs were spoiled")

    def runs(self) -> Runs:
        """Return what is stored of each arm, by repeat."""
        found = {
            arm: [store.find(_name(repeat)) for repeat in range(self._repeats)]
            for arm, store in self.stores.items()
        }
        return {arm: [Outcome.of(one) for one in some if one] for arm, some in found.items()}


def _name(repeat: int) -> str:
    return f"repeat-{repeat}"


def _warm_up(bed: Testbed, node: Node) -> None:
    """Train each program for a moment: the first run shall not pay for cold files."""
    with _namespace(bed, node, "warm-up") as pods:
        run(pods, Arm(), workload.WARM)


@contextmanager
def _namespace(bed: Testbed, node: Node, name: str) -> Iterator[Pods]:
    """Have a namespace for the time of a `with` block, and leave the node empty."""
    create_namespace(bed, name, managed=False)
    try:
        yield Pods(bed, name, node)
    finally:
        kubectl(bed, "delete", "namespace", name, "--timeout=180s")

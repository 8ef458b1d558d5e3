"""The benchmark: the stream under every arm in turn, what is stored is not run again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.bench.companion.arms import PLAIN
from e2e.bench.companion.site import Site
from e2e.bench.four_nodes import COUNT, four_nodes
from e2e.bench.interleaved import Interleaved
from e2e.bench.store import Store
from e2e.bench.stream.arms import Arm, Makers, arms
from e2e.bench.stream.run import run
from e2e.bench.stream.story import Outcome
from e2e.bench.stream.tables import arms_table, jobs_table, worst_table
from e2e.bench.stream.workload import FEW, JOBS, MILLICORES, SEED, Arrival, arrivals
from e2e.testbed import paths
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import nodes

Object = dict[str, Any]
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("workload", "story", "arms", "run")),
    *(_HERE.parent / f"{name}.py" for name in ("elastic_body", "four_nodes")),
    paths.REPOSITORY / "e2e/jobs",
)
MINUTES, QUICK_MINUTES = 10.0, 2.0
_AROUND_MINUTES = 1.5
"""Of a run: the last jobs end, and the namespace is deleted."""
_QUICK_PARAMETERS: Mapping[str, float] = {"wait": 5, "idle": 10, "rest": 15}


def measure(*, quick: bool, minutes: float, repeats: int, anew: bool) -> str:
    """Measure what is not stored yet, and return the tables; `anew` forgets what is stored."""
    minutes = QUICK_MINUTES if quick else minutes
    coming = arrivals(FEW if quick else JOBS, minutes=minutes)
    makers = arms(_QUICK_PARAMETERS if quick else {})
    bench = of_arms(makers, coming, minutes=minutes, repeats=repeats)
    if anew:
        bench.forget()
    missing = len(bench.missing())
    say(f"to run: {missing} runs, about {missing * (minutes + _AROUND_MINUTES):.0f} minutes")
    if missing:
        with four_nodes("bench-stream") as site:
            with step("warm up: what training reads from disk"):
                _one(site, makers[PLAIN](), _warm_up(), minutes=0.1)
            bench.measure(
                lambda repeat, name: _named(site, makers, name, coming, minutes, repeat=repeat)
            )
    runs = {name: list(map(Outcome.of, found)) for name, found in bench.runs().items()}
    title = (
        f"{len(coming)} jobs within {coming[-1].seconds:.0f} s on {COUNT} nodes, "
        f"{MILLICORES}m a pod, seed {SEED}"
    )
    return "\n\n".join((arms_table(runs, title=title), worst_table(runs), jobs_table(runs)))


def of_arms(
    makers: Makers, coming: Sequence[Arrival], *, minutes: float, repeats: int
) -> Interleaved:
    """Return the runs of some arms."""
    inputs = repr((coming, minutes))
    stores = {
        name: Store(f"stream {name}", [inputs, repr(make().scale)], [*_SOURCES, *make().sources])
        for name, make in makers.items()
    }
    return Interleaved(stores, repeats=repeats)


def _named(
    site: Site,
    makers: Makers,
    name: str,
    coming: Sequence[Arrival],
    minutes: float,
    *,
    repeat: int,
) -> Object:
    with step(f"{len(coming)} jobs, {name}, repeat {repeat + 1}"):
        return _one(site, makers[name](), coming, minutes=minutes).stored()


def _one(site: Site, arm: Arm, coming: Sequence[Arrival], *, minutes: float) -> Outcome:
    with site.namespace("stream", managed=arm.managed) as pods:
        return run(pods, arm, coming, nodes(site.bed), minutes=minutes)


def _warm_up() -> list[Arrival]:
    """Return one job of each kind: the first arm shall not pay for cold files."""
    kinds = {job.kind: job for job in FEW if job.elastic}
    return [Arrival(0.0, job) for job in kinds.values()]

"""V1 and V2: allocation and fragmentation of a GPU cluster that fills up, published and rebuilt.

V1 is the allocated percentage of all GPUs at 100 and 130 % load, for nine workloads and six
published schedulers. V2 is the fragmented percentage at 40, 80 and 100 % load of the workload
`default`, for three of the schedulers. Differences are in points. All values are means of ten
seeds: with three, Random at 100 % load of `multigpu50` would differ by chance alone. Runs of a seed
differ from the published runs, which had a different random generator.

kfext places the pods of the first three seeds, and is compared with the schedulers there; it has no
published results. One core.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import fmean

from e2e.bench.model.openb import scores
from e2e.bench.model.openb.by_kfext import ByKfext, rounded_up
from e2e.bench.model.openb.fgd import FGD
from e2e.bench.model.openb.fill import Draw, Placer, draw, fill
from e2e.bench.model.openb.fragmentation import Typical
from e2e.bench.model.openb.trace import Key, Pod, read_nodes, read_pods, read_published
from e2e.bench.report import table, verdict
from e2e.testbed.progress import say

DEFAULT = "default"
WORKLOADS = (
    *(DEFAULT, "cpu050", "cpu200", "gpushare40", "gpushare100"),
    *("gpuspec10", "gpuspec33", "multigpu20", "multigpu50"),
)
SEEDS = range(42, 52)
_KFEXT_SEEDS = 3
"""kfext runs only the first seeds: it is several times slower than the rebuilt schedulers."""
LOADS, FRAGMENTATION_LOADS = (100, 130), (40, 80, 100)
"""The loads of V1 and of V2, in percent."""
TOLERANCES = {
    "Random": 0.7,
    "DotProd": 1.0,
    "GpuClustering": 1.0,
    "GpuPacking": 1.0,
    "BestFit": 0.7,
    "FGD": 0.7,
}
"""The tolerances of V1 in points, by published scheduler."""
FRAGMENTATION_TOLERANCES = {"Random": 0.5, "BestFit": 0.5, "FGD": 0.5}
"""The tolerances of V2 in points."""
KFEXT = "kfext"
PLACERS: Mapping[str, Callable[[Draw, Typical], Placer]] = {
    "Random": lambda run, typical: scores.at_random(run.random()),
    "DotProd": lambda run, typical: scores.scheduler_by(scores.dot_product),
    "GpuClustering": lambda run, typical: scores.scheduler_by(scores.gpu_clustering),
    "GpuPacking": lambda run, typical: scores.scheduler_by(scores.gpu_packing),
    "BestFit": lambda run, typical: scores.scheduler_by(scores.best_fit),
    "FGD": lambda run, typical: FGD(typical),
    KFEXT: lambda run, typical: ByKfext(run.nodes),
}
"""The constructor of each scheduler, for a run and its workload's typical pods."""
_HEAD = ("published", "here", "difference", "tolerance", "verdict")
_RIVALS = ("BestFit", "FGD")
_GAPS = [f"{KFEXT} - {policy}" for policy in _RIVALS]


@dataclass(frozen=True, slots=True)
class Figures:
    """The allocation and the fragmentation for each key and seed, in percent of all GPUs."""

    allocation: Mapping[Key, Sequence[float]]
    fragmentation: Mapping[Key, Sequence[float]]


def measure(data: Path, *, quick: bool) -> str:
    """Return the tables. `data`: the folder that has `openb`. Raises UserError."""
    folder = data / "openb"
    workloads, seeds = ((DEFAULT,), SEEDS[:1]) if quick else (WORKLOADS, SEEDS)
    published = _published(folder, workloads)
    pods = {workload: read_pods(folder, workload) for workload in workloads}
    rebuilt = _run(folder, pods, seeds)
    tables = [
        *(_allocation(published, rebuilt, workloads, load) for load in LOADS),
        _order(published, rebuilt, workloads),
        _fragmentation(published, rebuilt),
        _beside("V1: allocated, kfext beside all", rebuilt.allocation, product(workloads, LOADS)),
        _beside(
            "V2: fragmented, kfext beside all",
            rebuilt.fragmentation,
            product((DEFAULT,), FRAGMENTATION_LOADS),
        ),
    ]
    return "\n\n".join([*tables, _rounding_note(pods)])


def _published(folder: Path, workloads: Sequence[str]) -> Figures:
    allocation = product(workloads, TOLERANCES, LOADS)
    fragmentation = product((DEFAULT,), FRAGMENTATION_TOLERANCES, FRAGMENTATION_LOADS)
    return Figures(
        read_published(folder, "analysis_allo_discrete", [*allocation]),
        read_published(folder, "analysis_frag_discrete", [*fragmentation]),
    )


def _run(folder: Path, pods: Mapping[str, Sequence[Pod]], seeds: Sequence[int]) -> Figures:
    nodes = read_nodes(folder)
    models = sorted({node.model for node in nodes})
    allocation, fragmentation = {}, {}
    for workload, workload_pods in pods.items():
        typical = Typical(workload_pods, models)
        runs = [draw(nodes, workload_pods, seed=seed) for seed in seeds]
        loads = FRAGMENTATION_LOADS if workload == DEFAULT else ()
        for policy, make_placer in PLACERS.items():
            say(f"  workload {workload}: {policy}")
            courses = [
                fill(run, make_placer(run, typical), typical=typical, loads=loads)
                for run in (runs[:_KFEXT_SEEDS] if policy == KFEXT else runs)
            ]
            for load in LOADS:
                allocation[workload, policy, load] = [course.allocation(load) for course in courses]
            for load in loads:
                shares = [course.fragmentation(load) for course in courses]
                fragmentation[workload, policy, load] = shares
    return Figures(allocation, fragmentation)


def _allocation(published: Figures, rebuilt: Figures, workloads: Iterable[str], load: int) -> str:
    rows = [
        (
            workload,
            policy,
            *_comparison_cells(published.allocation[key], rebuilt.allocation[key], tolerance),
        )
        for workload in workloads
        for policy, tolerance in TOLERANCES.items()
        for key in [(workload, policy, load)]
    ]
    return table(f"V1: allocated at {load} % load", ("workload", "scheduler", *_HEAD), rows)


def _fragmentation(published: Figures, rebuilt: Figures) -> str:
    rows = [
        (
            policy,
            f"{load} %",
            *_comparison_cells(published.fragmentation[key], rebuilt.fragmentation[key], tolerance),
        )
        for policy, tolerance in FRAGMENTATION_TOLERANCES.items()
        for load in FRAGMENTATION_LOADS
        for key in [(DEFAULT, policy, load)]
    ]
    return table("V2: fragmented, workload default", ("scheduler", "load", *_HEAD), rows)


def _comparison_cells(
    published: Sequence[float], rebuilt: Sequence[float], tolerance: float
) -> tuple[str, ...]:
    expected, measured = fmean(published), fmean(rebuilt)
    difference = measured - expected
    return (
        f"{expected:.2f}",
        f"{measured:.2f}",
        f"{difference:+.2f}",
        f"{tolerance:g}",
        verdict(abs(difference) <= tolerance),
    )


def _order(published: Figures, rebuilt: Figures, workloads: Iterable[str]) -> str:
    """Return a table with a row for each workload: how many pairs have the published order."""
    rows = []
    for workload, load in product(workloads, LOADS):
        apart: list[bool] = []
        near: list[bool] = []
        for first, second in combinations(TOLERANCES, 2):
            gaps = [
                fmean(figures[workload, first, load]) - fmean(figures[workload, second, load])
                for figures in (published.allocation, rebuilt.allocation)
            ]
            is_apart = abs(gaps[0]) > TOLERANCES[first] + TOLERANCES[second]
            (apart if is_apart else near).append(gaps[0] * gaps[1] > 0)
        kept = [f"{sum(pairs)} of {len(pairs)}" for pairs in (apart, near)]
        rows.append((workload, f"{load} %", *kept, verdict(all(apart))))
    title = "V1: pairs of schedulers in the published order, by their published difference"
    head = ("workload", "load", "above both tolerances together", "below", "verdict of the first")
    return table(title, head, rows)


def _beside(
    title: str, figures: Mapping[Key, Sequence[float]], runs: Iterable[tuple[str, int]]
) -> str:
    """Return a table of all schedulers with kfext's seeds. `runs`: workloads with loads."""
    rows = []
    for workload, load in runs:
        rebuilt = {
            policy: fmean(figures[workload, policy, load][:_KFEXT_SEEDS]) for policy in PLACERS
        }
        gaps = [f"{rebuilt[KFEXT] - rebuilt[policy]:+.2f}" for policy in _RIVALS]
        rows.append(
            (workload, f"{load} %", *(f"{figure:.2f}" for figure in rebuilt.values()), *gaps)
        )
    return table(title, ("workload", "load", *PLACERS, *_GAPS), rows)


def _rounding_note(workloads: Mapping[str, Sequence[Pod]]) -> str:
    """Return a sentence on how many pods kfext counts with more than they request."""
    shares = [pod for pods in workloads.values() for pod in pods if pod.shares]
    return (
        f"kfext counts hundredths of a GPU: {sum(map(rounded_up, shares))} of {len(shares)} pods "
        f"with a GPU share were rounded up."
    )

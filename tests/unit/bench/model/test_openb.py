"""The published schedulers of the trace openb, and kfext, on clusters of a few nodes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from e2e.bench.model.openb import measure as bench
from e2e.bench.model.openb import scores
from e2e.bench.model.openb.by_kfext import ByKfext, rounded_up
from e2e.bench.model.openb.cluster import Cluster, Place
from e2e.bench.model.openb.fgd import FGD
from e2e.bench.model.openb.fill import Draw, draw, fill
from e2e.bench.model.openb.fragmentation import Typical
from e2e.bench.model.openb.trace import Node, Pod, read_nodes, read_pods, read_published
from kfext.errors import UserError


def node(gpus: int, *, cpu: int = 32_000, model: str = "T4") -> Node:
    return Node(f"{gpus} of {model}", cpu, 1000, gpus, model)


def share(milli: int, *, cpu: int = 1000, types: str = "") -> Pod:
    return Pod(cpu, 10, 1, milli, types)


def whole(gpus: int = 1, *, cpu: int = 1000, types: str = "") -> Pod:
    return Pod(cpu, 10, gpus, 1000, types)


HALF = share(500)
PLAIN = Pod(1000, 10, 0, 0)
Present = Sequence[tuple[Pod, int, Sequence[int]]]
"""Pods that are already placed, each with its row and its GPUs."""


def cluster(nodes: Sequence[Node], present: Present = ()) -> Cluster:
    cluster = Cluster(nodes)
    for pod, row, gpus in present:
        cluster.place_pod(pod, (row, gpus))
    return cluster


# --- the cluster --------------------------------------------------------------------------------

FITS: dict[str, tuple[Sequence[Node], Present, Pod, list[int]]] = {
    "enough CPU": ([node(1, cpu=900), node(1)], [], PLAIN, [1]),
    "enough memory": ([node(1), node(1)], [(Pod(0, 995, 0, 0), 0, [])], PLAIN, [1]),
    "enough free GPUs": ([node(1), node(4)], [], whole(2), [1]),
    "a GPU with enough beside a fuller GPU": ([node(2)], [(share(600), 0, [0])], HALF, [0]),
    "no GPU with enough": ([node(2)], [(share(600), 0, [0]), (share(600), 0, [1])], HALF, []),
    "a GPU of a type": ([node(1), node(1, model="P100")], [], share(500, types="P100|G2"), [1]),
}


@pytest.mark.parametrize(("nodes", "present", "pod", "expected"), FITS.values(), ids=FITS)
def test_which_nodes_fit_a_pod(
    nodes: Sequence[Node], present: Present, pod: Pod, expected: list[int]
) -> None:
    assert cluster(nodes, present).fitting(pod).tolist() == expected


# --- the schedulers -----------------------------------------------------------------------------

PLACES: dict[str, tuple[scores.Score, Sequence[Node], Present, Pod, Place | None]] = {
    "BestFit: the node with the least free": (
        scores.best_fit,
        [node(8), node(1)],
        [],
        HALF,
        (1, [0]),
    ),
    "BestFit: the fullest GPU that fits": (
        scores.best_fit,
        [node(3)],
        [(share(600), 0, [1]), (share(400), 0, [2])],
        HALF,
        (0, [2]),
    ),
    "BestFit: no capacity": (scores.best_fit, [node(1)], [], whole(2), None),
    "DotProd: the node with the least in common": (
        scores.dot_product,
        [node(8), node(8)],
        [(whole(4), 1, [0, 1, 2, 3])],
        whole(),
        (1, [4]),
    ),
    "GpuClustering: beside its kind alone": (
        scores.gpu_clustering,
        [node(8), node(8), node(8)],
        [(whole(), 0, [0]), (HALF, 1, [0]), (whole(), 1, [1]), (HALF, 2, [0])],
        HALF,
        (2, [0]),
    ),
    "GpuClustering: an empty node before another kind": (
        scores.gpu_clustering,
        [node(8), node(8)],
        [(whole(), 0, [0])],
        HALF,
        (1, [0]),
    ),
    "GpuPacking: a used GPU before a free one": (
        scores.gpu_packing,
        [node(2), node(8)],
        [(share(500), 1, [3])],
        HALF,
        (1, [3]),
    ),
    "GpuPacking: a used node before a free one": (
        scores.gpu_packing,
        [node(2), node(8)],
        [(whole(), 1, [0])],
        whole(),
        (1, [1]),
    ),
    "GpuPacking: the free node with the fewest GPUs": (
        scores.gpu_packing,
        [node(8), node(2)],
        [],
        whole(),
        (1, [0]),
    ),
    "the first of equal nodes": (scores.gpu_packing, [node(2), node(2)], [], PLAIN, (0, [])),
}


@pytest.mark.parametrize(
    ("score", "nodes", "present", "pod", "expected"), PLACES.values(), ids=PLACES
)
def test_where_a_scheduler_by_scores_places_a_pod(
    score: scores.Score, nodes: Sequence[Node], present: Present, pod: Pod, expected: Place | None
) -> None:
    assert scores.scheduler_by(score)(cluster(nodes, present), pod) == expected


def test_the_random_scheduler_uses_all_nodes_and_gpus_with_capacity() -> None:
    place = scores.at_random(np.random.default_rng(0))
    capacity = cluster([node(1), node(2), node(1)], [(share(600), 0, [0])])
    results = [place(capacity, HALF) for _ in range(50)]
    assert {(at[0], *at[1]) for at in results if at} == {(1, 0), (1, 1), (2, 0)}
    assert place(capacity, whole(3)) is None


# --- fragmentation and FGD ----------------------------------------------------------------------

USELESS: dict[str, tuple[Sequence[Pod], Node, Present, float]] = {
    "nothing of an empty node": ([whole()], node(2), [], 0.0),
    "the rest of a GPU that is too small": ([whole()], node(2), [(HALF, 0, [0])], 500.0),
    "all without enough CPU": ([whole()], node(2), [(Pod(31_500, 10, 0, 0), 0, [])], 2000.0),
    "all without enough GPUs": ([whole(2)], node(2), [(HALF, 0, [0])], 1500.0),
    "all of another type": ([whole(types="P100")], node(2), [], 2000.0),
    "all for a pod without a GPU": ([PLAIN], node(2), [], 2000.0),
    "the mean over the pods": ([whole(), whole(), HALF, PLAIN], node(2), [(HALF, 0, [0])], 625.0),
    "without the pods beyond 95 %": ([whole()] * 19 + [PLAIN], node(2), [(HALF, 0, [0])], 500.0),
}


@pytest.mark.parametrize(("typical", "on", "present", "expected"), USELESS.values(), ids=USELESS)
def test_how_much_of_a_nodes_gpus_is_useless_to_typical_pods(
    typical: Sequence[Pod], on: Node, present: Present, expected: float
) -> None:
    gpus = cluster([on], present)
    measure = Typical(typical, gpus.models)
    assert measure.fragmented(gpus.cpu, gpus.gpu, gpus.model).tolist() == [expected]


GRADIENT: dict[str, tuple[Sequence[Node], Present, Pod, Place | None]] = {
    "a part that fills a GPU": ([node(2), node(2)], [(HALF, 1, [1])], HALF, (1, [1])),
    "a whole GPU on the node that hosts no two": (
        [node(2), node(2)],
        [(HALF, 1, [0])],
        whole(),
        (1, [1]),
    ),
    "a pod without a GPU where no CPU is scarce": (
        [node(2, cpu=1500), node(2)],
        [],
        PLAIN,
        (1, []),
    ),
    "the first of equal nodes": ([node(2), node(2)], [], whole(2), (0, [0, 1])),
    "no capacity": ([node(2)], [], whole(3), None),
}


@pytest.mark.parametrize(("nodes", "present", "pod", "expected"), GRADIENT.values(), ids=GRADIENT)
def test_where_fgd_places_a_pod(
    nodes: Sequence[Node], present: Present, pod: Pod, expected: Place | None
) -> None:
    capacity = cluster(nodes, present)
    assert FGD(Typical([whole(), whole(2), HALF], capacity.models))(capacity, pod) == expected


def test_fgd_scores_a_node_again_after_a_new_pod() -> None:
    capacity = cluster([node(2), node(2)])
    place = FGD(Typical([whole(), whole(2), HALF], capacity.models))
    assert place(capacity, HALF) == (0, [0])
    capacity.place_pod(whole(2), (0, [0, 1]))
    assert place(capacity, HALF) == (1, [0])
    capacity.place_pod(HALF, (1, [1]))
    assert place(capacity, HALF) == (1, [1])


# --- a run --------------------------------------------------------------------------------------

SMALL = [node(8), node(2)]
DRAWN: dict[str, tuple[Sequence[Pod], int]] = {
    "copies are added up to 130 % of the GPUs": ([whole()], 13),
    "pods are dropped down to it": ([whole()] * 20, 13),
    "of several GPUs only one counts": ([whole(2)], 7),
}


@pytest.mark.parametrize(("pods", "expected"), DRAWN.values(), ids=DRAWN)
def test_the_pods_of_a_run_request_130_percent_of_the_gpus(
    pods: Sequence[Pod], expected: int
) -> None:
    assert len(draw(SMALL, pods, seed=1).pods) == expected


def test_a_seed_always_draws_the_same_run_and_a_different_seed_a_different_run() -> None:
    pods = [share(100 * size) for size in range(1, 9)]
    first, same, other = (draw(SMALL, pods, seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert first.pods != other.pods


def test_allocation_and_fragmentation_at_a_load() -> None:
    run = Draw(1, [node(2)], [HALF, whole(), whole(), HALF])
    course = fill(
        run,
        scores.scheduler_by(scores.best_fit),
        typical=Typical([whole()], ["T4"]),
        loads=(25, 75),
    )
    assert [course.allocation(load) for load in (25, 75, 125, 150)] == [25, 75, 75, 100]
    assert [course.fragmentation(load) for load in (25, 75)] == [25, 25]
    assert np.isnan(course.fragmentation(125))


# --- kfext --------------------------------------------------------------------------------------

PLACED: dict[str, tuple[Sequence[Node], Sequence[Pod], list[Place | None]]] = {
    "parts share a GPU": ([node(2)], [HALF, HALF, HALF], [(0, [0]), (0, [0]), (0, [1])]),
    "a whole GPU is no GPU with a part": (
        [node(2)],
        [HALF, whole(), whole()],
        [(0, [0]), (0, [1]), None],
    ),
    "a refused shape is refused again": ([node(1)], [whole(2), whole(2)], [None, None]),
    "several GPUs": ([node(2), node(4)], [whole(4)], [(1, [0, 1, 2, 3])]),
    "a GPU type": ([node(1), node(1, model="P100")], [share(500, types="G2|P100")], [(1, [0])]),
    "a finer part than a hundredth": ([node(1)], [share(501), share(499)], [(0, [0]), None]),
    "a pod without a GPU": ([node(1)], [PLAIN], [(0, [])]),
}


@pytest.mark.parametrize(("nodes", "pods", "expected"), PLACED.values(), ids=PLACED)
def test_where_kfext_places_pods(
    nodes: Sequence[Node], pods: Sequence[Pod], expected: list[Place | None]
) -> None:
    on, place, results = Cluster(nodes), ByKfext(nodes), []
    for pod in pods:
        at = place(on, pod)
        results.append(at)
        if at is not None:
            on.place_pod(pod, at)
    assert results == expected


def test_a_share_finer_than_a_hundredth_is_rounded_up() -> None:
    assert [rounded_up(pod) for pod in (share(501), share(500), whole(), PLAIN)] == [
        True,
        False,
        False,
        False,
    ]


# --- the files ----------------------------------------------------------------------------------

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,10,1,500,T4|P100\n"
FIGURES = "workload,sc_policy,seed,100\nopenb_pod_list_default,06-FGD,42,90\n"
NODE_FILE = "openb_node_list_gpu_node.csv"
POD_FILE = "openb_pod_list_default.csv"
FIGURE_FILE = "expected/results.csv"
FGD_100 = ("default", "FGD", 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "expected").mkdir()
    for name, text in ((NODE_FILE, NODES), (POD_FILE, PODS), (FIGURE_FILE, FIGURES)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_nodes_pods_and_results_are_read(folder: Path) -> None:
    assert read_nodes(folder) == [Node("a", 64_000, 1000, 2, "T4")]
    assert read_pods(folder, "default") == [Pod(1000, 10, 1, 500, "T4|P100")]
    more = FIGURES + "openb_pod_list_default,06-FGD,43,92\nopenb_pod_list_other,06-FGD,43,1\n"
    (folder / FIGURE_FILE).write_text(more)
    assert read_published(folder, "results", [FGD_100]) == {FGD_100: [90.0, 92.0]}


Read = Callable[[Path], object]
WRONG: dict[str, tuple[str, str | None, Read, str]] = {
    "no file": (NODE_FILE, None, read_nodes, f"{NODE_FILE} cannot be read: No such file"),
    "no column": (
        NODE_FILE,
        "sn,gpu\na,1\n",
        read_nodes,
        f"{NODE_FILE}, line 1 has no column cpu_milli",
    ),
    "no number": (
        NODE_FILE,
        NODES + "b,many,1,1,T4\n",
        read_nodes,
        f"{NODE_FILE}, line 3: cpu_milli 'many' is not a whole number",
    ),
    "a part of two GPUs": (
        POD_FILE,
        PODS + "q,1,1,2,500,\n",
        lambda folder: read_pods(folder, "default"),
        f"{POD_FILE}, line 3: num_gpu 2 with gpu_milli 500",
    ),
    "no figure": (
        FIGURE_FILE,
        FIGURES + "openb_pod_list_default,06-FGD,43,much\n",
        lambda folder: read_published(folder, "results", [FGD_100]),
        f"{FIGURE_FILE}, line 3: 100 'much' is not a number",
    ),
    "no line for a policy": (
        FIGURE_FILE,
        FIGURES,
        lambda folder: read_published(folder, "results", [("default", "Random", 100)]),
        f"{FIGURE_FILE} has no line for workload default and policy Random",
    ),
}


@pytest.mark.parametrize(("name", "text", "read", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_its_line(
    folder: Path, name: str, text: str | None, read: Read, message: str
) -> None:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(UserError) as refused:
        read(folder)
    assert message in str(refused.value)


# --- the tables ---------------------------------------------------------------------------------


def test_each_value_is_compared_within_its_tolerance(tmp_path: Path) -> None:
    folder = tmp_path / "openb"
    (folder / "expected").mkdir(parents=True)
    (folder / NODE_FILE).write_text(NODES.replace(",2,T4", ",10,T4"))
    rows = [f"p{number},1000,10,1,1000," for number in range(8)]
    (folder / POD_FILE).write_text("\n".join([PODS.partition("\n")[0], *rows]))
    for results, loads, figure in (
        ("analysis_allo_discrete", (100, 130), 99.5),
        ("analysis_frag_discrete", (40, 80, 100), 7.0),
    ):
        lines = [f"workload,sc_policy,{','.join(map(str, loads))}"]
        for number, policy in enumerate(bench.TOLERANCES):
            cells = ",".join([str(figure)] * len(loads))
            lines.append(f"openb_pod_list_default,0{number}-{policy},{cells}")
        (folder / "expected" / f"{results}.csv").write_text("\n".join(lines))
    printed = bench.measure(tmp_path, quick=True)
    assert printed.count("PASS") == 14
    assert printed.count("MISS") == 9

"""The command line: python -m e2e.bench [NAME|all] [--quick]."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from e2e.bench import (
    first_bind,
    gang,
    new_nodes,
    page,
    plan,
    review,
    scale_idle,
    scale_live,
    scale_queue,
    tick,
)
from e2e.bench import network as network_bench
from e2e.bench.bed import kfext_cluster
from e2e.bench.cluster import compare, timed
from e2e.bench.cluster.waiting import LOADS
from e2e.bench.companion import measure as companion
from e2e.bench.companion import overhead
from e2e.bench.gpu_share import measure as gpu_share
from e2e.bench.gpu_share.cards import CARDS
from e2e.bench.model import bad_nodes, fairness, preempt, size, stall, starts, tables
from e2e.bench.model import measure as simulate
from e2e.bench.model.worlds import WORLDS
from e2e.bench.peers import measure as peers
from e2e.bench.report import conditions
from e2e.bench.rescale import run as rescale
from e2e.bench.stream import measure as stream
from e2e.testbed import preflight
from e2e.testbed.cluster import NotReadyError
from e2e.testbed.progress import say, step
from kfext.errors import UserError

_PURE: dict[str, Callable[..., str]] = {
    "plan": plan.measure,
    "tick": tick.measure,
    "simulate": simulate.measure,
    "simulate-size": size.measure,
    "preempt": preempt.measure,
    "stall": stall.measure,
    "fairness": fairness.measure,
    "bad-nodes": bad_nodes.measure,
    "starts": starts.measure,
}
_ON_A_CLUSTER: dict[str, Callable[..., str]] = {
    "review": review.measure,
    "first-bind": first_bind.measure,
    "gang": gang.measure,
}
_SCALE: dict[str, Callable[..., str]] = {
    "scale-queue": scale_queue.measure,
    "scale-live": scale_live.measure,
    "scale-idle": scale_idle.measure,
}
"""Benchmarks on a cluster of their own; `scale` runs all three."""
_COMPANION = ("companion", "overhead", "rescale", "stream")
"""The benchmarks of the companion; `companion` alone runs all four."""
_LINK = "1gbit"


@click.command(help=__doc__)
@click.argument(
    "what",
    type=click.Choice(
        [
            *("all", *_PURE, "cluster", "companion", "overhead", "rescale", "stream"),
            *("network", "new-nodes", "page", "peers", "gpu-share", "tables"),
            *_ON_A_CLUSTER,
            *("scale", *_SCALE),
        ]
    ),
    default="all",
)
@click.option("--quick", is_flag=True, help="Few repeats, to check that the benchmark works.")
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    help="cluster: time until the last arrival, or ten times the wait of a job; stream: the "
    "approximate duration.",
)
@click.option(
    "--link",
    type=click.Choice(compare.LINKS),
    multiple=True,
    help="cluster, network: the nodes' links (1gbit, and 10gbit if compute is a wait); network "
    "takes several.",
)
@click.option(
    "--repeats",
    type=int,
    help="network: for each job and placement (3); cluster with waits, companion, gpu-share, "
    "new-nodes, rescale, stream (3), overhead (10): for each arm.",
)
@click.option(
    "--shape",
    type=click.Choice(stream.SHAPES),
    default=stream.NINE,
    show_default=True,
    help="stream: its jobs; servers: many jobs with a parameter server, as in DRAGON.",
)
@click.option(
    "--network",
    type=click.Choice(compare.NETWORKS),
    default="pod",
    help="cluster: kfext's network.",
)
@click.option(
    "--compute",
    type=click.Choice(["real", "wait"]),
    default="real",
    show_default=True,
    help="cluster: wait replaces compute by a timed wait, as for an accelerator.",
)
@click.option(
    "--load",
    type=click.Choice([f"{load:g}" for load in LOADS]),
    multiple=True,
    help="cluster with waits: the requested fraction of the capacity; by default all loads.",
)
@click.option("--calibrate", is_flag=True, help="companion: only calibrate the node.")
@click.option(
    "--part",
    type=click.Choice([*companion.PARTS, *gpu_share.PARTS, *tables.PARTS, *WORLDS]),
    multiple=True,
    help=f"companion: the schedules to run ({', '.join(companion.PARTS)}); gpu-share: the "
    f"parts ({', '.join(gpu_share.DEFAULT_PARTS)}); tables: the papers "
    f"({', '.join(tables.PARTS)}); simulate: the worlds ({', '.join(WORLDS)}).",
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="tables: the folder of the traces, with a folder for each paper.",
)
@click.option(
    "--card", type=click.Choice(list(CARDS)), default="cpu", help="gpu-share: cuda is a real GPU."
)
@click.option(
    "--anew",
    is_flag=True,
    help="cluster with waits, companion, gpu-share, overhead, rescale, stream: repeat stored runs.",
)
def main(
    what: str,
    quick: bool,
    minutes: float,
    link: tuple[str, ...],
    repeats: int | None,
    shape: str,
    network: str,
    compute: str,
    load: tuple[str, ...],
    calibrate: bool,
    part: tuple[str, ...],
    data: Path | None,
    card: str,
    anew: bool,
) -> None:

    def run(name: str, measure: Callable[[], str]) -> None:
        with step(f"benchmark {name}"):
            report = measure()
        print(f"{report}\n", flush=True)

    if what == "tables":
        if data is None:
            raise click.UsageError("tables needs --data, the folder of the traces")
        chosen = [name for name in tables.PARTS if name in part] or [*tables.PARTS]
        run("tables", partial(tables.measure, data, parts=chosen, quick=quick))
    for name in [name for name in _PURE if what in ("all", name)]:
        options = {"worlds": part} if name == "simulate" else {}
        run(name, partial(_PURE[name], quick=quick, **options))
    on_a_cluster = [name for name in _ON_A_CLUSTER if what in ("all", name)]
    if on_a_cluster:
        with kfext_cluster() as bench:
            for name in on_a_cluster:
                run(name, partial(_ON_A_CLUSTER[name], bench, quick=quick))
    for name in [name for name in _SCALE if what in ("all", "scale", name)]:
        run(name, partial(_SCALE[name], quick=quick))
    companion_benchmarks = _COMPANION if what == "companion" and not (part or calibrate) else ()

    def with_store(measure: Callable[..., str], *, default: int = 3) -> Callable[..., str]:
        runs = 1 if quick else repeats or default
        return partial(measure, quick=quick, repeats=runs, anew=anew)

    schedules = [title for title in companion.PARTS if title in part] or companion.PARTS
    gpu_parts = [title for title in gpu_share.PARTS if title in part] or gpu_share.DEFAULT_PARTS
    companion_jobs = partial(companion.measure, only_calibrate=calibrate, parts=schedules)
    real_compute = partial(compare.measure, minutes=minutes, network=network)
    loads = [fraction for fraction in LOADS if f"{fraction:g}" in load] or LOADS
    timed_waits = partial(timed.measure, minutes=minutes, network=network, loads=loads)
    clusters: dict[str, Callable[[], str]] = {
        "real": partial(real_compute, quick=quick, link=link[0] if link else _LINK),
        "wait": with_store(partial(timed_waits, link=link[0] if link else timed.LINK)),
    }
    others: dict[str, Callable[[], str]] = {
        "cluster": clusters[compute],
        "companion": with_store(companion_jobs),
        "overhead": with_store(overhead.measure, default=10),
        "rescale": with_store(rescale.measure),
        "stream": with_store(partial(stream.measure, shape=shape, minutes=minutes)),
        "gpu-share": with_store(partial(gpu_share.measure, card=card, parts=gpu_parts)),
        "network": partial(
            network_bench.measure, links=link or (_LINK,), repeats=1 if quick else repeats or 3
        ),
        "new-nodes": partial(new_nodes.measure, quick=quick, repeats=repeats or 3),
        "page": partial(page.measure, quick=quick),
        "peers": partial(peers.measure, quick=quick),
    }
    for name in [name for name in others if what in ("all", name) or name in companion_benchmarks]:
        run(name, others[name])
    print(conditions(" ".join(["python -m e2e.bench", *sys.argv[1:]])))


if __name__ == "__main__":
    try:
        main()
    except (FileExistsError, NotReadyError, UserError, preflight.Unavailable) as error:
        say(f"error: {error}")
        sys.exit(1)

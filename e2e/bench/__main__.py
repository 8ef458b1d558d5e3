"""The command line: python -m e2e.bench [NAME|all] [--quick]."""

import sys
from collections.abc import Callable
from functools import partial

import click

from e2e.bench import (
    first_bind,
    fits,
    gang,
    plan,
    polling,
    quality,
    review,
    scale_idle,
    scale_live,
    scale_queue,
    tick,
    worst,
)
from e2e.bench.bed import kfext_cluster
from e2e.bench.cluster import compare
from e2e.bench.companion import measure as companion
from e2e.bench.companion import overhead
from e2e.bench.network import measure as network_bench
from e2e.bench.peers import measure as peers
from e2e.bench.report import conditions
from e2e.bench.rescale import measure as rescale
from e2e.bench.stream import measure as stream
from e2e.testbed import preflight
from e2e.testbed.cluster import NotReadyError
from e2e.testbed.progress import say, step

_PURE: dict[str, Callable[..., str]] = {
    "plan": plan.measure,
    "tick": tick.measure,
    "quality": quality.measure,
}
_ON_A_CLUSTER: dict[str, Callable[..., str]] = {
    "review": review.measure,
    "first-bind": first_bind.measure,
    "gang": gang.measure,
    "fits": fits.measure,
}
_SCALE: dict[str, Callable[..., str]] = {
    "scale-queue": scale_queue.measure,
    "scale-live": scale_live.measure,
    "scale-idle": scale_idle.measure,
}
"""Each on a cluster of its own; `scale` is all three."""
_ALONE: dict[str, Callable[..., str]] = {"worst": worst.measure, "polling": polling.measure}
"""Each on a cluster of its own too."""


@click.command(help=__doc__)
@click.argument(
    "what",
    type=click.Choice(
        [
            *("all", *_PURE, "cluster", "companion", "overhead", "rescale", "stream"),
            *("network", "peers"),
            *_ON_A_CLUSTER,
            *("scale", *_SCALE, *_ALONE),
        ]
    ),
    default="all",
)
@click.option("--quick", is_flag=True, help="Few repeats: to see that it works, not for figures.")
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    help="cluster: until all jobs came; stream: about how long it takes.",
)
@click.option(
    "--link",
    type=click.Choice(compare.LINKS),
    multiple=True,
    default=["1gbit"],
    show_default=True,
    help="cluster, network: the nodes' links; network takes several.",
)
@click.option(
    "--repeats",
    type=int,
    help="network: of every job and place (3); companion, rescale, stream (3), overhead (10): of "
    "every arm.",
)
@click.option(
    "--network", type=click.Choice(compare.NETWORKS), default="pod", help="cluster: under kfext."
)
@click.option("--calibrate", is_flag=True, help="companion: only try what caps do on the node.")
@click.option(
    "--part",
    type=click.Choice(companion.PARTS),
    multiple=True,
    default=companion.PARTS,
    show_default=True,
    help="companion: the schedules to run.",
)
@click.option(
    "--anew",
    is_flag=True,
    help="companion, overhead, rescale, stream: measure again what is stored.",
)
def main(
    what: str,
    quick: bool,
    minutes: float,
    link: tuple[str, ...],
    repeats: int | None,
    network: str,
    calibrate: bool,
    part: tuple[str, ...],
    anew: bool,
) -> None:

    def run(name: str, measure: Callable[[], str]) -> None:
        with step(f"benchmark {name}"):
            measured = measure()
        print(f"{measured}\n", flush=True)

    for name in [name for name in _PURE if what in ("all", name)]:
        run(name, partial(_PURE[name], quick=quick))
    on_a_cluster = [name for name in _ON_A_CLUSTER if what in ("all", name)]
    if on_a_cluster:
        with kfext_cluster() as bench:
            for name in on_a_cluster:
                run(name, partial(_ON_A_CLUSTER[name], bench, quick=quick))
    for name in [name for name in _SCALE if what in ("all", "scale", name)]:
        run(name, partial(_SCALE[name], quick=quick))
    for name in [name for name in _ALONE if what in ("all", name)]:
        run(name, partial(_ALONE[name], quick=quick))
    if what in ("all", "cluster"):
        measure = partial(compare.measure, minutes=minutes, link=link[0], network=network)
        run("cluster", partial(measure, quick=quick))
    if what in ("all", "companion"):
        shared = partial(companion.measure, quick=quick, repeats=1 if quick else repeats or 3)
        run("companion", partial(shared, only_calibrate=calibrate, anew=anew, parts=part))
    if what in ("all", "overhead"):
        often = 1 if quick else repeats or 10
        run("overhead", partial(overhead.measure, quick=quick, repeats=often, anew=anew))
    often = 1 if quick else repeats or 3
    if what in ("all", "rescale"):
        run("rescale", partial(rescale.measure, quick=quick, repeats=often, anew=anew))
    if what in ("all", "stream"):
        shared = partial(stream.measure, quick=quick, minutes=minutes, repeats=often)
        run("stream", partial(shared, anew=anew))
    if what in ("all", "network"):
        run(
            "network",
            partial(network_bench.measure, links=link, repeats=1 if quick else repeats or 3),
        )
    if what in ("all", "peers"):
        run("peers", lambda: peers.measure(quick=quick))
    print(conditions(" ".join(["python -m e2e.bench", *sys.argv[1:]])))


if __name__ == "__main__":
    try:
        main()
    except (FileExistsError, NotReadyError, preflight.Unavailable) as error:
        say(f"error: {error}")
        sys.exit(1)

"""GPU sharing without Kubernetes: python -m e2e.bench.gpu_share --card cpu|cuda."""

import signal
import sys

import click

from e2e.bench.gpu_share.cards import CARDS
from e2e.bench.gpu_share.measure import DEFAULT_PARTS, PARTS, measure
from e2e.bench.report import conditions
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import say


@click.command(help=__doc__)
@click.option("--card", type=click.Choice(list(CARDS)), default="cpu", show_default=True)
@click.option(
    "--part",
    type=click.Choice(PARTS),
    multiple=True,
    default=DEFAULT_PARTS,
    show_default=True,
    help="smoke: a few short runs, which are not stored.",
)
@click.option("--repeats", type=int, default=3, show_default=True, help="Runs of every arm.")
@click.option("--minutes", type=float, help="Begin no run that would end later; default: no limit.")
@click.option("--quick", is_flag=True, help="Short runs, once: to check that it works.")
@click.option("--anew", is_flag=True, help="Repeat stored runs.")
def main(
    card: str,
    part: tuple[str, ...],
    repeats: int,
    minutes: float | None,
    quick: bool,
    anew: bool,
) -> None:
    # Like Ctrl-C, SIGTERM unwinds, so that no job survives.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    measured = measure(
        card=card, parts=part, repeats=repeats, minutes=minutes, quick=quick, anew=anew
    )
    command = " ".join(["python -m e2e.bench.gpu_share", *sys.argv[1:]])
    print(f"{measured}\n\n{conditions(command, cluster=False)}")


if __name__ == "__main__":
    try:
        main()
    except Unavailable as missing:
        say(f"error: {missing}")
        sys.exit(1)

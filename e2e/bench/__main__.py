"""The command line: python -m e2e.bench [review|gang|plan|first-bind|all] [--quick]."""

import sys
from collections.abc import Callable

import click

from e2e.bench import first_bind, gang, plan, review
from e2e.bench.cluster import Bench, kfext_cluster
from e2e.bench.report import conditions
from e2e.testbed import preflight
from e2e.testbed.cluster import NotReadyError
from e2e.testbed.progress import say, step

_ON_A_CLUSTER: dict[str, Callable[..., str]] = {
    "review": review.measure,
    "first-bind": first_bind.measure,
    "gang": gang.measure,
}


@click.command(help=__doc__)
@click.argument("what", type=click.Choice(["all", "plan", *_ON_A_CLUSTER]), default="all")
@click.option("--quick", is_flag=True, help="Few repeats: to see that it works, not for figures.")
def main(what: str, quick: bool) -> None:

    def run(name: str, bench: Bench | None) -> None:
        with step(f"benchmark {name}"):
            measured = (
                _ON_A_CLUSTER[name](bench, quick=quick) if bench else plan.measure(quick=quick)
            )
        print(f"{measured}\n", flush=True)

    chosen = ["plan", *_ON_A_CLUSTER] if what == "all" else [what]
    if "plan" in chosen:
        run("plan", None)
    on_a_cluster = [name for name in chosen if name in _ON_A_CLUSTER]
    if on_a_cluster:
        with kfext_cluster() as bench:
            for name in on_a_cluster:
                run(name, bench)
    command = " ".join(["python -m e2e.bench", what, *(["--quick"] if quick else [])])
    print(conditions(command))


if __name__ == "__main__":
    try:
        main()
    except (FileExistsError, NotReadyError, preflight.Unavailable) as error:
        say(f"error: {error}")
        sys.exit(1)

"""A cluster to try kfext on: two real nodes with Trainer and kfext, and a managed namespace.

Run with `make up`; the files in `examples/` run on it as they stand. `make down` ends it.
"""

import sys
from pathlib import Path

import click

from e2e.harness.install import INSTALL, create_namespace, install_kfext
from e2e.testbed import lifecycle, trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import agenda

NAME, NAMESPACE = "try", "team-a"


@click.group(help=__doc__)
def main() -> None: ...


@main.command(help="Bring the cluster up and leave it running.")
def up() -> None:
    with lifecycle.terminable():
        bed = bring_up()
    print("\n".join(welcome(bed)))


def bring_up() -> Testbed:
    """Bring the cluster up with kfext; if that fails, nothing of it remains."""
    try:
        builds = lifecycle.planned(real_nodes=True, programs=trainer.BINARIES)
        with agenda([*builds, *lifecycle.STARTS, trainer.START, INSTALL]):
            lifecycle.prepare(real_nodes=True, programs=trainer.BINARIES)
            return _started()
    except (Unavailable, FileExistsError) as error:
        sys.exit(str(error))


def _started() -> Testbed:
    bed = lifecycle.up(NAME, real_nodes=2)
    try:
        trainer.start(bed)
        install_kfext(bed)
        create_namespace(bed, NAMESPACE, managed=True)
    except BaseException:
        lifecycle.down(NAME)
        raise
    return bed


@main.command(help="End the cluster and everything it left.")
def down() -> None:
    lifecycle.down(NAME)


def welcome(bed: Testbed) -> list[str]:
    """Return what to type: the environment, then three commands to try."""
    folders = [bed.binary("kubectl").parent, Path(sys.executable).parent]
    return [
        "",
        f"Two nodes with kfext; namespace {NAMESPACE} is managed. First, for this shell:",
        "",
        f"  export KUBECONFIG={bed.kubeconfig} PATH={':'.join(map(str, folders))}:$PATH",
        f"  kubectl config set-context --current --namespace={NAMESPACE}",
        "",
        "Then try:",
        "",
        "  kubectl apply -f examples/pytorchjob.yaml",
        "  kubectl get trainingplans",
        "  kubectl kfext explain resnet",
    ]


if __name__ == "__main__":
    main()

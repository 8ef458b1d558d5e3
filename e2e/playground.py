"""A cluster to try kfext on: two real nodes with Trainer and kfext, and a managed namespace.

Run with `make up`; the files in `examples/` run on it unchanged. `make down` deletes it.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from e2e.harness.install import INSTALL, component, create_namespace, install_kfext
from e2e.testbed import lifecycle, metrics_server, trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import Planned, agenda, step
from e2e.testbed.realnodes import nodes

NAME, NAMESPACE = "try", "team-a"
_MILLICORES = 700
"""The CPU of each node, so that four pods of an example fill both nodes on any machine."""
_CHECKPOINTS = Path("/tmp/kfext-example-elastic")
"""Where `examples/elastic.yaml` saves; deleted, so that it does not resume an earlier training."""
_POLICY = {
    "apiVersion": "kfext.dev/v1alpha1",
    "kind": "TrainingPolicy",
    "metadata": {"name": "playground"},
    "spec": {"companion": {"scale": {"parameters": {"wait": 30}}}},
}
"""A job waits for 30 s before kfext scales others down for it, so that the user can see it wait."""
_PROGRAMS = (*trainer.BINARIES, metrics_server.NAME)
_SHAPE = Planned("make the nodes small, each on one CPU", 10)
_MEASURE = Planned("start metrics-server, for the use of CPU", 30)


@dataclass(frozen=True, slots=True)
class Scene:
    """A command to try. `shows`: what it shows. `look`: the output to look for."""

    shows: str
    command: str
    look: str


STORY = (
    Scene(
        "An elastic job fills both nodes. See its progress:",
        "kubectl apply -f examples/elastic.yaml && kubectl kfext top --watch",
        "After half a minute: STEP, LEFT (an hour) and 4 WORKERS. Ctrl-C ends a watch.",
    ),
    Scene(
        "A second job waits. See why:",
        "kubectl apply -f examples/pytorchjob.yaml && sleep 3 && kubectl kfext explain resnet",
        "NoRoom: its request, the free capacity, and its position in the queue.",
    ),
    Scene(
        "The elastic job is scaled down, and up again:",
        "kubectl kfext top --watch",
        "Within two minutes elastic has fewer WORKERS, and resnet runs. After its end: 4 again.",
    ),
    Scene(
        "Two jobs share the CPU of a node. The job that ends first is boosted:",
        "kubectl apply -f examples/resize.yaml && kubectl kfext top --watch --sort left",
        "Within two minutes: * beside the jobs with a changed request, and less LEFT for short.",
    ),
    Scene(
        "While both run: see the jobs on each node, the queue, and each change with its reason:",
        "kubectl kfext ui",
        'A page in your browser: its timeline, and a job\'s "What happened". Ctrl-C ends it.',
    ),
)


@click.group(help=__doc__)
def main() -> None: ...


@main.command(help="Start the cluster and keep it running.")
def up() -> None:
    with lifecycle.terminable():
        bed = bring_up()
    print("\n".join(welcome(bed)))


def bring_up(name: str = NAME) -> Testbed:
    """Start the cluster with kfext; if that fails, delete all of it."""
    try:
        builds = lifecycle.planned(real_nodes=True, programs=_PROGRAMS)
        starts = [*lifecycle.STARTS, _SHAPE, trainer.START, INSTALL, _MEASURE]
        with agenda([*builds, *starts]):
            lifecycle.prepare(real_nodes=True, programs=_PROGRAMS)
            bed = lifecycle.up(name, real_nodes=2)
            try:
                _set_up(bed)
            except BaseException:
                tear_down(name)
                raise
            return bed
    except (Unavailable, FileExistsError) as error:
        sys.exit(str(error))


def _set_up(bed: Testbed) -> None:
    """Limit the nodes' CPU, and install Trainer, kfext, metrics-server and a namespace."""
    shutil.rmtree(_CHECKPOINTS, ignore_errors=True)
    with step(_SHAPE):
        for number, node in enumerate(nodes(bed)):
            cpu = number % (os.cpu_count() or 1)
            node.on_cpu(cpu, millicores=min(_MILLICORES, node.millicores))
    trainer.start(bed)
    install_kfext(bed)
    for manifest in (*component("pod-resize"), _POLICY):
        bed.api.apply(manifest)
    with step(_MEASURE):
        metrics_server.start(bed)
    create_namespace(bed, NAMESPACE, managed=True)


@main.command(help="Delete the cluster and its files.")
def down() -> None:
    tear_down(NAME)
    print("the cluster is gone; unset KUBECONFIG in the shell that used it")


def tear_down(name: str) -> None:
    """Delete a cluster and the files of its examples on this machine."""
    lifecycle.down(name)
    shutil.rmtree(_CHECKPOINTS, ignore_errors=True)


def welcome(bed: Testbed) -> list[str]:
    """Return the lines to print: commands that set up the shell, then the scenes of the story."""
    folders = [bed.binary("kubectl").parent, Path(sys.executable).parent]
    lines = [
        "",
        f"Two nodes with kfext; namespace {NAMESPACE} is managed. First, for this shell:",
        "",
        f"  export KUBECONFIG={bed.kubeconfig} PATH={':'.join(map(str, folders))}:$PATH",
        f"  kubectl config set-context --current --namespace={NAMESPACE}",
        "",
        "Then, one after the other, at any pace; `make down` deletes the cluster:",
    ]
    for number, scene in enumerate(STORY, start=1):
        lines += ["", f"  {number}. {scene.shows}", f"     {scene.command}", f"     {scene.look}"]
    return lines


if __name__ == "__main__":
    main()

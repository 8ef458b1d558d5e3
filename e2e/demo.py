"""The demo: the same real jobs under plain Kubernetes and under kfext, sent with the Kubeflow SDK.

Run with `make demo`. It brings up a cluster of two real nodes, installs kfext as an administrator
would, trains for real, prints what went where and how fast, and cleans up.
"""

import json
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import click
from kubeflow.training import TrainingClient
from rich.console import Console
from rich.table import Table

from e2e.harness.install import create_namespace, install_kfext, kubectl
from e2e.harness.sdk_jobs import pytorch_job, tf_job
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import say, step

NAME = "demo"
PLAIN, MANAGED = "plain", "managed"
_DEADLINE_SECONDS = 900
_SCALES = ".venv/bin/python -m e2e.bench rescale --quick  # a quarter of an hour"


@dataclass(frozen=True)
class Outcome:
    """How one job went; seconds from submit to Succeeded, as the SDK sees it."""

    job: str
    namespace: str
    places: dict[str, str]
    seconds: float
    totals: dict[str, float]


@click.command(help=__doc__)
@click.option("--keep", is_flag=True, help="Leave the cluster up, to look around.")
@click.option("--steps", default=80, show_default=True, help="Training steps of the PyTorchJob.")
def main(*, keep: bool, steps: int) -> None:
    """Run the demo."""
    # Like Ctrl-C: it unwinds, so that the cluster is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        bed = lifecycle.up(NAME, real_nodes=2)
    except Unavailable as missing:
        sys.exit(f"the demo trains on real nodes, which this machine cannot have: {missing}")
    try:
        show(bed, compare(bed, steps=steps))
        say("\nTo see a job make room for a gang that waits, and grow back afterwards, run")
        say(f"  {_SCALES}")
        if keep:
            say("\nThe cluster stays up. Look around, then end it:")
            say(f"  export KUBECONFIG={bed.kubeconfig}")
            say("  kubectl get nodes,pods,trainingplans -A -o wide")
            say(f"  python -m e2e.testbed down --name {NAME}")
            return
    except BaseException:
        lifecycle.down(NAME)
        raise
    with step("clean up"):
        lifecycle.down(NAME)


def compare(bed: Testbed, *, steps: int) -> list[Outcome]:
    """Train the same jobs in a plain and in a managed namespace, one after the other."""
    with step("install kfext: kubectl apply --server-side -k manifests/overlays/testbed"):
        install_kfext(bed)
    create_namespace(bed, PLAIN, managed=False)
    create_namespace(bed, MANAGED, managed=True)
    outcomes = []
    for namespace in (PLAIN, MANAGED):
        ddp = pytorch_job("ddp", arguments=("--model", "mlp", "--steps", str(steps)))
        outcomes.append(train(bed, ddp, namespace=namespace))
        outcomes.append(train(bed, tf_job("ps", arguments=("--steps", "200")), namespace=namespace))
    return outcomes


def train(bed: Testbed, job: Any, *, namespace: str) -> Outcome:
    """Submit a job with the SDK, wait for its end, and return how it went."""
    name, kind = job.metadata.name, job.kind
    sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=namespace, job_kind=kind)
    with step(f"{kind} {name} in namespace {namespace}", expect="1 minute"):
        began = time.monotonic()
        sdk.create_job(job, namespace=namespace)
        sdk.wait_for_job_conditions(
            name,
            namespace=namespace,
            job_kind=kind,
            polling_interval=1,
            wait_timeout=_DEADLINE_SECONDS,
            callback=_Watch(bed),
        )
        seconds = time.monotonic() - began
    logs, _ = sdk.get_job_logs(name, namespace=namespace, job_kind=kind)
    pods = sdk.get_job_pods(name, namespace=namespace)
    return Outcome(
        job=f"{kind} {name}",
        namespace=namespace,
        places={pod.metadata.name: pod.spec.node_name for pod in pods},
        seconds=seconds,
        totals=_totals("\n".join(logs.values())),
    )


class _Watch:
    """Prints the progress of a job each time that its TrainingPlan shows more."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self._step = 0

    def __call__(self, job: Any) -> None:
        """Look at the TrainingPlan of a job; without kfext it has none."""
        namespace = job.metadata.namespace
        plans = self._bed.api.get(f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans")
        for plan in plans["items"]:
            progress = plan.get("status", {}).get("progress", {})
            if plan["spec"]["job"]["uid"] == job.metadata.uid and "step" in progress:
                self._show(progress)

    def _show(self, progress: dict[str, Any]) -> None:
        if progress["step"] != self._step:
            self._step = progress["step"]
            rate = progress.get("stepsPerSecond", 0.0)
            say(
                f"    step {self._step}: {progress['metric']} {progress['value']:.4g}, {rate:.2f}/s"
            )


def show(bed: Testbed, outcomes: list[Outcome]) -> None:
    """Print the comparison, the TrainingPlans, and what kfext changed and why."""
    console = Console(width=max(112, Console().width))
    table = Table(title="The same jobs, with and without kfext")
    for column in ("job", "placed by", "where its pods ran"):
        table.add_column(column, no_wrap=True)
    for column in ("nodes", "steps/s", "CPU s", "seconds"):
        table.add_column(column, justify="right")
    for outcome in sorted(outcomes, key=lambda one: one.job):
        table.add_row(
            outcome.job,
            "plain Kubernetes" if outcome.namespace == PLAIN else "kfext",
            _where(outcome),
            str(len(set(outcome.places.values()))),
            f"{outcome.totals['steps_per_second']:.2f}",
            f"{outcome.totals['cpu_seconds']:.1f}",
            f"{outcome.seconds:.0f}",
        )
    console.print(table)
    console.print("\n$ kubectl get trainingplans -A")
    console.print(kubectl(bed, "get", "trainingplans", "-A"), highlight=False)
    console.print("What kfext changed, and why (events of the jobs):")
    columns = "custom-columns=JOB:.involvedObject.name,REASON:.reason,MESSAGE:.message"
    events = kubectl(
        bed, "get", "events", "-n", MANAGED, "-o", columns,
        "--field-selector=reportingComponent=kfext-controller",
    )  # fmt: skip
    console.print(events, highlight=False)


def _where(outcome: Outcome) -> str:
    """Return a line for each node with the replicas that ran on it."""
    name = outcome.job.split()[-1]
    pods_of: dict[str, list[str]] = {}
    for pod, node in sorted(outcome.places.items()):
        pods_of.setdefault(node, []).append(pod.removeprefix(f"{name}-"))
    return "\n".join(f"{node}: {', '.join(pods)}" for node, pods in sorted(pods_of.items()))


def _totals(logs: str) -> dict[str, float]:
    """Return the totals that the training printed as its last JSON line."""
    for line in reversed(logs.splitlines()):
        start = line.find('{"steps"')
        if start >= 0:
            totals: dict[str, float] = json.loads(line[start:])
            return totals
    raise RuntimeError(f"the training printed no totals; its log was:\n{logs}")


if __name__ == "__main__":
    main()

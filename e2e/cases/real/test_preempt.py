"""Real trainings save and stop: for a job with a higher priority, and on a drained node."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.elastic_jobs import elastic_ddp, final_loss, half_node, journal, on_claim
from e2e.harness.install import kubectl
from e2e.harness.journal import answers, redone, resumes
from e2e.harness.kfext_process import COMMAND
from e2e.harness.training import pods_of, policy, replica_specs, submit, wait_trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext import names

pytestmark = pytest.mark.long

PATIENCE = 600.0
STEPS = 500
ACT = {"preempt": {"mode": "act"}}
BOUND_SECONDS = 15.0
"""The time limit from the stopped job's answer until all pods of the waiting job are bound."""
SPARE_SECONDS = 20.0
"""The time limit from the last save until a drained node has no pods of its jobs."""
SAVE_SECONDS = 30.0
"""The longest time until a job that saves only by itself saves again."""
TOLERANCE = 0.001


@pytest.fixture
def urgent(bed: Testbed, managed: str) -> Iterator[str]:
    """The name of a PriorityClass that may preempt."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"urgent-{managed}"},
        "value": 1000,
    }
    kubectl(bed, "apply", "-f", "-", given=json.dumps(body))
    yield f"urgent-{managed}"
    kubectl(bed, "delete", "priorityclass", f"urgent-{managed}")


def test_a_job_stops_for_another_after_it_has_saved_and_loses_no_work(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path, claim: str, urgent: str
) -> None:
    cpu = half_node(members[0])
    placement = {"releaseAfter": "1h"}
    with policy(bed, managed, companion=ACT, placement=placement):
        for name, node in zip(("filling", "train"), members, strict=True):
            job = _job(name, cpu=cpu, folder=folder, claim=claim, on=(node, node))
            if name == "train":
                job.metadata.annotations = {names.PREEMPT: "checkpoint"}
            sdk = submit(bed, job, managed)
            _wait_steps(folder / name, 4)

        first = elastic_ddp("first", 2, cpu=cpu, folder=folder / "first", arguments=_paced(30))
        for spec in replica_specs(first).values():
            spec.template.spec.priority_class_name = urgent
        submit(bed, first, managed)
        until(lambda: answers(journal(folder / "train")), what="it answers", seconds=PATIENCE)
        until(
            lambda: _bound(bed, managed, "first") == 2,
            what="the job with the higher priority is bound",
            seconds=BOUND_SECONDS,
        )
        kubectl(bed, "delete", "pytorchjob", "filling", "-n", managed)
        wait_trained(sdk, job, managed)
    lines = journal(folder / "train")
    assert [start.kept for start in resumes(lines)] == [True, True]
    alone = elastic_ddp("alone", 2, cpu=cpu, folder=folder / "alone", arguments=_paced(STEPS, 0.0))
    wait_trained(submit(bed, alone, managed), alone, managed)
    assert final_loss(folder / "train") == pytest.approx(
        final_loss(folder / "alone"), abs=TOLERANCE
    )


def test_a_drained_node_is_free_once_two_gangs_have_saved(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path, claim: str
) -> None:
    cpu, (node, _) = half_node(members[0]), members
    slow = ("--least", "16", "--print-every", "1")  # steps of 8 s, longer than save to stop
    gangs = {"asked": slow, "alone": (*slow, "--deaf", "--every", "2")}
    for name, more in gangs.items():
        job = _job(name, *more, cpu=cpu, folder=folder, claim=claim, on=members)
        job.metadata.annotations = {names.MIGRATE: "checkpointed"}
        submit(bed, job, managed)
    for name in gangs:
        _wait_steps(folder / name, 2)

    longest = f"--timeout={SAVE_SECONDS + SPARE_SECONDS:g}"
    assert _kfext(bed, "drain", node.name, "--dry-run").returncode == 3
    try:
        drained = _kfext(bed, "drain", node.name, longest)
        assert drained.returncode == 0, drained.stdout + drained.stderr
        assert not any(pods_of(bed, managed, name) for name in gangs), "both gangs have left"
    finally:
        assert _kfext(bed, "uncordon", node.name).returncode == 0
    for name in gangs:
        _wait_starts(folder / name, 2)
        lines = journal(folder / name)
        assert all(start.kept for start in resumes(lines))
        assert redone(lines) == 0


def _paced(steps: int = STEPS, least: float = 0.4) -> tuple[str, ...]:
    return ("--steps", str(steps), "--least", str(least), "--every", str(steps))


def _job(name: str, *more: str, cpu: str, folder: Path, claim: str, on: tuple[Node, Node]) -> Any:
    """Return a job with two pods, on two given nodes; each pod uses half of a node."""
    job = elastic_ddp(name, 2, cpu=cpu, folder=folder / name, arguments=(*_paced(), *more))
    for spec, node in zip(replica_specs(job).values(), on, strict=True):
        spec.template.spec.node_selector = {names.HOSTNAME: node.name}
    return on_claim(job, claim)


def _wait_steps(folder: Path, number: int) -> None:
    def trains() -> bool:
        return sum(line.startswith("step ") for line in journal(folder)) >= number

    until(trains, what=f"{folder.name} trains", seconds=PATIENCE)


def _wait_starts(folder: Path, number: int) -> None:
    def started() -> bool:
        return len(resumes(journal(folder))) >= number

    until(started, what=f"{folder.name} continues", seconds=PATIENCE)


def _bound(bed: Testbed, namespace: str, job: str) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods_of(bed, namespace, job).values())


def _kfext(bed: Testbed, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(bed.kubeconfig), "NO_PROXY": "*"}
    return subprocess.run(
        [str(COMMAND), *arguments], env=environment, capture_output=True, text=True, check=False
    )

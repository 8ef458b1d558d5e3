"""A real training that had to start on two nodes moves to one node, and loses no saved step."""

from pathlib import Path
from typing import Any

import pytest

from e2e.harness.elastic_jobs import elastic_ddp, final_loss, half_node, journal, on_claim
from e2e.harness.install import kubectl
from e2e.harness.journal import answers, redone, resumes
from e2e.harness.training import (
    pods_of,
    policy,
    replica_specs,
    set_suspend,
    submit,
    wait_trained,
)
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext import names

pytestmark = pytest.mark.long

PATIENCE = 600.0
STEPS = 700
COMPANION = {"migrate": {"mode": "act", "parameters": {"spreadSpeed": 0.1}}}
"""The assumed speed on two nodes; with the real speed a move would not pay within a test."""
TOLERANCE = 0.001


def test_a_job_on_two_nodes_moves_to_one_node_after_another_job_has_ended(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path, claim: str
) -> None:
    cpu = half_node(members[0])
    with policy(bed, managed, companion=COMPANION):
        for name, node in zip(("staying", "leaving"), members, strict=True):
            _submit_alone(bed, managed, name, node=node, cpu=cpu, folder=folder)
        job = _spread(managed, cpu=cpu, folder=folder, claim=claim)
        sdk = submit(bed, job, managed)
        until(lambda: _reached(folder / "train", 5), what="the job trains", seconds=PATIENCE)
        assert _nodes(bed, managed) == {node.name for node in members}

        kubectl(bed, "delete", "pytorchjob", "leaving", "-n", managed)
        until(
            lambda: len(resumes(journal(folder / "train"))) > 1 and _nodes(bed, managed),
            what="the job trains again",
            seconds=PATIENCE,
        )
        assert _nodes(bed, managed) == {members[1].name}
        until(  # a job that has ended shows no change
            lambda: _condition(bed, managed).get("status") == "True",
            what="its condition shows that it moved",
            seconds=PATIENCE,
        )

        wait_trained(sdk, job, managed)
    lines = journal(folder / "train")
    assert answers(lines)
    assert all(start.kept for start in resumes(lines))
    assert redone(lines) <= 30  # the steps between the answer and the stop

    alone = elastic_ddp(
        "alone", 1, cpu=cpu, folder=folder / "alone", arguments=("--steps", str(STEPS))
    )
    wait_trained(submit(bed, alone, managed), alone, managed)
    assert final_loss(folder / "train") == pytest.approx(
        final_loss(folder / "alone"), abs=TOLERANCE
    )


def test_a_job_without_a_shared_volume_is_not_moved(
    bed: Testbed, managed: str, members: tuple[Node, Node], folder: Path
) -> None:
    cpu, where = half_node(members[0]), folder / "train"
    with policy(bed, managed, companion=COMPANION):
        job = elastic_ddp("train", 2, cpu=cpu, folder=where, arguments=_paced())
        job.metadata.annotations = {names.MIGRATE: "checkpointed"}
        submit(bed, job, managed)  # its checkpoints are in a hostPath
        until(
            lambda: _condition(bed, managed).get("reason") == names.REASON_NO_SHARED_VOLUME,
            what="the reason is shown",
            seconds=PATIENCE,
        )
    set_suspend(bed, job, managed, value=True)


def _paced() -> tuple[str, ...]:
    return ("--steps", str(STEPS), "--least", "0.4", "--every", str(STEPS))


def _spread(namespace: str, *, cpu: str, folder: Path, claim: str) -> Any:
    """Return a job with two pods of half a node each, which saves only on request."""
    job = elastic_ddp("train", 2, cpu=cpu, folder=folder / "train", arguments=_paced())
    job.metadata.annotations = {names.MIGRATE: "checkpointed"}
    return on_claim(job, claim)


def _submit_alone(
    bed: Testbed, namespace: str, name: str, *, node: Node, cpu: str, folder: Path
) -> None:
    """Start a job with one pod that uses half of a node for longer than the test."""
    paced = ("--steps", "100000", "--least", "0.4")
    job = elastic_ddp(name, 1, cpu=cpu, folder=folder / name, arguments=paced)
    for spec in replica_specs(job).values():
        spec.template.spec.node_selector = {names.HOSTNAME: node.name}
    submit(bed, job, namespace)
    until(lambda: _reached(folder / name, 1), what=f"{name} trains", seconds=PATIENCE)


def _reached(folder: Path, steps: int) -> bool:
    return sum(line.startswith("step ") for line in journal(folder)) >= steps


def _nodes(bed: Testbed, namespace: str) -> set[str]:
    """Return the nodes of the job's pods; empty unless both pods are bound."""
    pods = [pod["spec"].get("nodeName", "") for pod in pods_of(bed, namespace, "train").values()]
    return set(pods) if len(pods) == 2 and all(pods) else set()


def _condition(bed: Testbed, namespace: str) -> dict[str, str]:
    """Return the job's condition Moved; empty before it exists."""
    plans = bed.api.get(f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans")["items"]
    conditions = [
        each
        for plan in plans
        if plan["metadata"]["name"] == "pytorchjob-train"
        for each in plan.get("status", {}).get("conditions", [])
    ]
    return next((each for each in conditions if each["type"] == names.MOVED), {})

"""Resize with real training on a real kubelet: shown first, then done, taken back, and removed.

The job that is there first takes three times as long, so it lends CPU to the other job.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.bench.companion.workload import PROGRAMS, Arrival
from e2e.harness.install import install_kfext, kubectl, uninstall_kfext
from e2e.harness.jobs import template
from e2e.harness.manual import Shell, commands
from e2e.harness.resizing import Resizing, resizing
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext import names

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("metrics_api")]

PATIENCE = 420.0
"""Growth takes windows of 30 s, and other tests share the machine."""
(GRU,) = (program for program in PROGRAMS if program.model == "gru")
STEPS, POD = 20_000, "old-master-0"
CONVERGES = Arrival(0.0, "old", replace(GRU, pace=90.0), 3 * STEPS)
GROWS = Arrival(0.0, "new", replace(GRU, pace=5.0), STEPS)


@pytest.fixture
def hands(bed: Testbed, managed: str) -> Iterator[Resizing]:
    """The controller with the right to resize pods."""
    with resizing(bed, managed) as made:
        yield made


def test_a_user_sees_what_resize_would_do_has_it_done_and_takes_it_back(
    bed: Testbed, managed: str, members: tuple[Node, Node], hands: Resizing
) -> None:
    node = members[0]
    submit(bed, managed, CONVERGES, node, resize="observe")
    until(
        lambda: progress(bed, managed, "old").get("state") == "Completing",
        what="the first job has converged",
        seconds=PATIENCE,
    )
    submit(bed, managed, GROWS, node, resize="cpu")

    shown(bed, managed, names.REASON_WOULD_MOVE)
    assert hands.trainer(POD).limit is None

    annotate(bed, managed, "cpu")
    limited(bed, managed, node, hands)

    kill_controllers(bed)
    annotate(bed, managed, "off")
    until(
        lambda: hands.trainer(POD).given == node.millicores,
        what="the whole node is open to it again",
        seconds=PATIENCE,
    )
    until(
        lambda: resized(bed, managed) is None and noted(bed, managed) is None,
        what="nothing of it is left on the job",
        seconds=PATIENCE,
    )


@pytest.fixture
def shell(bed: Testbed, tmp_path: Path) -> Iterator[Shell]:
    """A shell; kfext, if it was removed in it, is installed again afterwards."""
    yield Shell(bed, tmp_path)
    uninstall_kfext(bed)
    install_kfext(bed)


def test_a_pod_that_lends_has_the_whole_node_again_before_kfext_is_gone(
    bed: Testbed, managed: str, members: tuple[Node, Node], hands: Resizing, shell: Shell
) -> None:
    node = members[0]
    submit(bed, managed, CONVERGES, node, resize="cpu")
    submit(bed, managed, GROWS, node, resize="cpu")
    limited(bed, managed, node, hands)
    before = hands.pod(POD)

    for command in commands("Remove"):
        shell.run(command.replace("overlays/default", "overlays/testbed"))

    assert hands.pod(POD).uid == before.uid
    assert hands.trainer(POD).given == node.millicores == node.pod_millicores(before.uid)


def limited(bed: Testbed, namespace: str, node: Node, hands: Resizing) -> None:
    """Wait until the kubelet holds the first job to a part of its node, and the job shows it."""
    moved = shown(bed, namespace, names.REASON_CPU_MOVED)
    assert moved["status"] == "True"
    until(
        lambda: (hands.trainer(POD).given or node.millicores) < node.millicores,
        what="the kubelet has set the limit",
        seconds=PATIENCE,
    )
    assert node.pod_millicores(hands.pod(POD).uid) == hands.trainer(POD).limit


def submit(bed: Testbed, namespace: str, arrival: Arrival, node: Node, *, resize: str) -> None:
    body = arrival.manifest()
    body["metadata"] |= {"namespace": namespace, "annotations": {names.RESIZE: resize}}
    spec = template(body, arrival.program.type_)["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    bed.api.apply(body)


def annotate(bed: Testbed, namespace: str, value: str) -> None:
    word = f"{names.RESIZE}={value}"
    kubectl(bed, "annotate", "--overwrite", "pytorchjob", "old", "-n", namespace, word)


def kill_controllers(bed: Testbed) -> None:
    """End the controller and its standby at once; others follow and know only what is recorded."""
    of_kfext = ("-n", names.NAMESPACE)
    selector = "app.kubernetes.io/component=controller"
    kubectl(bed, "delete", "pod", *of_kfext, "-l", selector, "--grace-period=0", "--force")
    kubectl(bed, "rollout", "status", *of_kfext, "deployment/kfext-controller", "--timeout=300s")


def plan(bed: Testbed, namespace: str, job: str = "old") -> dict[str, Any]:
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/pytorchjob-{job}"
    try:
        return dict(bed.api.get(path).get("status", {}))
    except ApiError:
        return {}  # it comes with the first decision


def progress(bed: Testbed, namespace: str, job: str) -> dict[str, Any]:
    return plan(bed, namespace, job).get("progress") or {}


def resized(bed: Testbed, namespace: str) -> dict[str, Any] | None:
    conditions = plan(bed, namespace).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == names.RESIZED), None)


def shown(bed: Testbed, namespace: str, reason: str) -> dict[str, Any]:
    """Wait until the job shows a reason; return the condition."""

    def found() -> dict[str, Any] | None:
        condition = resized(bed, namespace)
        return condition if condition and condition["reason"] == reason else None

    return until(found, what=f"the job shows {reason}", seconds=PATIENCE)


def noted(bed: Testbed, namespace: str) -> Any:
    """Return what stands on the job of its CPU, or None."""
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/old"
    written = bed.api.get(path)["metadata"]["annotations"].get(names.STATE, "{}")
    return json.loads(written).get("cpu")

"""Resize with real training on a real kubelet: dry run, carried out, reverted, and removed.

The earlier job takes three times as long, so the other job is boosted.
"""

import json
from collections.abc import Iterator
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
"""CPU is measured twice a minute at most, and other tests share the machine."""
(GRU,) = (program for program in PROGRAMS if program.model == "gru")
STEPS, OLD, NEW = 100_000, "old-master-0", "new-master-0"
"""More steps than a job makes during a case."""
ASKED = 20
"""The request of both jobs, in millicores."""
LONG, SHORT = Arrival(0.0, "old", GRU, 3 * STEPS), Arrival(0.0, "new", GRU, STEPS)


@pytest.fixture
def hands(bed: Testbed, managed: str) -> Iterator[Resizing]:
    """The controller with the right to resize pods."""
    with resizing(bed, managed) as made:
        yield made


def test_a_user_sees_a_dry_run_of_resize_switches_it_on_and_reverts_it(
    bed: Testbed, managed: str, members: tuple[Node, Node], hands: Resizing
) -> None:
    node = members[0]
    submit(bed, managed, LONG, node, resize="cpu")
    submit(bed, managed, SHORT, node, resize="observe")

    shown(bed, managed, names.REASON_WOULD_MOVE)
    assert hands.trainer(NEW).request == ASKED
    plain = node.pod_weight(hands.pod(NEW).uid)

    annotate(bed, managed, "cpu")
    boosted(bed, managed, node, hands, plain=plain)

    kill_controllers(bed)
    annotate(bed, managed, "off")
    wait_request(hands, NEW, request=ASKED)
    until(
        lambda: node.pod_weight(hands.pod(NEW).uid) == plain,
        what="it has its own weight again",
        seconds=PATIENCE,
    )
    until(
        lambda: resized(bed, managed) is None and cpu_record(bed, managed) is None,
        what="the job has no record of it",
        seconds=PATIENCE,
    )
    untouched(bed, managed, node, hands)


@pytest.fixture
def shell(bed: Testbed, tmp_path: Path) -> Iterator[Shell]:
    """A shell; if it removes kfext, kfext is installed again afterwards."""
    yield Shell(bed, tmp_path)
    uninstall_kfext(bed)
    install_kfext(bed)


def test_a_boosted_job_has_its_own_request_again_before_kfext_is_removed(
    bed: Testbed, managed: str, members: tuple[Node, Node], hands: Resizing, shell: Shell
) -> None:
    node = members[0]
    submit(bed, managed, LONG, node, resize="cpu")
    submit(bed, managed, SHORT, node, resize="observe")
    shown(bed, managed, names.REASON_WOULD_MOVE)
    plain = node.pod_weight(hands.pod(NEW).uid)
    annotate(bed, managed, "cpu")
    boosted(bed, managed, node, hands, plain=plain)
    before = hands.pod(NEW)

    for command in commands("Remove"):
        shell.run(command.replace("overlays/default", "overlays/testbed"))

    assert hands.pod(NEW).uid == before.uid
    assert hands.trainer(NEW).request == hands.trainer(OLD).request == ASKED
    wait_request(hands, NEW, request=ASKED)
    assert node.pod_weight(before.uid) == plain


def boosted(bed: Testbed, namespace: str, node: Node, hands: Resizing, *, plain: int) -> None:
    """Wait until the shorter job has the higher request in place, and with it the weight."""
    moved = shown(bed, namespace, names.REASON_CPU_MOVED)
    assert moved["status"] == "True"
    wait_request(hands, OLD, request=ASKED)
    raised = until(
        lambda: (now := hands.trainer(NEW).request) > 5 * ASKED and now,
        what="the shorter job's request is boosted",
        seconds=PATIENCE,
    )
    wait_request(hands, NEW, request=raised)
    until(
        lambda: node.pod_weight(hands.pod(NEW).uid) > 2 * plain,
        what="the kubelet has set the weight",
        seconds=PATIENCE,
    )
    untouched(bed, namespace, node, hands)


def wait_request(hands: Resizing, pod: str, *, request: int) -> None:
    """Wait until a pod has a request, and its kubelet has allocated it."""

    def reported() -> bool:
        cpu = hands.trainer(pod)
        return cpu.request == cpu.allocated == request

    until(reported, what=f"{pod} has a request of {request}m", seconds=PATIENCE)


def untouched(bed: Testbed, namespace: str, node: Node, hands: Resizing) -> None:
    """Check that neither job has a limit or was restarted."""
    for name in (OLD, NEW):
        assert (hands.trainer(name).limit, hands.trainer(name).given) == (None, None)
        assert node.pod_millicores(hands.pod(name).uid) is None
        status = bed.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
        assert [container["restartCount"] for container in status["containerStatuses"]] == [0]


def submit(bed: Testbed, namespace: str, arrival: Arrival, node: Node, *, resize: str) -> None:
    body = arrival.manifest()
    body["metadata"] |= {"namespace": namespace, "annotations": {names.RESIZE: resize}}
    spec = template(body, arrival.program.type_)["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    bed.api.apply(body)


def annotate(bed: Testbed, namespace: str, value: str) -> None:
    word = f"{names.RESIZE}={value}"
    kubectl(bed, "annotate", "--overwrite", "pytorchjob", SHORT.name, "-n", namespace, word)


def kill_controllers(bed: Testbed) -> None:
    """End the controller and its standby at once; their successors know only what is recorded."""
    of_kfext = ("-n", names.NAMESPACE)
    selector = "app.kubernetes.io/component=controller"
    kubectl(bed, "delete", "pod", *of_kfext, "-l", selector, "--grace-period=0", "--force")
    kubectl(bed, "rollout", "status", *of_kfext, "deployment/kfext-controller", "--timeout=300s")


def plan(bed: Testbed, namespace: str) -> dict[str, Any]:
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/pytorchjob-{SHORT.name}"
    try:
        return dict(bed.api.get(path).get("status", {}))
    except ApiError:
        return {}  # it appears with the first decision


def resized(bed: Testbed, namespace: str) -> dict[str, Any] | None:
    conditions = plan(bed, namespace).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == names.RESIZED), None)


def shown(bed: Testbed, namespace: str, reason: str) -> dict[str, Any]:
    """Wait until the job shows a reason; return the condition."""

    def reported() -> dict[str, Any] | None:
        condition = resized(bed, namespace)
        return condition if condition and condition["reason"] == reason else None

    return until(reported, what=f"the job shows {reason}", seconds=PATIENCE)


def cpu_record(bed: Testbed, namespace: str) -> Any:
    """Return the CPU record on the job, or None."""
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{SHORT.name}"
    written = bed.api.get(path)["metadata"]["annotations"].get(names.STATE, "{}")
    return json.loads(written).get("cpu")

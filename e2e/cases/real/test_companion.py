"""Resize with real training on a real kubelet: dry run, boost, reversal, and removal of kfext.

The first job takes three times as long as the second job, so the second job is wait_boosted.
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
"""CPU is measured at most twice a minute, and other tests share the machine."""
(GRU,) = (program for program in PROGRAMS if program.model == "gru")
STEPS, OLD, NEW = 100_000, "old-master-0", "new-master-0"
"""More steps than a job makes during a case; the pods of the jobs."""
REQUEST = 20
"""The CPU request of both jobs, in millicores."""
LONG, SHORT = Arrival(0.0, "old", GRU, 3 * STEPS), Arrival(0.0, "new", GRU, STEPS)


@pytest.fixture
def resizer(bed: Testbed, managed: str) -> Iterator[Resizing]:
    """Resizes pods as the controller; kfext has the permission for it."""
    with resizing(bed, managed) as resizer:
        yield resizer


def test_a_dry_run_is_shown_then_the_job_is_boosted_and_its_request_is_restored_when_switched_off(
    bed: Testbed, managed: str, members: tuple[Node, Node], resizer: Resizing
) -> None:
    node = members[0]
    submit(bed, managed, LONG, node, resize="cpu")
    submit(bed, managed, SHORT, node, resize="observe")

    wait_reason(bed, managed, names.REASON_WOULD_MOVE)
    assert resizer.trainer(NEW).request == REQUEST
    plain = node.pod_weight(resizer.pod(NEW).uid)

    annotate(bed, managed, "cpu")
    wait_boosted(bed, managed, node, resizer, plain=plain)

    kill_controllers(bed)
    annotate(bed, managed, "off")
    wait_request(resizer, NEW, request=REQUEST)
    until(
        lambda: node.pod_weight(resizer.pod(NEW).uid) == plain,
        what="the pod has its first weight again",
        seconds=PATIENCE,
    )
    until(
        lambda: resized(bed, managed) is None and cpu_record(bed, managed) is None,
        what="the job shows no trace of the boost",
        seconds=PATIENCE,
    )
    check_untouched(bed, managed, node, resizer)


@pytest.fixture
def shell(bed: Testbed, tmp_path: Path) -> Iterator[Shell]:
    """A shell; afterwards kfext is installed again, because the case removes it."""
    yield Shell(bed, tmp_path)
    uninstall_kfext(bed)
    install_kfext(bed)


def test_a_boosted_job_has_its_own_request_again_before_kfext_is_removed(
    bed: Testbed, managed: str, members: tuple[Node, Node], resizer: Resizing, shell: Shell
) -> None:
    node = members[0]
    submit(bed, managed, LONG, node, resize="cpu")
    submit(bed, managed, SHORT, node, resize="observe")
    wait_reason(bed, managed, names.REASON_WOULD_MOVE)
    plain = node.pod_weight(resizer.pod(NEW).uid)
    annotate(bed, managed, "cpu")
    wait_boosted(bed, managed, node, resizer, plain=plain)
    before = resizer.pod(NEW)

    for command in commands("Remove"):
        shell.run(command.replace("overlays/default", "overlays/testbed"))

    assert resizer.pod(NEW).uid == before.uid
    assert resizer.trainer(NEW).request == resizer.trainer(OLD).request == REQUEST
    wait_request(resizer, NEW, request=REQUEST)
    assert node.pod_weight(before.uid) == plain


def wait_boosted(
    bed: Testbed, namespace: str, node: Node, resizer: Resizing, *, plain: int
) -> None:
    """Wait until kubelet has given the shorter job a higher request and a higher weight."""
    condition = wait_reason(bed, namespace, names.REASON_CPU_MOVED)
    assert condition["status"] == "True"
    wait_request(resizer, OLD, request=REQUEST)
    raised = until(
        lambda: (now := resizer.trainer(NEW).request) > 5 * REQUEST and now,
        what="the shorter job's request is wait_boosted",
        seconds=PATIENCE,
    )
    wait_request(resizer, NEW, request=raised)
    until(
        lambda: node.pod_weight(resizer.pod(NEW).uid) > 2 * plain,
        what="kubelet has set the weight",
        seconds=PATIENCE,
    )
    check_untouched(bed, namespace, node, resizer)


def wait_request(resizer: Resizing, pod: str, *, request: int) -> None:
    """Wait until a pod has a request, and its kubelet has allocated it."""

    def reported() -> bool:
        cpu = resizer.trainer(pod)
        return cpu.request == cpu.allocated == request

    until(reported, what=f"{pod} has a request of {request}m", seconds=PATIENCE)


def check_untouched(bed: Testbed, namespace: str, node: Node, resizer: Resizing) -> None:
    """Check that neither job has a limit or was restarted."""
    for name in (OLD, NEW):
        assert (resizer.trainer(name).limit, resizer.trainer(name).given) == (None, None)
        assert node.pod_millicores(resizer.pod(name).uid) is None
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
    """Kill the controller and its standby; their successors know only what is recorded."""
    in_kfext = ("-n", names.NAMESPACE)
    selector = "app.kubernetes.io/component=controller"
    kubectl(bed, "delete", "pod", *in_kfext, "-l", selector, "--grace-period=0", "--force")
    kubectl(bed, "rollout", "status", *in_kfext, "deployment/kfext-controller", "--timeout=300s")


def plan(bed: Testbed, namespace: str) -> dict[str, Any]:
    """Return the status of the TrainingPlan of the shorter job."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/pytorchjob-{SHORT.name}"
    try:
        return dict(bed.api.get(path).get("status", {}))
    except ApiError:
        return {}  # it is created with the first decision


def resized(bed: Testbed, namespace: str) -> dict[str, Any] | None:
    conditions = plan(bed, namespace).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == names.RESIZED), None)


def wait_reason(bed: Testbed, namespace: str, reason: str) -> dict[str, Any]:
    """Wait until the condition Resized of the shorter job has a reason; return it."""

    def reported() -> dict[str, Any] | None:
        condition = resized(bed, namespace)
        return condition if condition and condition["reason"] == reason else None

    return until(reported, what=f"the job shows {reason}", seconds=PATIENCE)


def cpu_record(bed: Testbed, namespace: str) -> Any:
    """Return the CPU entry of the shorter job's annotation `state`, or None."""
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{SHORT.name}"
    written = bed.api.get(path)["metadata"]["annotations"].get(names.STATE, "{}")
    return json.loads(written).get("cpu")

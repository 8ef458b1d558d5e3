"""Resizes of pods on a real kubelet: what it sets, what it reports, and which sizes it refuses."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from e2e.harness.resizing import CONTAINER, Resizing, resizing
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.images import PAUSE_IMAGE
from e2e.testbed.paths import KUBERNETES
from e2e.testbed.realnodes import Node
from kfext import errors
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.pod import Pod

BURSTABLE = {"requests": {"cpu": "20m", "memory": "16Mi"}}
WITHOUT_CPU = {"requests": {"memory": "16Mi"}}
LIMITED = {**BURSTABLE, "limits": {"cpu": "400m"}}
SMALL = {"cpu": "100m", "memory": "16Mi"}
GUARANTEED = {"requests": SMALL, "limits": SMALL}

Run = Callable[..., Pod]


@pytest.fixture
def resizer(bed: Testbed, plain: str) -> Iterator[Resizing]:
    """Resizes pods as the controller; kfext has the permission for it."""
    with resizing(bed, plain) as resizer:
        yield resizer


@pytest.fixture
def node(members: tuple[Node, Node]) -> Node:
    """The node of all pods here."""
    return members[0]


@pytest.fixture
def run(bed: Testbed, plain: str, node: Node, resizer: Resizing) -> Run:
    """A function that starts a pod, and waits until it runs."""

    def start(resources: Any, name: str = "train") -> Pod:
        container = {
            "name": CONTAINER,
            "image": PAUSE_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/busybox", "sleep", "1000000"],
            "resources": resources,
        }
        spec = {
            "nodeName": node.name,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }
        metadata = {"name": name}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        bed.api.create(f"/api/v1/namespaces/{plain}/pods", body)
        until(lambda: resizer.pod(name).phase == "Running", what=f"{name} runs")
        return resizer.pod(name)

    return start


def resize(
    resizer: Resizing, name: str, limit: int | None = None, request: int | None = None
) -> None:
    """Resize a pod; retry after a conflict, because kubelet may write the status at any time."""

    def written() -> bool:
        try:
            resizer.write(resizer.pod(name), CpuSize(limit, request))
        except errors.Conflict:
            return False
        return True

    until(written, what=f"the API server accepts the size of {name}")


def wait_cpu(resizer: Resizing, want: TrainerCpu) -> None:
    """Wait until the pod `train` has this CPU; without `allocated`, any allocation matches."""

    def cpu() -> TrainerCpu:
        trainer = resizer.trainer("train")
        return trainer if want.allocated is not None else replace(trainer, allocated=None)

    until(lambda: cpu() == want, what=f"the pod shows {want}")


def wait_weight(node: Node, pod: Pod, *, more: bool, than: int) -> None:
    """Wait until the CPU weight of a pod is more than `than`, or with `more=False` is not."""
    what = f"{pod.name} wait_weight {'more' if more else 'no more'} than {than}"
    until(lambda: (node.pod_weight(pod.uid) > than) is more, what=what)


def restarts(bed: Testbed, pod: Pod) -> int:
    status = bed.api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")["status"]
    count: int = status["containerStatuses"][0]["restartCount"]
    return count


def test_a_limit_goes_down_and_up_again_and_nothing_restarts(
    bed: Testbed, resizer: Resizing, run: Run, node: Node
) -> None:
    pod = run(LIMITED)
    wait_cpu(resizer, TrainerCpu(20, 400, given=400))
    for limit in (150, 300):
        resize(resizer, pod.name, limit)
        wait_cpu(resizer, TrainerCpu(20, limit, given=limit))
        assert node.pod_millicores(pod.uid) == limit
    assert (restarts(bed, pod), resizer.pod(pod.name).resize_problem) == (0, None)


@pytest.mark.parametrize(
    "resources", [pytest.param(BURSTABLE, id="no limit"), pytest.param(LIMITED, id="a limit")]
)
def test_a_request_goes_up_and_down_again_and_only_the_weight_follows(
    bed: Testbed, resizer: Resizing, run: Run, node: Node, resources: Any
) -> None:
    pod = run(resources)
    limit, plain = resizer.trainer("train").limit, node.pod_weight(pod.uid)
    for request, higher in ((370, True), (20, False)):
        resize(resizer, pod.name, request=request)
        wait_cpu(resizer, TrainerCpu(request, limit, given=limit, allocated=request))
        wait_weight(node, pod, more=higher, than=2 * plain)
        assert node.pod_millicores(pod.uid) == limit
    assert node.pod_weight(pod.uid) == plain
    assert (restarts(bed, pod), resizer.pod(pod.name).resize_problem) == (0, None)


ADDED = {
    "it requests CPU": (BURSTABLE, TrainerCpu(20, 200, given=200), 20),
    "it requests no CPU, before and after": (WITHOUT_CPU, TrainerCpu(0, 200, given=200), None),
}


@pytest.mark.parametrize(("resources", "want", "requested"), ADDED.values(), ids=ADDED)
def test_a_limit_is_added_to_a_pod_without_a_limit(
    bed: Testbed,
    resizer: Resizing,
    run: Run,
    node: Node,
    resources: Any,
    want: TrainerCpu,
    requested: int | None,
) -> None:
    pod = run(resources)
    assert (resizer.trainer("train").limit, node.pod_millicores(pod.uid)) == (None, None)
    resize(resizer, pod.name, 200)
    wait_cpu(resizer, want)
    assert node.pod_millicores(pod.uid) == 200
    assert resizer.pod(pod.name).requests.get("cpu") == requested
    assert restarts(bed, pod) == 0


def test_a_deferred_resize_is_shown_until_the_pod_requests_less(
    resizer: Resizing, run: Run, node: Node
) -> None:
    pod = run(GUARANTEED)
    half = {"cpu": f"{node.millicores // 2}m", "memory": "16Mi"}
    run({"requests": half, "limits": half}, name="other")
    wanted = node.millicores - 100
    resize(resizer, pod.name, wanted, wanted)
    problem = until(lambda: resizer.pod(pod.name).resize_problem, what="the pod shows the reason")
    assert problem.reason == "Deferred"
    assert problem.message.startswith("Node didn't have enough resource: cpu")
    wait_cpu(resizer, TrainerCpu(wanted, wanted, given=100))
    resize(resizer, pod.name, 100, 100)
    until(lambda: resizer.pod(pod.name).resize_problem is None, what="the pod has no problem")
    wait_cpu(resizer, TrainerCpu(100, 100, given=100))


def test_a_size_larger_than_the_node_is_refused_or_shown_as_infeasible(
    resizer: Resizing, run: Run, node: Node
) -> None:
    pod, wanted = run(GUARANTEED), node.millicores + 100
    if KUBERNETES.startswith("v1.35."):
        resize(resizer, pod.name, wanted, wanted)
        problem = until(lambda: resizer.pod(pod.name).resize_problem, what="the pod shows it")
        assert problem.reason == "Infeasible"
        assert problem.message.startswith("Node didn't have enough capacity: cpu")
        wait_cpu(resizer, TrainerCpu(wanted, wanted, given=100))
    else:
        with pytest.raises(errors.Forbidden, match="enough allocatable resources: cpu") as refused:
            resize(resizer, pod.name, wanted, wanted)
        assert refused.value.final
        wait_cpu(resizer, TrainerCpu(100, 100, given=100))

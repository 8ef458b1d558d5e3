"""Resizes on a real kubelet: its settings, its reports, and the sizes that it refuses."""

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
def hands(bed: Testbed, plain: str) -> Iterator[Resizing]:
    """The controller with the right to resize pods."""
    with resizing(bed, plain) as made:
        yield made


@pytest.fixture
def node(members: tuple[Node, Node]) -> Node:
    """The node of all pods here."""
    return members[0]


@pytest.fixture
def run(bed: Testbed, plain: str, node: Node, hands: Resizing) -> Run:
    """Return a function that starts a pod and waits until it runs."""

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
        until(lambda: hands.pod(name).phase == "Running", what=f"{name} runs")
        return hands.pod(name)

    return start


def resize(
    hands: Resizing, name: str, limit: int | None = None, request: int | None = None
) -> None:
    """Resize a pod in its present state: its kubelet may write the status at any time."""

    def written() -> bool:
        try:
            hands.write(hands.pod(name), CpuSize(limit, request))
        except errors.Conflict:
            return False
        return True

    until(written, what=f"the API server accepts the size of {name}")


def shown(hands: Resizing, want: TrainerCpu) -> None:
    """Wait until the pod `train` shows this; without `allocated`, any allocation matches."""

    def cpu() -> TrainerCpu:
        trainer = hands.trainer("train")
        return trainer if want.allocated is not None else replace(trainer, allocated=None)

    until(lambda: cpu() == want, what=f"the pod shows {want}")


def weighs(node: Node, pod: Pod, *, more: bool, than: int) -> None:
    """Wait until the kubelet has set the weight of a pod."""
    what = f"{pod.name} weighs {'more' if more else 'no more'} than {than}"
    until(lambda: (node.pod_weight(pod.uid) > than) is more, what=what)


def restarts(bed: Testbed, pod: Pod) -> int:
    status = bed.api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")["status"]
    count: int = status["containerStatuses"][0]["restartCount"]
    return count


def test_a_limit_goes_down_and_up_again_and_nothing_restarts(
    bed: Testbed, hands: Resizing, run: Run, node: Node
) -> None:
    pod = run(LIMITED)
    shown(hands, TrainerCpu(20, 400, given=400))
    for limit in (150, 300):
        resize(hands, pod.name, limit)
        shown(hands, TrainerCpu(20, limit, given=limit))
        assert node.pod_millicores(pod.uid) == limit
    assert (restarts(bed, pod), hands.pod(pod.name).resize_problem) == (0, None)


@pytest.mark.parametrize(
    "resources", [pytest.param(BURSTABLE, id="no limit"), pytest.param(LIMITED, id="a limit")]
)
def test_a_request_goes_up_and_down_again_and_with_it_the_weight_alone(
    bed: Testbed, hands: Resizing, run: Run, node: Node, resources: Any
) -> None:
    pod = run(resources)
    limit, plain = hands.trainer("train").limit, node.pod_weight(pod.uid)
    for request, higher in ((370, True), (20, False)):
        resize(hands, pod.name, request=request)
        shown(hands, TrainerCpu(request, limit, given=limit, allocated=request))
        weighs(node, pod, more=higher, than=2 * plain)
        assert node.pod_millicores(pod.uid) == limit
    assert node.pod_weight(pod.uid) == plain
    assert (restarts(bed, pod), hands.pod(pod.name).resize_problem) == (0, None)


ADDED = {
    "it requests CPU": (BURSTABLE, TrainerCpu(20, 200, given=200), 20),
    "it requests none, and still does not": (WITHOUT_CPU, TrainerCpu(0, 200, given=200), None),
}


@pytest.mark.parametrize(("resources", "want", "requested"), ADDED.values(), ids=ADDED)
def test_a_pod_without_a_limit_gets_one(
    bed: Testbed,
    hands: Resizing,
    run: Run,
    node: Node,
    resources: Any,
    want: TrainerCpu,
    requested: int | None,
) -> None:
    pod = run(resources)
    assert (hands.trainer("train").limit, node.pod_millicores(pod.uid)) == (None, None)
    resize(hands, pod.name, 200)
    shown(hands, want)
    assert node.pod_millicores(pod.uid) == 200
    assert hands.pod(pod.name).requests.get("cpu") == requested
    assert restarts(bed, pod) == 0


def test_a_size_that_its_node_lacks_now_shows_on_a_pod_until_it_requests_less(
    hands: Resizing, run: Run, node: Node
) -> None:
    pod = run(GUARANTEED)
    half = {"cpu": f"{node.millicores // 2}m", "memory": "16Mi"}
    run({"requests": half, "limits": half}, name="other")
    wanted = node.millicores - 100
    resize(hands, pod.name, wanted, wanted)
    problem = until(lambda: hands.pod(pod.name).resize_problem, what="the pod shows the reason")
    assert problem.reason == "Deferred"
    assert problem.message.startswith("Node didn't have enough resource: cpu")
    shown(hands, TrainerCpu(wanted, wanted, given=100))
    resize(hands, pod.name, 100, 100)
    until(lambda: hands.pod(pod.name).resize_problem is None, what="the pod has no problem")
    shown(hands, TrainerCpu(100, 100, given=100))


def test_a_size_that_its_node_never_has_is_refused_or_shows_on_the_pod(
    hands: Resizing, run: Run, node: Node
) -> None:
    pod, wanted = run(GUARANTEED), node.millicores + 100
    if KUBERNETES.startswith("v1.35."):
        resize(hands, pod.name, wanted, wanted)
        problem = until(lambda: hands.pod(pod.name).resize_problem, what="the pod shows it")
        assert problem.reason == "Infeasible"
        assert problem.message.startswith("Node didn't have enough capacity: cpu")
        shown(hands, TrainerCpu(wanted, wanted, given=100))
    else:
        with pytest.raises(errors.Forbidden, match="enough allocatable resources: cpu") as refused:
            resize(hands, pod.name, wanted, wanted)
        assert refused.value.final
        shown(hands, TrainerCpu(100, 100, given=100))

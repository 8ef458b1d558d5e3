"""Running pods are resized in place: when kfext counts the CPU that is freed or added."""

from e2e.harness.jobs import suspended, workers
from e2e.harness.kube import Object
from e2e.harness.space import Space

CPU = {"cpu": "1"}
# Pods with limits equal to their requests are placed on the fullest node.
GUARANTEED = {"cpu": "1", "memory": "1Gi"}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


def run(space: Space, name: str, node: str, *, cpu: str) -> None:
    """Run a pod without a job on a node, with `cpu` requested and allocated."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    space.kube.create(space.path("pods"), body)
    path = space.path("pods", name)
    space.until(lambda: space.kube.get(path)["status"].get("phase") == "Running", f"{name} runs")
    allocate(space, name, cpu=cpu)


def resize(space: Space, name: str, *, cpu: str) -> None:
    main = {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu}
    space.kube.patch(f"{space.path('pods', name)}/resize", [main], kind="json")


def allocate(space: Space, name: str, *, cpu: str, condition: Object | None = None) -> None:
    """Act as kubelet: report the allocated CPU of a pod, and the condition of its resize."""
    path = space.path("pods", name)
    status = space.kube.get(path)["status"]
    (main,) = status["containerStatuses"]
    main |= {"allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
    changed = {"containerStatuses": [main]}
    if condition:
        changed["conditions"] = [*status["conditions"], condition]
    space.kube.patch(f"{path}/status", {"status": changed})


def wait_pods_received(space: Space) -> None:
    """Wait until the controller has received all changes of pods, with a job submitted later."""
    space.submit(workers("later", 1))
    space.phase("later", "Placed")


def test_cpu_that_a_resize_frees_is_free_once_kubelet_has_carried_it_out(space: Space) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi")
    run(space, "large", node, cpu="6")
    space.submit(workers("gang", 4, each=CPU))
    assert space.phase("gang", "Queued")["reason"] == "NoRoom"
    resize(space, "large", cpu="2")
    wait_pods_received(space)
    assert suspended(space.job("gang"))
    allocate(space, "large", cpu="2")
    assert set(space.bound("gang", 4).values()) == {node}
    assert set(space.pins().values()) == {1}


def test_cpu_that_a_pod_requests_in_a_resize_is_not_free(space: Space) -> None:
    fuller, emptier = space.nodes(2, cpu="8", memory="64Gi")
    run(space, "grows", fuller, cpu="2")
    resize(space, "grows", cpu="6")
    wait_pods_received(space)
    space.submit(workers("gang", 4, each=GUARANTEED))
    assert set(space.bound("gang", 4).values()) == {emptier}
    assert set(space.pins().values()) == {1}


def test_an_infeasible_resize_claims_nothing(space: Space) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi")
    run(space, "grows", node, cpu="2")
    resize(space, "grows", cpu="8")
    allocate(space, "grows", cpu="2", condition=INFEASIBLE)
    space.submit(workers("gang", 4, each=GUARANTEED))
    assert set(space.bound("gang", 4).values()) == {node}
    assert set(space.pins().values()) == {1}

"""Admission changes or refuses pods and jobs, but no job restarts without end."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.harness import nodes
from e2e.harness.jobs import gated, pinned_to, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.pods import FOREIGN_GATE, occupying_pod, refusing_pins
from e2e.harness.space import Space
from e2e.harness.stand_in import Mutate, standing_in

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def limit_range(space: Space, *, cpu: str) -> None:
    """Make the API server set the CPU of each container without requests."""
    limit = {"type": "Container", "defaultRequest": {"cpu": cpu}, "default": {"cpu": cpu}}
    body = {"metadata": {"name": "defaults"}, "spec": {"limits": [limit]}}
    path = f"/api/v1/namespaces/{space.name}/limitranges"
    space.kube.create(path, {"apiVersion": "v1", "kind": "LimitRange", **body})
    probe = occupying_pod("probe")

    def effective() -> bool:
        pod = space.kube.ask("POST", f"{space.path('pods')}?dryRun=All", probe).body
        return "requests" in pod["spec"]["containers"][0].get("resources", {})

    space.until(effective, "the LimitRange is in force")


def test_pods_that_a_limit_range_makes_too_big_are_started_once_and_then_released(
    space: Space,
) -> None:
    space.nodes(1, cpu="4", memory="64Gi")
    space.policy(placement={"releaseAfter": "20s"})
    limit_range(space, cpu="2")
    space.submit(workers("gang", 3))
    space.until(
        lambda: [e for e in space.events("gang") if "admission changed its pods" in e["note"]],
        "an event gives the reason for the stop",
    )
    view = space.phase("gang", "Released")
    assert "TooBig" in view["message"]
    assert "6 cpu" in view["message"]
    assert space.starts() == 1
    space.until(lambda: len(space.pods("gang")) == 3, "plain pods exist")


@contextmanager
def runtime_class(space: Space, *, cpu: str) -> Iterator[str]:
    """Create a RuntimeClass with `cpu` as overhead; yield its name."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    body = {"metadata": {"name": space.name}, "handler": "sandbox"}
    body |= {"overhead": {"podFixed": {"cpu": cpu}}}
    space.kube.create(path, {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **body})
    try:
        yield space.name
    finally:
        space.kube.delete(f"{path}/{space.name}")


@pytest.mark.long
def test_pods_with_an_overhead_wait_for_capacity_and_are_then_placed(space: Space) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi", gpu="4")
    with runtime_class(space, cpu="2") as name:
        space.submit(workers("first", 2, each={"cpu": "1"}, pod={"runtimeClassName": name}))
        space.bound("first", 2)  # six of eight CPUs
        space.submit(workers("second", 2, each={"cpu": "1"}, pod={"runtimeClassName": name}))
        view = space.until(
            lambda: (v := space.view("second")).get("reason") == "NoRoom" and v, "it waits"
        )
        assert view["phase"] == "Queued"
        assert "6 cpu" in view["message"]
        before = space.starts()
        space.kube.delete(space.path("pytorchjobs", "first"))
        assert set(space.bound("second", 2).values()) == {node}
    assert (before, space.starts()) == (2, 3)


@contextmanager
def admitting(space: Space, kfext: Kfext, mutate: Mutate, *, what: str) -> Iterator[None]:
    """Run a webhook of another system that changes each new pod of a namespace."""

    def effective() -> bool:
        pod = space.kube.ask(
            "POST", f"{space.path('pods')}?dryRun=All", occupying_pod("probe")
        ).body
        return not mutate(pod)

    with standing_in(
        kfext.testbed,
        kfext.kube,
        name=f"{what}-{space.name}",
        namespace=space.name,
        rule=PODS,
        mutate=mutate,
        effective=effective,
    ):
        yield


def tolerate_gpus(pod: Object) -> list[Object]:
    """Act as ExtendedResourceToleration: tolerate taints named after a pod's resources."""
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    present = pod["spec"].get("tolerations", [])
    if toleration in present:
        return []
    return [{"op": "add", "path": "/spec/tolerations", "value": [*present, toleration]}]


def inject(container: Object, *, at: str) -> Mutate:
    """Return a mutation that adds a container to a pod without it, as a service mesh does."""

    def mutate(pod: Object) -> list[Object]:
        present = pod["spec"].get(at, [])
        if any(known["name"] == container["name"] for known in present):
            return []
        return [{"op": "add", "path": f"/spec/{at}", "value": [*present, container]}]

    return mutate


def proxy(*, port: int | None = None, **fields: object) -> Object:
    """Return a container that requests as much CPU as the other containers of these pods."""
    ports = [{"containerPort": port, "hostPort": port}] if port else []
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    return {"name": "proxy", "image": "none", "resources": resources, "ports": ports, **fields}


SIDECARS = {
    "a container": inject(proxy(), at="containers"),
    "a sidecar init container": inject(proxy(restartPolicy="Always"), at="initContainers"),
}


@pytest.mark.parametrize("mutate", SIDECARS.values(), ids=SIDECARS)
def test_a_gang_with_an_injected_sidecar_waits_for_capacity_and_is_then_placed(
    space: Space, kfext: Kfext, mutate: Mutate
) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi", gpu="4")
    space.submit(workers("runs", 4, each=GPU))
    space.phase("runs", "Placed")  # four of eight CPUs
    with admitting(space, kfext, mutate, what="injecting"):
        space.submit(workers("gang", 3, each={"cpu": "1"}))
        view = space.until(
            lambda: (v := space.view("gang")).get("reason") == "NoRoom" and v, "it waits"
        )
        assert view["phase"] == "Queued"
        assert "6 cpu" in view["message"]
        assert space.starts() == 2
        space.kube.delete(space.path("pytorchjobs", "runs"))
        assert set(space.bound("gang", 3).values()) == {node}
    assert space.starts() == 3


def gpu_tainted_nodes(space: Space) -> list[str]:
    created = space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    for node in created:
        nodes.taint(space.kfext, node, "NoSchedule", key="nvidia.com/gpu")
    return created


def test_gpu_pods_go_to_tainted_nodes_where_admission_adds_the_toleration(
    space: Space, kfext: Kfext
) -> None:
    created = gpu_tainted_nodes(space)
    with admitting(space, kfext, tolerate_gpus, what="tolerating"):
        space.submit(workers("gang", 3, each=GPU))
        used_nodes = set(space.bound("gang", 3).values())
    assert len(used_nodes) == 1
    assert used_nodes <= set(created)
    assert space.starts() == 1


@pytest.mark.long
def test_without_the_toleration_a_gpu_job_starts_once_and_shows_the_taint(space: Space) -> None:
    gpu_tainted_nodes(space)
    space.submit(workers("gang", 3, each=GPU))
    view = space.until(
        lambda: (v := space.view("gang")).get("reason") == "NoEligibleNode" and v, "it is explained"
    )
    assert "taint nvidia.com/gpu" in view["message"]
    assert suspended(space.job("gang"))
    assert space.starts() == 1


POOL = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}


def tolerate_the_pool(pod: Object) -> list[Object]:
    """Act as PodTolerationRestriction: add a toleration to every pod of a namespace."""
    present = pod["spec"].get("tolerations", [])
    if POOL in present:
        return []
    return [{"op": "add", "path": "/spec/tolerations", "value": [*present, POOL]}]


def dedicated_nodes(space: Space) -> list[str]:
    created = space.nodes(2, cpu="32", memory="64Gi")
    for node in created:
        nodes.taint(space.kfext, node, "NoSchedule", key="dedicated")
    return created


@pytest.mark.parametrize("colocation", ["preferred", "required"])
def test_a_gang_starts_in_a_dedicated_pool_where_admission_adds_the_toleration(
    space: Space, kfext: Kfext, colocation: str
) -> None:
    created = dedicated_nodes(space)
    with admitting(space, kfext, tolerate_the_pool, what="dedicating"):
        space.submit(workers("gang", 3, annotations={"kfext.dev/colocation": colocation}))
        used_nodes = set(space.bound("gang", 3).values())
    assert len(used_nodes) == 1
    assert used_nodes <= set(created)
    assert space.starts() == 1


@pytest.mark.long
def test_without_the_toleration_a_job_starts_once_and_shows_the_taint_of_a_pool(
    space: Space,
) -> None:
    dedicated_nodes(space)
    space.submit(workers("gang", 3, annotations={"kfext.dev/colocation": "required"}))
    view = space.until(
        lambda: (v := space.view("gang")).get("reason") == "NoEligibleNode" and v, "it is explained"
    )
    assert "taint dedicated" in view["message"]
    assert suspended(space.job("gang"))
    assert space.starts() == 1


@pytest.mark.long
def test_a_gang_runs_as_on_plain_kubernetes_if_a_policy_refuses_its_pins(
    space: Space,
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    with refusing_pins(space, message="no pod may be pinned"):
        space.submit(workers("gang", 3, each=GPU))
        space.patiently(lambda: space.view("gang").get("phase") == "Released", seconds=90)
        space.bound("gang", 3)
    assert "no pod may be pinned" in space.view("gang")["message"]
    assert not any(gated(pod) or pinned_to(pod) for pod in space.pods("gang"))


def test_a_gate_that_is_never_removed_holds_no_capacity(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "2s"})
    space.submit(workers("gang", 4, each=GPU, pod=FOREIGN_GATE))
    space.until(lambda: space.starts() and suspended(space.job("gang")), "it is suspended again")
    space.submit(workers("other", 4, each=GPU))
    assert set(space.bound("other", 4).values()) == {node}
    assert "another system's scheduling gate" in space.view("gang")["message"]

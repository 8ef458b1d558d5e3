"""What happens when a job, or one of its pods, cannot use the host network."""

from collections.abc import Iterator

import pytest

from e2e.harness.jobs import gated, job, on_host, variables, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.nodes import wait_received
from e2e.harness.pods import (
    HOST,
    event_before_list,
    host_network_condition,
    master_port,
    occupy,
    reasons,
    refusing,
)
from e2e.harness.space import Space

CPU = {"cpu": "1"}


def test_pod_security_keeps_a_job_on_the_pod_network(space: Space) -> None:
    space.label({"pod-security.kubernetes.io/enforce": "baseline"})
    space.submit(workers("gang", 2, each=CPU, annotations=HOST))
    space.phase("gang", "Placed")
    condition = host_network_condition(space, "gang")
    assert (condition["status"], condition["reason"]) == ("False", "PodNetwork")
    assert "Pod Security baseline" in condition["message"]
    space.until(lambda: "PodNetwork" in reasons(space, "gang"), "an event reports it")
    assert not any(map(on_host, space.pods("gang")))
    assert space.starts() == 1


@pytest.fixture
def closed(space: Space) -> Iterator[Space]:
    """A namespace where the API server refuses the host network, which kfext cannot know."""
    probe = {"hostNetwork": True, "containers": [{"name": "probe", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": probe}
    expression = "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"
    with refusing(space, unless=expression, message="no host network here", probe=pod):
        yield space


@pytest.mark.long
def test_a_job_is_retried_on_the_pod_network_if_the_api_server_refuses_the_host_network(
    closed: Space,
) -> None:
    closed.policy(placement={"createTimeout": "2s"})
    with event_before_list(closed):
        closed.submit(workers("gang", 2, each=CPU, annotations=HOST))
    closed.phase("gang", "Placed")
    assert not any(map(on_host, closed.pods("gang")))
    condition = host_network_condition(closed, "gang")
    assert condition["reason"] == "PodNetwork"
    assert "no host network here" in condition["message"]
    closed.until(lambda: "CreateTimeout" in reasons(closed, "gang"), "an event reports it")


def test_network_policies_that_the_host_network_bypasses_are_reported(space: Space) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{space.name}/networkpolicies"
    body = {"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}}}
    space.kube.create(path, {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", **body})
    wait_received(space.kfext, f"{path}/deny-all")
    space.submit(workers("gang", 2, each=CPU, annotations=HOST))
    space.phase("gang", "Placed")
    event = space.until(
        lambda: [e for e in space.events("gang") if e["reason"] == "NetworkPoliciesBypassed"],
        "an event reports it",
    )
    assert "deny-all" in event[0]["note"]
    assert all(map(on_host, space.pods("gang")))


def submit_with_missed_pod(space: Space, kfext: Kfext, manifest: Object, name: str) -> None:
    """Submit a gang of three; one pod is created while the pod webhook does not answer."""
    space.nodes(1, cpu="32", memory="64Gi")
    space.policy(placement={"createTimeout": "10m"})
    blocked = space.path("pods", f"{name}-worker-1")
    occupy(space, blocked)
    space.submit(manifest)
    space.until(lambda: len(space.pods(name)) == 2, "two of its pods exist")
    assert all(gated(pod) and on_host(pod) for pod in space.pods(name))
    kfext.configure_webhooks(unreachable=("pods.kfext.dev",))
    kfext.wait_webhooks(job="held", pod="untouched")
    space.kube.delete(blocked, grace=0)
    space.patch_job(name, {"metadata": {"labels": {"seen": "again"}}}, manifest["kind"])


def test_a_pytorchjob_with_a_pod_the_webhook_missed_continues(space: Space, kfext: Kfext) -> None:
    submit_with_missed_pod(space, kfext, workers("gang", 3, each=CPU, annotations=HOST), "gang")
    space.bound("gang", 3)
    pods = {pod["metadata"]["name"]: pod for pod in space.pods("gang")}
    assert {name: on_host(pod) for name, pod in pods.items()} == {
        "gang-master-0": True, "gang-worker-0": True, "gang-worker-1": False,
    }  # fmt: skip
    assert len({variables(pod)["MASTER_PORT"] for pod in pods.values()}) == 1
    assert space.starts() == 1


def test_a_tfjob_with_a_pod_that_the_webhook_missed_is_started_again(
    space: Space, kfext: Kfext
) -> None:
    manifest = job("tf", {"PS": 1, "Worker": 2}, kind="TFJob", each=CPU, annotations=HOST)
    submit_with_missed_pod(space, kfext, manifest, "tf")
    space.phase("tf", "Placed", "TFJob")
    assert not any(map(on_host, space.pods("tf")))
    assert "webhook" in host_network_condition(space, "tf", "TFJob")["message"]
    assert space.starts() == 2


def test_without_a_controller_a_replaced_pod_is_set_up_like_the_others(
    space: Space, kfext: Kfext
) -> None:
    space.submit(workers("gang", 3, each=CPU, annotations=HOST))
    port = master_port(space, "gang")
    path = space.path("pods", "gang-worker-0")
    lost = space.kube.get(path)["metadata"]["uid"]
    kfext.remove_controller()
    space.kube.delete(path, grace=0)

    def replaced() -> Object | None:
        pod = space.kube.find(path) or {}
        bound = pod.get("spec", {}).get("nodeName")
        return pod if bound and pod["metadata"]["uid"] != lost else None

    pod = space.until(replaced, "a new pod replaces it")
    assert on_host(pod)
    assert variables(pod)["MASTER_PORT"] == str(port)

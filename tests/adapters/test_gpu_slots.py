"""Which clients may write the slots of a node: a true API server, and tokens like the kubelet's."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from e2e.harness.install import component, crds
from e2e.harness.kube import Answer, Kube, Object
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from kfext import names

SLOTS = "/apis/kfext.dev/v1alpha1/sharedgpus"
CORE = f"/api/v1/namespaces/{names.GPU_NAMESPACE}"
TOKENS = f"{CORE}/serviceaccounts/{names.AGENT}/token"
NODES = ("node-a", "node-b")
KINDS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
APPLY = "application/apply-patch+yaml"


def is_needed(manifest: Object) -> bool:
    return manifest["kind"] in KINDS or manifest["metadata"]["name"] == names.SLOTS_POLICY


def slot(node: str, **status: Any) -> Object:
    common = {"apiVersion": "kfext.dev/v1alpha1", "kind": "SharedGPU"}
    body = {**common, "metadata": {"name": f"slot-of-{node}"}, "spec": {"node": node, "slot": 0}}
    return {**body, "status": status} if status else body


def write(kube: Kube, node: str, **status: Any) -> Answer:
    """Write the slot of a node, or its status, as the agent does."""
    subresource = "/status" if status else ""
    path = f"{SLOTS}/slot-of-{node}{subresource}?fieldManager=agent&force=true"
    return kube.ask("PATCH", path, slot(node, **status), kind=APPLY)


@pytest.fixture(scope="module")
def agents(testbed: Testbed) -> Iterator[dict[str, Kube]]:
    """Yield the agents of two nodes by node; for "", a client with a token that no pod has."""
    manifests = [*crds(REPOSITORY), *filter(is_needed, component("gpu-sharing"))]
    for manifest in manifests:
        testbed.api.apply(manifest)
    result = {}
    for node in NODES:
        until(partial(create_agent_pod, testbed, node), what="the account may have pods")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": f"agent-{node}"}
        result[node] = Kube(testbed, token=token(testbed, {"boundObjectRef": bound}))
    result[""] = Kube(testbed, token=token(testbed, {}))
    admin = Kube(testbed)
    for node in NODES:
        assert write(admin, node).ok
    own, other = NODES
    until(lambda: write(result[own], own).ok, what="the agents have their permissions")
    until(lambda: not write(result[own], other).ok, what="the policy holds")
    yield result
    for node in NODES:
        testbed.api.delete(f"{SLOTS}/slot-of-{node}")
        testbed.api.delete(f"{CORE}/pods/agent-{node}?gracePeriodSeconds=0")
    for manifest in manifests:
        if manifest["metadata"]["name"] == names.SLOTS_POLICY:
            testbed.api.delete(testbed.api.path(manifest))


def create_agent_pod(testbed: Testbed, node: str) -> bool:
    """Create the pod of the agent of a node; return whether it exists."""
    container = {"name": "a", "image": "none"}
    spec = {"nodeName": node, "serviceAccountName": names.AGENT, "containers": [container]}
    pod = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
    return Kube(testbed).ask("POST", f"{CORE}/pods", pod).status in {201, 409}


def token(testbed: Testbed, spec: Object) -> str:
    result: str = Kube(testbed).create(TOKENS, {"spec": spec})["status"]["token"]
    return result


WRITES: dict[str, tuple[str, str, str]] = {
    "the agent of the node": ("node-a", "node-a", ""),
    "the agent of another node": ("node-b", "node-a", "the agent of node node-b writes"),
    "a token that is bound to no pod": ("", "node-a", "bound to no node"),
}


@pytest.mark.parametrize("status", [{}, {"healthy": False}], ids=["slot", "status"])
@pytest.mark.parametrize(("agent", "node", "refusal"), WRITES.values(), ids=WRITES)
def test_an_agent_writes_only_the_slots_of_its_node(
    agents: dict[str, Kube], status: Object, agent: str, node: str, refusal: str
) -> None:
    answer = write(agents[agent], node, **status)
    assert (answer.status, refusal in answer.message) == (403 if refusal else 200, True)


def test_an_agent_cannot_create_a_slot_of_another_node(
    testbed: Testbed, agents: dict[str, Kube]
) -> None:
    testbed.api.delete(f"{SLOTS}/slot-of-node-b")
    assert write(agents["node-a"], "node-b").status == 403
    assert write(agents["node-b"], "node-b").status == 201


def test_an_agent_cannot_move_a_slot_of_another_node_to_its_own(agents: dict[str, Kube]) -> None:
    path = f"{SLOTS}/slot-of-node-b?fieldManager=agent&force=true"
    body = slot("node-a")
    body["metadata"]["name"] = "slot-of-node-b"
    answer = agents["node-a"].ask("PATCH", path, body, kind=APPLY)
    assert (answer.status, "node" in answer.message) == (422, True), "a slot never changes its node"


def test_other_clients_with_the_permission_may_write_slots(
    testbed: Testbed, agents: dict[str, Kube]
) -> None:
    assert write(Kube(testbed), "node-b", healthy=True).ok

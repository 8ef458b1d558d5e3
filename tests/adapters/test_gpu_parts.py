"""The policies of the component gpu-sharing on a true API server: who may have parts of GPUs."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.harness.install import component
from e2e.harness.kube import Answer, Kube, Object
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.model.gpu import resource_of

NAMESPACE = "gpu-parts"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PriorityClass"}
GATED = [{"name": names.GATE}]
PART, WHOLE = {resource_of(0): "50"}, {names.NATIVE_GPU: "1"}
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
OPEN = {"op": "remove", "path": "/spec/schedulingGates/0"}
TERMS = {"op": "add", "path": "/metadata/annotations", "value": {names.GPU_TERMS: "{}"}}


def pod(name: str, limits: Object, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [container(limits)], **spec}}


def container(limits: Object, name: str = "a") -> Object:
    return {"name": name, "image": "none", "resources": {"limits": limits}}


@pytest.fixture(scope="module")
def tenant(testbed: Testbed) -> Iterator[Kube]:
    """A person with all rights in one namespace, where the policies are known to hold."""
    guards = [manifest for manifest in component("gpu-sharing") if manifest["kind"] in POLICIES]
    for name in (NAMESPACE, names.GPU_NAMESPACE):
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for guard in guards:
        testbed.api.apply(guard)
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    metadata = {"name": "all", "namespace": NAMESPACE}
    about = {"apiVersion": f"{group}/v1", "metadata": metadata}
    testbed.api.apply({**about, "kind": "Role", "rules": rules})
    testbed.api.apply(
        {
            **about,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "all"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "tenant"}],
        }
    )
    result = Kube(testbed, testbed.pki.client("tenant"))
    until(lambda: tried(result, pod("probe", WHOLE)).ok, what="the tenant may make pods")
    until(lambda: not tried(result, pod("probe", PART)).ok, what="the policies hold")
    yield result
    for guard in guards:
        testbed.api.delete(testbed.api.path(guard))


def tried(kube: Kube, body: Object, path: str = PODS) -> Answer:
    return kube.ask("POST", f"{path}?dryRun=All", body)


MADE = {
    "a pod that asks for a whole GPU": (pod("a", WHOLE), True),
    "a pod without requests": (pod("a", {}), True),
    "a pod with a part of a GPU behind the gate": (pod("a", PART, schedulingGates=GATED), True),
    "a pod with a part without the gate": (pod("a", PART), False),
    "a pod with a part, another gate": (pod("a", PART, schedulingGates=[{"name": "other"}]), False),
    "a pod with an init container that requests the part": (
        pod("a", {}, initContainers=[container(PART, "init")]),
        False,
    ),
}


@pytest.mark.parametrize(("body", "ok"), MADE.values(), ids=MADE)
def test_which_pods_may_be_created(tenant: Kube, body: Object, *, ok: bool) -> None:
    answer = tried(tenant, body)
    assert answer.ok == ok, answer.message
    assert ok or names.PARTS_POLICY in answer.message


def test_no_user_creates_a_pod_with_terms(testbed: Testbed, tenant: Kube) -> None:
    body = pod("a", PART, schedulingGates=GATED)
    body["metadata"]["annotations"] = {names.GPU_TERMS: "{}"}
    for kube in (tenant, Kube(testbed)):
        answer = tried(kube, body)
        assert (answer.status, names.GPU_TERMS in answer.message) == (403, True), answer.message


@pytest.fixture
def gated(testbed: Testbed, tenant: Kube) -> Iterator[str]:
    """The path of a tenant's pod that waits for its part of a GPU."""
    made = tenant.ask("POST", PODS, pod("gated", PART, schedulingGates=GATED))
    assert made.ok, made.message
    yield f"{PODS}/gated"
    testbed.api.delete(f"{PODS}/gated?gracePeriodSeconds=0")


@pytest.mark.parametrize("operations", [[OPEN], [TERMS], [TERMS, OPEN]])
def test_a_tenant_neither_opens_the_gate_nor_writes_the_terms(
    tenant: Kube, gated: str, operations: list[Object]
) -> None:
    answer = tenant.ask("PATCH", gated, operations, kind=JSON)
    assert (answer.status, "only kfext may" in answer.message) == (403, True), answer.message


def test_a_tenant_may_change_other_fields_of_a_pod(tenant: Kube, gated: str) -> None:
    assert tenant.ask("PATCH", gated, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE).ok


def test_a_client_with_the_verb_opens_the_gate_in_the_patch_that_writes_the_terms(
    testbed: Testbed, tenant: Kube, gated: str
) -> None:
    decides = Kube(testbed)
    answer = decides.ask("PATCH", gated, [OPEN], kind=JSON)
    assert (answer.status, "has no terms" in answer.message) == (403, True), answer.message
    answer = decides.ask("PATCH", gated, [TERMS, OPEN], kind=JSON)
    assert answer.ok, answer.message
    for terms in ("other", None):
        change = {"metadata": {"annotations": {names.GPU_TERMS: terms}}}
        assert tenant.ask("PATCH", gated, change, kind=MERGE).status == 403


def test_the_priority_of_reservations_is_allowed_only_in_their_namespace(
    testbed: Testbed, tenant: Kube
) -> None:
    body = pod("a", WHOLE, priorityClassName=names.RESERVATION_PRIORITY)
    answer = tried(tenant, body)
    assert (answer.status, names.RESERVATION_PRIORITY in answer.message) == (403, True)
    there = f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods"
    until(lambda: tried(Kube(testbed), body, there).ok, what="it may be had there")

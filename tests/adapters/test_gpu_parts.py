"""The admission policies of gpu-sharing on a true API server: which pods may have GPU shares."""

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
SHARE, WHOLE = {resource_of(0): "50"}, {names.NATIVE_GPU: "1"}
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
REMOVE_GATE = {"op": "remove", "path": "/spec/schedulingGates/0"}
TERMS = {"op": "add", "path": "/metadata/annotations", "value": {names.GPU_TERMS: "{}"}}


def pod(name: str, limits: Object, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [container(limits)], **spec}}


def container(limits: Object, name: str = "a") -> Object:
    return {"name": name, "image": "none", "resources": {"limits": limits}}


@pytest.fixture(scope="module")
def tenant(testbed: Testbed) -> Iterator[Kube]:
    """Return a user with all permissions in one namespace, once the policies are in effect."""
    guards = [manifest for manifest in component("gpu-sharing") if manifest["kind"] in POLICIES]
    for name in (NAMESPACE, names.GPU_NAMESPACE):
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for guard in guards:
        testbed.api.apply(guard)
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    metadata = {"name": "all", "namespace": NAMESPACE}
    common = {"apiVersion": f"{group}/v1", "metadata": metadata}
    testbed.api.apply({**common, "kind": "Role", "rules": rules})
    testbed.api.apply(
        {
            **common,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "all"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "tenant"}],
        }
    )
    result = Kube(testbed, testbed.pki.client("tenant"))
    until(lambda: try_create(result, pod("probe", WHOLE)).ok, what="the tenant may create pods")
    until(lambda: not try_create(result, pod("probe", SHARE)).ok, what="the policies hold")
    yield result
    for guard in guards:
        testbed.api.delete(testbed.api.path(guard))


def try_create(kube: Kube, body: Object, path: str = PODS) -> Answer:
    return kube.ask("POST", f"{path}?dryRun=All", body)


CREATED_PODS = {
    "a pod that asks for a whole GPU": (pod("a", WHOLE), True),
    "a pod without requests": (pod("a", {}), True),
    "a pod with a GPU share at the gate": (pod("a", SHARE, schedulingGates=GATED), True),
    "a pod with a GPU share without the gate": (pod("a", SHARE), False),
    "a pod with a GPU share at another gate": (
        pod("a", SHARE, schedulingGates=[{"name": "other"}]),
        False,
    ),
    "a pod with an init container that requests a GPU share": (
        pod("a", {}, initContainers=[container(SHARE, "init")]),
        False,
    ),
}


@pytest.mark.parametrize(("body", "ok"), CREATED_PODS.values(), ids=CREATED_PODS)
def test_which_pods_may_be_created(tenant: Kube, body: Object, *, ok: bool) -> None:
    answer = try_create(tenant, body)
    assert answer.ok == ok, answer.message
    assert ok or names.PARTS_POLICY in answer.message


def test_no_client_can_create_a_pod_with_terms(testbed: Testbed, tenant: Kube) -> None:
    body = pod("a", SHARE, schedulingGates=GATED)
    body["metadata"]["annotations"] = {names.GPU_TERMS: "{}"}
    for kube in (tenant, Kube(testbed)):
        answer = try_create(kube, body)
        assert (answer.status, names.GPU_TERMS in answer.message) == (403, True), answer.message


@pytest.fixture
def gated(testbed: Testbed, tenant: Kube) -> Iterator[str]:
    """Create a tenant's pod that waits for its GPU share; yield its path."""
    answer = tenant.ask("POST", PODS, pod("gated", SHARE, schedulingGates=GATED))
    assert answer.ok, answer.message
    yield f"{PODS}/gated"
    testbed.api.delete(f"{PODS}/gated?gracePeriodSeconds=0")


@pytest.mark.parametrize("operations", [[REMOVE_GATE], [TERMS], [TERMS, REMOVE_GATE]])
def test_a_tenant_can_neither_remove_the_gate_nor_write_the_terms(
    tenant: Kube, gated: str, operations: list[Object]
) -> None:
    answer = tenant.ask("PATCH", gated, operations, kind=JSON)
    assert (answer.status, "only kfext may" in answer.message) == (403, True), answer.message


def test_a_tenant_may_change_other_fields_of_a_pod(tenant: Kube, gated: str) -> None:
    assert tenant.ask("PATCH", gated, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE).ok


def test_a_client_with_the_verb_removes_the_gate_in_the_patch_that_writes_the_terms(
    testbed: Testbed, tenant: Kube, gated: str
) -> None:
    admin = Kube(testbed)
    answer = admin.ask("PATCH", gated, [REMOVE_GATE], kind=JSON)
    assert (answer.status, "has no terms" in answer.message) == (403, True), answer.message
    answer = admin.ask("PATCH", gated, [TERMS, REMOVE_GATE], kind=JSON)
    assert answer.ok, answer.message
    for terms in ("other", None):
        change = {"metadata": {"annotations": {names.GPU_TERMS: terms}}}
        assert tenant.ask("PATCH", gated, change, kind=MERGE).status == 403


def test_the_priority_of_reservations_is_allowed_only_in_their_namespace(
    testbed: Testbed, tenant: Kube
) -> None:
    body = pod("a", WHOLE, priorityClassName=names.RESERVATION_PRIORITY)
    answer = try_create(tenant, body)
    assert (answer.status, names.RESERVATION_PRIORITY in answer.message) == (403, True)
    allowed = f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods"
    until(lambda: try_create(Kube(testbed), body, allowed).ok, what="the priority is allowed there")

"""The component gpu-sharing: few permissions for the agent, and GPUs that no other client gets."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

from kfext import names
from kfext.gpu.device.kubelet import FOLDER, POD_RESOURCES_SOCKET
from kfext.model.gpu import MAX_SLOTS, resource_of
from tests.contract.manifests import DEFAULT, Object, added, render

COMPONENT, CDI = "gpu-sharing", "gpu-sharing-cdi"
POLICIES = (names.PARTS_POLICY, names.RESERVATION_PRIORITY)


def _named(kind: str, name: str, things: Sequence[Object] | None = None) -> Object:
    (result,) = (
        thing
        for thing in things or added(COMPONENT)
        if (thing["kind"], thing["metadata"]["name"]) == (kind, name)
    )
    return result


def _agent(things: Sequence[Object] | None = None) -> Object:
    template: Object = _named("DaemonSet", "kfext-agent", things)["spec"]["template"]
    return template


def _reservation() -> Object:
    template: Object = _named("PodTemplate", names.RESERVATION_TEMPLATE)["template"]
    return template


def _container(template: Object) -> Object:
    (container,) = template["spec"]["containers"]
    result: Object = container
    return result


def test_the_component_is_not_installed_by_default() -> None:
    kinds = {(thing["kind"], thing["metadata"]["name"]) for thing in render(DEFAULT)}
    assert ("Namespace", names.GPU_NAMESPACE) not in kinds
    assert ("DaemonSet", "kfext-agent") not in kinds


def test_every_object_bears_the_name_of_the_application_and_is_in_the_namespace_for_gpus() -> None:
    for thing in added(COMPONENT):
        assert thing["metadata"]["labels"]["app.kubernetes.io/name"] == "kfext", thing
        assert thing["metadata"].get("namespace", names.GPU_NAMESPACE) == names.GPU_NAMESPACE, thing


def test_the_image_is_as_named_in_the_overlay() -> None:
    for template in (_agent(), _reservation()):
        assert _container(template)["image"] == "registry.example/kfext:1"


def test_the_namespace_admits_the_agent_and_is_not_managed_by_kfext() -> None:
    labels = _named("Namespace", names.GPU_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert names.MANAGED not in labels


# --- the agent ----------------------------------------------------------------------------------


def test_the_agent_has_three_folders_of_its_node_and_nothing_else() -> None:
    spec = _agent()["spec"]
    assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC", "initContainers"}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    assert sorted(paths.values()) == [
        "/var/lib/kfext",
        str(FOLDER),
        str(POD_RESOURCES_SOCKET.parent),
    ]
    # kubelet mounts the agent's files by their path on the node.
    mounts = {mount["name"]: mount["mountPath"] for mount in _container(_agent())["volumeMounts"]}
    assert mounts == paths


def test_the_agent_is_root_without_any_privilege() -> None:
    context = _container(_agent())["securityContext"]
    assert context == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert _agent()["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_agent_runs_where_an_administrator_has_labelled_the_node() -> None:
    spec = _agent()["spec"]
    assert spec["nodeSelector"][names.GPU_SHARING] == "true"
    assert {"key": names.NATIVE_GPU, "operator": "Exists", "effect": "NoSchedule"} in (
        spec["tolerations"]
    )
    assert {"operator": "Exists", "effect": "NoExecute"} in spec["tolerations"]
    assert spec["priorityClassName"] == "system-node-critical"


def test_the_agent_learns_the_names_of_its_node_and_pod_and_sees_its_gpus_without_having_one() -> (
    None
):
    container = _container(_agent())
    assert container["command"] == ["kfext", "agent"]
    env = _by_name(container["env"])
    assert env["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert env["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert env["NVIDIA_VISIBLE_DEVICES"]["value"] == "all"
    assert env["NVIDIA_DRIVER_CAPABILITIES"]["value"] == "utility"
    assert env["DEVICE_LIST_STRATEGY"]["value"] == "envvar"
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


def test_with_cdi_the_agent_differs_in_its_runtime_and_its_strategy_only() -> None:
    plain, cdi = (deepcopy(added(name)) for name in (COMPONENT, CDI))
    first, other = (_agent(things)["spec"] for things in (plain, cdi))
    before, after = (_by_name(spec["containers"][0].pop("env")) for spec in (first, other))
    assert after.pop("DEVICE_LIST_STRATEGY")["value"] == "cdi-cri"
    assert other.pop("runtimeClassName") == "nvidia"
    del before["DEVICE_LIST_STRATEGY"]
    assert (cdi, after) == (plain, before)


def _by_name(env: list[Object]) -> dict[str, Object]:
    return {variable["name"]: variable for variable in env}


def test_the_agent_is_probed_and_only_prometheus_may_call_it() -> None:
    container = _container(_agent())
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"http": 8080}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    policy = _named("NetworkPolicy", "kfext-agent")["spec"]
    labels = _agent()["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]


@pytest.mark.parametrize("template", [_agent, _reservation])
def test_no_mesh_puts_a_sidecar_into_the_pods(template: Any) -> None:
    metadata = template()["metadata"]
    assert metadata["labels"][names.ISTIO_INJECT] == "false"
    assert metadata["annotations"][names.ISTIO_INJECT] == "false"


# --- reservations of GPUs -----------------------------------------------------------------------


def test_a_reservation_requests_one_whole_gpu_and_little_cpu_and_memory() -> None:
    resources = _container(_reservation())["resources"]
    assert resources["limits"][names.NATIVE_GPU] == "1"
    assert resources["requests"] == {"cpu": "1m", "memory": "8Mi"}


def test_a_reservation_has_no_token_and_would_pass_as_restricted() -> None:
    spec = _reservation()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert "volumes" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert _container(_reservation())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_reservation_stays_on_an_unreachable_node_as_its_jobs_may() -> None:
    assert {"operator": "Exists", "effect": "NoExecute"} in _reservation()["spec"]["tolerations"]


def test_a_reservation_exists_until_kubelet_has_its_gpu_back() -> None:
    # With 0 seconds the API server deletes a pod without waiting for its kubelet.
    assert _reservation()["spec"]["terminationGracePeriodSeconds"] > 0


def test_fields_that_the_controller_sets_are_not_in_the_template() -> None:
    template = _reservation()
    assert template["metadata"].keys() == {"labels", "annotations"}
    assert names.GPU_SLOT not in template["metadata"]["labels"]
    assert not template["spec"].keys() & {"affinity", "nodeName"}


def test_no_pod_of_a_user_preempts_a_reservation_and_a_reservation_preempts_none() -> None:
    result = _named("PriorityClass", names.RESERVATION_PRIORITY)
    assert _reservation()["spec"]["priorityClassName"] == names.RESERVATION_PRIORITY
    assert result["value"] == 1_000_000_000  # the highest that is not the system's
    assert result["preemptionPolicy"] == "Never"
    assert not result.get("globalDefault")


# --- permissions --------------------------------------------------------------------------------


def _verbs_of(kind: str, name: str) -> dict[tuple[str, ...], set[str]]:
    """Return (resource, names of the rule if it has any) -> the verbs of a role."""
    return {
        (resource, *rule.get("resourceNames", ())): set(rule["verbs"])
        for rule in _named(kind, name)["rules"]
        for resource in rule["resources"]
    }


def test_the_agent_reads_pods_and_its_node_and_writes_slots_only() -> None:
    assert _verbs_of("ClusterRole", "kfext-agent") == {
        ("pods",): {"list", "watch"},
        ("nodes",): {"get"},
        ("sharedgpus",): {"create", "patch"},
        ("sharedgpus/status",): {"patch"},
    }


def test_the_controller_creates_pods_in_the_namespace_for_gpus_only() -> None:
    assert _verbs_of("Role", "kfext-reservations") == {
        ("pods",): {"create"},
        ("podtemplates", names.RESERVATION_TEMPLATE): {"get"},
    }


@pytest.mark.parametrize(
    ("kind", "name", "account"),
    [
        ("ClusterRoleBinding", "kfext-agent", (names.GPU_NAMESPACE, "kfext-agent")),
        ("RoleBinding", "kfext-reservations", (names.NAMESPACE, "kfext-controller")),
    ],
)
def test_each_role_is_bound_to_one_account(kind: str, name: str, account: tuple[str, str]) -> None:
    binding = _named(kind, name)
    (subject,) = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == account
    assert _named(binding["roleRef"]["kind"], binding["roleRef"]["name"])


# --- pods with GPU shares -------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_denies_in_every_namespace_and_fails_closed(name: str) -> None:
    spec = _named("ValidatingAdmissionPolicy", name)["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert not spec["matchConstraints"].keys() & {"namespaceSelector", "objectSelector"}
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    binding = _named("ValidatingAdmissionPolicyBinding", name)["spec"]
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def _share_policy() -> Object:
    spec: Object = _named("ValidatingAdmissionPolicy", names.PARTS_POLICY)["spec"]
    return spec


def test_only_pods_that_request_gpu_shares_are_judged() -> None:
    (condition,) = (item["expression"] for item in _share_policy()["matchConditions"])
    # Pods always have containers. Other fields may be absent, and an error would refuse the pod.
    for path in ("object.spec.containers", "object.spec.?initContainers.orValue([])"):
        assert path in condition
    for amounts in ("limits", "requests"):
        assert f"container.?resources.?{amounts}.orValue({{}})" in condition
    prefix = resource_of(0).removesuffix("0")
    assert condition.count(f"startsWith('{prefix}')") == 2
    assert all(resource_of(slot).startswith(prefix) for slot in range(MAX_SLOTS))


def test_such_pods_are_judged_at_creation_and_at_every_change() -> None:
    (rule,) = _share_policy()["matchConstraints"]["resourceRules"]
    assert set(rule["operations"]) == {"CREATE", "UPDATE"}
    variables = {
        variable["name"]: variable["expression"] for variable in _share_policy()["variables"]
    }
    for name in ("gated", "opened"):
        assert f"gate.name == '{names.GATE}'" in variables[name]
    for name in ("terms", "changed"):
        assert f"annotations[?'{names.GPU_TERMS}']" in variables[name]
    # There is no old object at CREATE.
    assert all(
        expression.startswith("!variables.created &&")
        for expression in variables.values()
        if "oldObject" in expression
    )


def test_only_the_verb_of_the_controller_opens_the_gate_or_writes_the_terms() -> None:
    (guarded,) = (
        check["expression"]
        for check in _share_policy()["validations"]
        if "authorizer" in check["expression"]
    )
    assert guarded.startswith("!(variables.opened || variables.changed) ||")
    assert f"check('{names.DECIDE}')" in guarded
    # A check with a namespace would pass with a Role of that namespace.
    assert ".namespace(" not in guarded


def test_a_pod_without_terms_stays_behind_its_gate_whoever_opens_it() -> None:
    expressions = [check["expression"] for check in _share_policy()["validations"]]
    assert "!variables.opened || variables.terms != ''" in expressions
    assert "!variables.created || variables.terms == ''" in expressions


def test_the_priority_of_reservations_is_for_their_namespace() -> None:
    spec = _named("ValidatingAdmissionPolicy", names.RESERVATION_PRIORITY)["spec"]
    (condition,), (validation,) = spec["matchConditions"], spec["validations"]
    assert f"== '{names.RESERVATION_PRIORITY}'" in condition["expression"]
    assert validation["expression"] == f"request.namespace == '{names.GPU_NAMESPACE}'"


# --- writers of slots ---------------------------------------------------------------------------


def _slots() -> Object:
    spec: Object = _named("ValidatingAdmissionPolicy", names.SLOTS_POLICY)["spec"]
    return spec


def test_every_write_of_a_slot_by_an_agent_is_judged_and_no_other() -> None:
    assert _slots()["failurePolicy"] == "Fail"
    (judged,) = _slots()["matchConstraints"]["resourceRules"]
    written = {
        resource: set(rule["verbs"])
        for rule in _named("ClusterRole", names.AGENT)["rules"]
        for resource in rule["resources"]
        if rule["apiGroups"] == [names.API_GROUP]
    }
    assert judged["apiGroups"] == [names.API_GROUP]
    assert set(judged["resources"]) == written.keys()
    # Server-side apply is a patch, which creates or updates; it may not delete.
    assert set(judged["operations"]) == {"CREATE", "UPDATE"}
    assert set().union(*written.values()) == {"create", "patch"}
    (condition,) = (item["expression"] for item in _slots()["matchConditions"])
    account = f"system:serviceaccount:{names.GPU_NAMESPACE}:{names.AGENT}"
    assert condition == f"request.userInfo.username == '{account}'"
    assert _agent()["spec"]["serviceAccountName"] == names.AGENT
    binding = _named("ValidatingAdmissionPolicyBinding", names.SLOTS_POLICY)["spec"]
    assert binding == {"policyName": names.SLOTS_POLICY, "validationActions": ["Deny"]}


def test_an_agent_is_known_by_the_node_of_its_token_and_without_a_node_writes_nothing() -> None:
    (variable,) = _slots()["variables"]
    # Each field may be absent, and an error would refuse the agent without a reason.
    key = "authentication.kubernetes.io/node-name"
    assert variable["expression"] == f"request.userInfo.?extra[?'{key}'][?0].orValue('')"
    has_node, same_node = (check["expression"] for check in _slots()["validations"])
    assert has_node == "variables.node != ''"
    assert "object.spec.node == variables.node" in same_node
    # There is no old object at CREATE.
    assert "(request.operation == 'CREATE' || oldObject.spec.node == variables.node)" in same_node

"""The installed objects: minimal permissions, and the same names as in the code."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kfext import __version__, names
from kfext.cli.main import cli
from kfext.core.admission import posting
from kfext.model.kinds.registered import KINDS
from tests.contract.manifests import (
    BASE,
    CRDS,
    DEFAULT,
    MANIFESTS,
    Object,
    added,
    named,
    of_kind,
    pods,
    read,
    render,
    with_components,
)

PLURALS = {kind.plural for kind in KINDS.values()}
TESTBED = MANIFESTS / "overlays" / "testbed"
FOLDERS = sorted(
    path.parent
    for path in [*MANIFESTS.rglob("kustomization.yaml"), CRDS / "kustomization.yaml"]
    if "components" not in path.parts
)
COMPONENTS = sorted(path.parent for path in MANIFESTS.glob("components/*/kustomization.yaml"))
CLUSTER_WIDE = {
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
OF_THE_AUTOSCALER = {("Role", "kube-system"), ("RoleBinding", "kube-system")}
"""Objects in the namespace of the autoscaler, where its config map is."""


def _webhooks() -> list[Object]:
    results: list[Object] = []
    for name in (names.WEBHOOK_CONFIGURATION, names.FIRST_WEBHOOKS):
        results += named("MutatingWebhookConfiguration", name)["webhooks"]
    return results


def _containers() -> Iterator[tuple[str, Object]]:
    for name, template in pods():
        for container in template["spec"]["containers"]:
            yield name, container


def _short(path: Path) -> str:
    return str(path.relative_to(MANIFESTS.parent))


@pytest.mark.parametrize("folder", FOLDERS, ids=_short)
def test_every_kustomization_renders(folder: Path) -> None:
    assert render(folder)


@pytest.mark.parametrize("folder", COMPONENTS, ids=_short)
def test_every_component_can_be_added_to_the_base(folder: Path, tmp_path: Path) -> None:
    assert len(with_components(tmp_path, folder)) > len(render(BASE))


def test_every_namespaced_object_is_in_the_namespace_of_kfext() -> None:
    elsewhere = [
        f"{thing['kind']} {thing['metadata']['name']}"
        for thing in render(DEFAULT)
        if thing["kind"] not in CLUSTER_WIDE
        and thing["metadata"].get("namespace") not in {names.NAMESPACE, names.NEW_NODES_NAMESPACE}
        and (thing["kind"], thing["metadata"].get("namespace")) not in OF_THE_AUTOSCALER
    ]
    assert elsewhere == []


def test_the_namespace_of_kfext_admits_restricted_pods_only() -> None:
    labels = named("Namespace", names.NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_namespace_of_kfext_is_not_managed_by_kfext() -> None:
    assert names.MANAGED not in named("Namespace", names.NAMESPACE)["metadata"]["labels"]


def test_every_object_bears_the_name_of_the_application() -> None:
    for thing in render(DEFAULT):
        assert thing["metadata"]["labels"]["app.kubernetes.io/name"] == "kfext", thing


# --- pods ---------------------------------------------------------------------------------------


def test_each_deployment_has_two_replicas() -> None:
    replicas = {
        deployment["metadata"]["name"]: deployment["spec"]["replicas"]
        for deployment in of_kind("Deployment")
    }
    assert replicas == {"kfext-webhook": 2, "kfext-controller": 2}


@pytest.mark.parametrize("name", ["kfext-webhook", "kfext-controller"])
def test_an_upgrade_ends_no_replica_before_its_successor_is_ready(name: str) -> None:
    assert named("Deployment", name)["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }


@pytest.mark.parametrize("name", ["kfext-webhook", "kfext-controller"])
def test_replicas_are_spread_where_possible(name: str) -> None:
    (template,) = (pod for deployment, pod in pods() if deployment == name)
    (line,) = template["spec"]["topologySpreadConstraints"]
    assert line["topologyKey"] == "kubernetes.io/hostname"
    # A cluster of one node must be able to run both; old and new replicas are not counted together.
    assert line["whenUnsatisfiable"] == "ScheduleAnyway"
    assert line["matchLabelKeys"] == ["pod-template-hash"]
    selected = line["labelSelector"]["matchLabels"].items()
    assert selected <= template["metadata"]["labels"].items()


def test_a_leader_has_time_to_release_its_lease() -> None:
    (template,) = (pod for name, pod in pods() if name == "kfext-controller")
    assert template["spec"]["terminationGracePeriodSeconds"] >= 30


@pytest.mark.parametrize(("folder", "tag"), [(DEFAULT, __version__), (TESTBED, "dev")])
def test_images_name_a_tag_and_no_registry(folder: Path, tag: str) -> None:
    images = {c["image"] for _, pod in pods(folder) for c in pod["spec"]["containers"]}
    assert images == {f"kfext:{tag}"}


def test_the_testbed_changes_the_image_only() -> None:
    def without_image(folder: Path) -> list[Object]:
        text = yaml.safe_dump_all(render(folder))
        return list(yaml.safe_load_all(text.replace("kfext:dev", f"kfext:{__version__}")))

    assert without_image(TESTBED) == without_image(DEFAULT)


def test_every_container_runs_a_command_of_kfext() -> None:
    commands = {name: container["command"] for name, container in _containers()}
    assert commands == {
        "kfext-webhook": ["kfext", "webhook"],
        "kfext-controller": ["kfext", "controller", "--run-dir", "/run/kfext"],
    }


def test_every_container_has_no_privilege_and_writes_nothing() -> None:
    for name, container in _containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


def test_every_pod_runs_as_an_ordinary_user_under_the_default_seccomp_profile() -> None:
    for name, template in pods():
        context = template["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name


def test_no_pod_uses_resources_of_its_host() -> None:
    for name, template in pods():
        spec = template["spec"]
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "nodeName"}, name
        assert all(volume.keys() <= {"name", "emptyDir"} for volume in spec.get("volumes", ())), (
            name
        )


def test_every_container_states_what_it_needs_and_has_a_memory_limit() -> None:
    for name, container in _containers():
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
        assert container["resources"]["limits"].keys() == {"memory"}, name


def test_every_container_is_probed_on_the_port_without_tls() -> None:
    for name, container in _containers():
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["http"] == 8080, name
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}, name
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}, name


def test_no_mesh_puts_a_sidecar_into_pods_of_kfext() -> None:
    for name, template in pods():
        assert template["metadata"]["labels"][names.ISTIO_INJECT] == "false", name
        assert template["metadata"]["annotations"][names.ISTIO_INJECT] == "false", name


@pytest.mark.parametrize("name", ["kfext-webhook", "kfext-controller"])
def test_one_replica_of_each_outlives_a_drain(name: str) -> None:
    budget = named("PodDisruptionBudget", name)["spec"]
    labels = {deployment: pod["metadata"]["labels"].items() for deployment, pod in pods()}
    assert budget["minAvailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    selected = budget["selector"]["matchLabels"].items()
    assert [deployment for deployment, have in labels.items() if selected <= have] == [name]


# --- webhooks -----------------------------------------------------------------------------------


SHARING = ("sharing-jobs", "sharing-pods", "sharing-trainjobs")
"""The webhooks of objects that share GPUs."""


def _conditions(webhook: Object) -> dict[str, str]:
    """Return the expression of each match condition, on one line."""
    return {
        condition["name"]: " ".join(condition["expression"].split())
        for condition in webhook["matchConditions"]
    }


def _is_of_sharing(webhook: Object) -> bool:
    return str(webhook["name"]).split(".")[0] in SHARING


def test_a_dead_or_slow_webhook_never_blocks_an_object_without_a_share() -> None:
    for webhook in _webhooks():
        if not _is_of_sharing(webhook):
            assert webhook["failurePolicy"] == "Ignore", webhook["name"]
            assert webhook["timeoutSeconds"] <= 2, webhook["name"]
            assert "shares-no-gpu" in _conditions(webhook), webhook["name"]


def test_an_object_that_shares_a_gpu_does_not_run_unreviewed() -> None:
    closed = [webhook for webhook in _webhooks() if _is_of_sharing(webhook)]
    assert len(closed) == len(SHARING)
    for webhook in closed:
        assert webhook["failurePolicy"] == "Fail", webhook["name"]
        assert webhook["timeoutSeconds"] <= 5, webhook["name"]
        condition = _conditions(webhook)["shares-a-gpu"]
        assert f"startsWith('{names.GPU_SHARE}')" in condition
        assert f"'{names.RELEASED}' in" in condition
        # An object without annotations must not make it an error, which would be a refusal.
        assert condition.count("metadata.?annotations.orValue({})") == condition.count("metadata.")


@pytest.mark.parametrize("plural", ["jobs", "pods", "trainjobs"])
def test_of_two_otherwise_equal_webhooks_one_reviews_an_object(plural: str) -> None:
    by_name = {webhook["name"].split(".")[0]: webhook for webhook in _webhooks()}
    opened, closed = _conditions(by_name[plural]), _conditions(by_name[f"sharing-{plural}"])
    assert opened.pop("shares-no-gpu") == f"!({closed.pop('shares-a-gpu')})"
    assert opened == closed
    differ = ("name", "clientConfig", "failurePolicy", "timeoutSeconds", "matchConditions")
    first, second = (
        {key: value for key, value in webhook.items() if key not in differ}
        for webhook in (by_name[plural], by_name[f"sharing-{plural}"])
    )
    assert first == second


def test_a_webhook_is_called_for_creations_only_and_has_no_side_effects() -> None:
    for webhook in _webhooks():
        assert [rule["operations"] for rule in webhook["rules"]] == [["CREATE"]], webhook["name"]
        assert [rule["scope"] for rule in webhook["rules"]] == ["Namespaced"], webhook["name"]
        assert webhook["sideEffects"] == "None", webhook["name"]
        assert webhook["matchPolicy"] == "Equivalent", webhook["name"]
        assert webhook["reinvocationPolicy"] == "IfNeeded", webhook["name"]
        assert webhook["admissionReviewVersions"] == ["v1"], webhook["name"]


def test_a_webhook_sees_managed_namespaces_only_and_never_the_system_or_kfext() -> None:
    for webhook in _webhooks():
        selector = webhook["namespaceSelector"]
        assert selector["matchLabels"] == {names.MANAGED: "true"}, webhook["name"]
        (line,) = selector["matchExpressions"]
        key, operator = line["key"], line["operator"]
        assert (key, operator) == ("kubernetes.io/metadata.name", "NotIn"), webhook["name"]
        assert set(line["values"]) == {"kube-system", names.NAMESPACE}, webhook["name"]


def test_each_webhook_has_its_own_kinds_on_its_own_path() -> None:
    seen = {
        webhook["name"]: (
            webhook["clientConfig"]["service"]["path"],
            [
                (rule["apiGroups"], rule["apiVersions"], sorted(rule["resources"]))
                for rule in webhook["rules"]
            ],
        )
        for webhook in _webhooks()
    }
    jobs = ([names.TRAINING_GROUP], ["v1"], ["pytorchjobs", "tfjobs"])
    of_trainer = (["trainer.kubeflow.org"], ["v1alpha1"], ["trainjobs"])
    pods = ([""], ["v1"], ["pods"])
    assert seen == {
        f"jobs.{names.DOMAIN}": ("/mutate-job", [jobs]),
        f"sharing-jobs.{names.DOMAIN}": ("/mutate-job-sharing", [jobs]),
        f"pods.{names.DOMAIN}": ("/mutate-pod", [pods]),
        f"sharing-pods.{names.DOMAIN}": ("/mutate-pod-sharing", [pods]),
        f"trainjobs.{names.DOMAIN}": ("/mutate-job", [of_trainer]),
        f"sharing-trainjobs.{names.DOMAIN}": ("/mutate-job-sharing", [of_trainer]),
        f"trainjob-pods.{names.DOMAIN}": ("/mutate-pod", [pods]),
    }


def test_the_webhooks_for_train_jobs_run_before_the_defaulter_of_trainer() -> None:
    assert names.FIRST_WEBHOOKS < "defaulter.trainer.kubeflow.org" < names.WEBHOOK_CONFIGURATION
    seen = named("MutatingWebhookConfiguration", names.FIRST_WEBHOOKS)["webhooks"]
    assert {webhook["name"].partition(".")[0] for webhook in seen} == {
        *("trainjobs", "sharing-trainjobs", "trainjob-pods")
    }


def test_only_pods_that_the_operator_created_for_a_job_are_reviewed() -> None:
    of_pods = [webhook for webhook in _webhooks() if webhook["rules"][0]["resources"] == ["pods"]]
    *of_pods, of_jobsets = of_pods
    (line,) = of_jobsets["objectSelector"]["matchExpressions"]
    assert line == {"key": "jobset.sigs.k8s.io/jobset-uid", "operator": "Exists"}
    marked = _conditions(of_jobsets)["controlled-by-a-job-of-a-marked-jobset"]
    assert {names.COLOCATION, names.PLAN_GENERATION} <= set(re.findall("kfext.dev/[a-z-]+", marked))
    assert len(of_pods) == 2
    for webhook in of_pods:
        (line,) = webhook["objectSelector"]["matchExpressions"]
        assert line["key"] == names.OPERATOR_NAME
        own = {name: kind for name, kind in KINDS.items() if not kind.rendered}
        assert set(line["values"]) == {f"{name.lower()}-controller" for name in own}
        condition = _conditions(webhook)["controlled-by-a-training-job"]
        owners = f"owner.kind in [{', '.join(map(repr, own))}]"
        for part in ("owner.controller", "kubeflow.org/v1", owners):
            assert part in condition


def test_webhooks_are_called_through_the_service_that_selects_the_webhook_pods() -> None:
    service = named("Service", names.WEBHOOK_SERVICE)
    (port,) = service["spec"]["ports"]
    (template,) = (pod for name, pod in pods() if name == "kfext-webhook")
    (container,) = template["spec"]["containers"]
    ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
    assert (port["port"], ports[port["targetPort"]]) == (443, 9443)
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    for webhook in _webhooks():
        called = webhook["clientConfig"]["service"]
        assert (called["namespace"], called["name"]) == (names.NAMESPACE, names.WEBHOOK_SERVICE)
        assert called["port"] == port["port"]


def test_pods_post_through_a_service_that_keeps_each_of_them_at_one_webhook_pod() -> None:
    reviews, posts = (
        named("Service", names.WEBHOOK_SERVICE),
        named("Service", names.PROGRESS_SERVICE),
    )
    (port,) = posts["spec"]["ports"]
    assert posts["spec"]["sessionAffinity"] == "ClientIP"
    assert (port["port"], port["targetPort"]) == (posting.PORT, "https")
    assert posts["spec"]["selector"] == reviews["spec"]["selector"]
    metadata = posts["metadata"]
    assert f"{metadata['name']}.{metadata['namespace']}.svc" == posting.HOST


def test_the_service_selects_no_controller_pod() -> None:
    selector = named("Service", names.WEBHOOK_SERVICE)["spec"]["selector"]
    (template,) = (pod for name, pod in pods() if name == "kfext-controller")
    assert not selector.items() <= template["metadata"]["labels"].items()


def test_applying_the_manifests_again_leaves_the_injected_certificate_alone() -> None:
    assert [w["name"] for w in _webhooks() if "caBundle" in w["clientConfig"]] == []


# --- permissions --------------------------------------------------------------------------------


def _rules() -> Iterator[tuple[str, Object]]:
    for kind in ("ClusterRole", "Role"):
        for role in of_kind(kind):
            for rule in role["rules"]:
                yield f"{kind} {role['metadata']['name']}", rule


def _verbs(component: str, resource: str) -> dict[tuple[str, str], set[str]]:
    """Return (kind of role, resource name or empty) -> what a component may do with a resource."""
    results: dict[tuple[str, str], set[str]] = {}
    for where, rule in _rules():
        if where.split()[1] == f"kfext-{component}" and resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                results.setdefault((where.split()[0], name), set()).update(rule["verbs"])
    return results


def test_no_role_has_a_wildcard() -> None:
    for where, rule in _rules():
        for key in ("apiGroups", "resources", "verbs"):
            assert not any("*" in entry for entry in rule[key]), (where, rule)


FORBIDDEN = {
    "webhook": {
        *("pods", "nodes", *PLURALS, "trainingplans", "events"),
        *("mutatingwebhookconfigurations", "validatingadmissionpolicies"),
    },
    "controller": {
        *("serviceaccounts", "serviceaccounts/token", "customresourcedefinitions"),
        *("pods/log", "pods/exec", "pods/resize", "nodes/metrics", "nodes/proxy"),
    },
}


@pytest.mark.parametrize("component", FORBIDDEN)
def test_a_component_has_no_forbidden_permission(component: str) -> None:
    reached = {r for r in FORBIDDEN[component] if _verbs(component, r)}
    assert reached == set()


FOLLOWS = {("ClusterRole", ""): {"list", "watch"}}


class Right(NamedTuple):
    """The permissions of a component on a resource.

    `want`: (kind of role, name of the object or empty for all) -> verbs.
    """

    resource: str
    want: dict[tuple[str, str], set[str]]
    component: str = "controller"


RIGHTS: dict[str, Right] = {
    "the webhook reads its CA only, in kfext's namespace, and writes no Secret": Right(
        "secrets", {("Role", names.CA_SECRET): {"get"}}, "webhook"
    ),
    "the webhook follows namespaces": Right("namespaces", FOLLOWS, "webhook"),
    "the webhook follows policies": Right("trainingpolicies", FOLLOWS, "webhook"),
    "the webhook learns which pod a token is bound to": Right(
        "tokenreviews", {("ClusterRole", ""): {"create"}}, "webhook"
    ),
    "the webhook writes posts into plans, and reads no plan": Right(
        "trainingplans/status", {("ClusterRole", ""): {"patch"}}, "webhook"
    ),
    "the webhook reads the controller's Lease only": Right(
        "leases", {("Role", names.LEASE): {"list", "watch"}}, "webhook"
    ),
    "the controller writes the webhook's CA only, in kfext's namespace": Right(
        "secrets", {("Role", names.CA_SECRET): {"get", "patch"}, ("Role", ""): {"create"}}
    ),
    "the controller writes the CA into the webhooks, and into no others": Right(
        "mutatingwebhookconfigurations",
        {
            ("ClusterRole", names.WEBHOOK_CONFIGURATION): {"get", "patch"},
            ("ClusterRole", names.FIRST_WEBHOOKS): {"get", "patch"},
        },
    ),
    "the controller sees whether its marks are protected": Right(
        "validatingadmissionpolicies", {("ClusterRole", names.MARKS_POLICY): {"get"}}
    ),
    "the controller sees whether that protection is bound": Right(
        "validatingadmissionpolicybindings", {("ClusterRole", names.MARKS_POLICY): {"get"}}
    ),
    "the controller renews its own Lease only, in kfext's namespace": Right(
        "leases", {("Role", names.LEASE): {"get", "patch"}, ("Role", ""): {"create"}}
    ),
    "the controller patches jobs but neither creates nor deletes them": Right(
        "pytorchjobs", {("ClusterRole", ""): {"list", "watch", "patch"}}
    ),
    "the controller never creates a pod": Right(
        "pods", {("ClusterRole", ""): {"list", "watch", "patch", "delete"}}
    ),
    "the controller changes no node": Right("nodes", FOLLOWS),
    "the controller reads quotas and changes none": Right("resourcequotas", FOLLOWS),
    "the controller writes the config maps of usage and of capacity, in kfext's namespace": Right(
        "configmaps",
        {
            ("Role", names.USAGE_RECORD): {"get", "create", "patch"},
            ("Role", names.CAPACITY_RECORD): {"get", "create", "patch"},
        },
    ),
    "people who see the whole cluster read the capacity, and no other config map": Right(
        "configmaps", {("Role", names.CAPACITY_RECORD): {"get", "list", "watch"}}, "cluster-view"
    ),
    "people who see the whole cluster change no plan": Right(
        "trainingplans", {("ClusterRole", ""): {"get", "list", "watch"}}, "cluster-view"
    ),
    "of other config maps the controller reads only the map that shows an autoscaler": Right(
        "configmaps", {("Role", "cluster-autoscaler-status"): {"get"}}, "controller-autoscaler"
    ),
    "the controller reads where containers get default requests": Right("limitranges", FOLLOWS),
    "the controller reads volume claims and changes none": Right("persistentvolumeclaims", FOLLOWS),
    "the controller reads where volumes can be used": Right("persistentvolumes", FOLLOWS),
    "the controller reads which storage classes wait for a pod": Right("storageclasses", FOLLOWS),
    "the controller reads priority classes": Right("priorityclasses", FOLLOWS),
    "the controller writes events, and reads why a pod could not be made": Right(
        "events", {("ClusterRole", ""): {"list", "create"}}
    ),
    "the controller creates and updates plans": Right(
        "trainingplans", {("ClusterRole", ""): {"list", "watch", "create", names.DECIDE}}
    ),
    "the controller writes the status of plans": Right(
        "trainingplans/status", {("ClusterRole", ""): {"patch"}}
    ),
    "the controller follows the slots of GPUs and writes none": Right("sharedgpus", FOLLOWS),
    "the controller reads policies": Right("trainingpolicies", FOLLOWS),
    "the right to read logs of pods includes no other right": Right(
        "pods/log", {("ClusterRole", ""): {"get"}}, "pod-logs"
    ),
    "the right to the metrics API is to list": Right(
        "pods", {("ClusterRole", ""): {"list"}}, "pod-metrics"
    ),
    "the right to resize pods includes no other change": Right(
        "pods/resize", {("ClusterRole", ""): {"patch"}}, "pod-resize"
    ),
}


@pytest.mark.parametrize("sentence", RIGHTS)
def test_the_rights_of_each_component(sentence: str) -> None:
    right = RIGHTS[sentence]
    assert _verbs(right.component, right.resource) == right.want


@pytest.mark.parametrize("kind", ["ClusterRoleBinding", "RoleBinding"])
def test_each_binding_binds_an_existing_role_to_the_account_of_a_deployment(kind: str) -> None:
    accounts = {template["spec"]["serviceAccountName"] for _, template in pods()}
    for binding in of_kind(kind):
        (subject,) = binding["subjects"]
        assert named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
        assert named("ServiceAccount", subject["name"])
        assert subject["namespace"] == names.NAMESPACE
        assert subject["name"] in accounts


DECIDED = {"new-nodes", "pod-logs", "pod-metrics", "pod-resize"}
"""The components that an administrator includes to grant the controller a permission."""


def _bound(rendered: Iterable[Object]) -> dict[str, set[tuple[str, str]]]:
    """Return the roles of each account."""
    results: dict[str, set[tuple[str, str]]] = {}
    for thing in rendered:
        if thing["kind"].endswith("Binding") and "subjects" in thing:
            (subject,) = thing["subjects"]
            role = (thing["roleRef"]["kind"], thing["roleRef"]["name"])
            results.setdefault(subject["name"], set()).add(role)
    return results


def test_the_base_grants_the_controller_no_right_that_an_administrator_decides() -> None:
    roles = {name for _, name in _bound(render(BASE))["kfext-controller"]}
    assert roles == {"kfext-controller", "kfext-controller-autoscaler"}


def test_by_default_kfext_reads_progress_and_changes_no_running_pod() -> None:
    more = _bound(render(DEFAULT))["kfext-controller"] - _bound(render(BASE))["kfext-controller"]
    assert more == {
        ("ClusterRole", "kfext-pod-logs"),
        ("ClusterRole", "kfext-pod-metrics"),
        ("Role", "kfext-new-nodes"),
    }


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_a_component_grants_the_controller_the_right_of_its_name(name: str, tmp_path: Path) -> None:
    rendered = with_components(tmp_path, MANIFESTS / "components" / name)
    before = _bound(render(BASE))["kfext-controller"]
    ((kind, role),) = _bound(rendered)["kfext-controller"] - before
    assert role == f"kfext-{name}"
    assert [item for item in rendered if (item["kind"], item["metadata"]["name"]) == (kind, role)]
    for thing in rendered:
        assert thing["metadata"]["labels"]["app.kubernetes.io/name"] == "kfext", thing


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("pod-logs", ["pods/log"]),
        ("pod-metrics", ["pods", "nodes"]),  # nodes only with a ClusterRoleBinding
        ("pod-resize", ["pods/resize"]),
    ],
)
def test_a_right_that_can_be_granted_in_one_namespace_is_a_role_of_the_base(
    name: str, resources: list[str]
) -> None:
    (role,) = (
        thing
        for thing in render(BASE)
        if (thing["kind"], thing["metadata"]["name"]) == ("ClusterRole", f"kfext-{name}")
    )
    assert [resource for rule in role["rules"] for resource in rule["resources"]] == resources


def test_only_the_controller_may_write_its_marks() -> None:
    holders = {where for where, rule in _rules() if names.DECIDE in rule["verbs"]}
    assert holders == {"ClusterRole kfext-controller"}


@pytest.mark.parametrize("role", ["view", "edit"])
def test_people_get_the_rights_of_kfext_through_their_present_roles(role: str) -> None:
    labels = named("ClusterRole", f"kfext-{role}")["metadata"]["labels"]
    assert labels[f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    assert labels[f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{role}"] == "true"


def test_people_with_view_only_read() -> None:
    for rule in named("ClusterRole", "kfext-view")["rules"]:
        assert set(rule["verbs"]) == {"get", "list", "watch"}


def test_people_see_the_whole_cluster_only_by_a_bound_role() -> None:
    rules = named("ClusterRole", names.CLUSTER_VIEW)["rules"]
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert resources == {"trainingplans", "sharedgpus", "nodes"}
    labels = named("ClusterRole", names.CLUSTER_VIEW)["metadata"]["labels"]
    assert not any("aggregate" in label for label in labels)
    bound = {role for roles in _bound(render(DEFAULT)).values() for _, role in roles}
    assert names.CLUSTER_VIEW not in bound


def test_no_role_of_a_namespace_allows_edits_of_policies() -> None:
    rules = named("ClusterRole", "kfext-edit")["rules"]
    assert [rule for rule in rules if "trainingpolicies" in rule["resources"]] == []
    labels = named("ClusterRole", "kfext-policy-edit")["metadata"]["labels"]
    assert not any("aggregate" in label for label in labels)


# --- the marks ----------------------------------------------------------------------------------


def test_the_policy_judges_updates_of_jobs_in_every_namespace_and_fails_closed() -> None:
    spec = named("ValidatingAdmissionPolicy", names.MARKS_POLICY)["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert "matchConditions" not in spec
    rules = spec["matchConstraints"]["resourceRules"]
    assert all(rule["operations"] == ["UPDATE"] for rule in rules)
    judged = {(*rule["apiGroups"], plural) for rule in rules for plural in rule["resources"]}
    assert judged == {(kind.group, kind.plural) for kind in KINDS.values()}
    assert not spec["matchConstraints"].keys() & {"namespaceSelector", "objectSelector"}
    binding = named("ValidatingAdmissionPolicyBinding", names.MARKS_POLICY)["spec"]
    assert binding == {"policyName": names.MARKS_POLICY, "validationActions": ["Deny"]}


def test_the_policy_protects_every_mark_and_requires_the_verb_of_the_controller() -> None:
    spec = named("ValidatingAdmissionPolicy", names.MARKS_POLICY)["spec"]
    (written,) = (item["expression"] for item in spec["variables"] if item["name"] == "written")
    (validation,) = spec["validations"]
    for mark in names.WRITTEN_BY_KFEXT:
        assert f"'{mark}'" in written
    assert f"check('{names.DECIDE}')" in validation["expression"]
    # A check with a namespace would pass with a Role of that namespace.
    assert ".namespace(" not in validation["expression"]


def test_the_policy_is_applied_after_the_role_that_the_controller_needs() -> None:
    order = [(thing["kind"], thing["metadata"]["name"]) for thing in render(DEFAULT)]
    role = order.index(("ClusterRole", "kfext-controller"))
    assert role < order.index(("ClusterRoleBinding", "kfext-controller"))
    assert order.index(("ClusterRoleBinding", "kfext-controller")) < order.index(
        ("ValidatingAdmissionPolicyBinding", names.MARKS_POLICY)
    )


# --- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "open_to_all"), [("kfext-webhook", {"https"}), ("kfext-controller", set())]
)
def test_only_reviews_are_allowed_from_anywhere(name: str, open_to_all: set[str]) -> None:
    policy = named("NetworkPolicy", name)["spec"]
    labels = {deployment: pod["metadata"]["labels"].items() for deployment, pod in pods()}
    selected = policy["podSelector"]["matchLabels"].items()
    assert [deployment for deployment, have in labels.items() if selected <= have] == [name]
    assert policy["policyTypes"] == ["Ingress"]
    rules = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    assert {port for port, peers in rules.items() if not peers} == open_to_all
    assert rules["http"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]


# --- the files ----------------------------------------------------------------------------------


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from _strings(child)
    elif isinstance(value, list):
        for child in value:
            yield from _strings(child)
    elif isinstance(value, str):
        yield value


def test_every_kfext_name_in_the_manifests_is_one_of_the_code() -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    own = {webhook["name"] for webhook in _webhooks()}
    written = {
        text
        for thing in (*render(DEFAULT), *added("gpu-sharing"))
        if thing["kind"] != "CustomResourceDefinition"
        for text in _strings(thing)
        if text.startswith(f"{names.DOMAIN}/") or text.endswith(f".{names.DOMAIN}")
    }
    assert written <= known | own


def test_every_component_selects_pods_that_exist() -> None:
    labels = [template["metadata"]["labels"] for _, template in pods()]
    monitor = read(MANIFESTS / "components" / "monitoring" / "podmonitor.yaml")["spec"]
    wanted = monitor["selector"]["matchLabels"]
    assert all(wanted.items() <= have.items() for have in labels)


def test_the_quota_component_leaves_headroom_for_an_upgrade() -> None:
    quota = read(MANIFESTS / "components" / "priority-quota" / "resourcequota.yaml")["spec"]
    (line,) = quota["scopeSelector"]["matchExpressions"]
    replicas = sum(deployment["spec"]["replicas"] for deployment in of_kind("Deployment"))
    assert int(quota["hard"]["pods"]) >= 2 * replicas
    for _, template in pods():
        assert template["spec"]["priorityClassName"] in line["values"]


# --- the component cert-manager -------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_cert_manager(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Object]:
    """The default overlay with the component cert-manager, by kind and name."""
    folder = tmp_path_factory.mktemp("cert-manager").resolve()
    rendered = with_components(folder, MANIFESTS / "components" / "cert-manager", base=DEFAULT)
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in rendered}


def _command(rendered: dict[tuple[str, str], Object], part: str) -> list[str]:
    (container,) = rendered["Deployment", f"kfext-{part}"]["spec"]["template"]["spec"]["containers"]
    results: list[str] = container["command"]
    return results


def test_cert_manager_issues_the_mounted_certificate_and_kfext_issues_nothing(
    with_cert_manager: dict[tuple[str, str], Object],
) -> None:
    template = with_cert_manager["Deployment", "kfext-webhook"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tls")
    (volume,) = (volume for volume in template["volumes"] if volume["name"] == "tls")
    issued = with_cert_manager["Certificate", "kfext-webhook"]
    assert volume["secret"]["secretName"] == issued["spec"]["secretName"]
    assert issued["spec"]["secretName"] != names.CA_SECRET

    *_, flag = _command(with_cert_manager, "webhook")
    assert flag == f"--tls-dir={mount['mountPath']}"
    assert ["--tls-dir"] in [option.opts for option in cli.commands["webhook"].params]
    parsed = cli.commands["controller"].make_context(
        "controller", _command(with_cert_manager, "controller")[2:], resilient_parsing=True
    )
    assert parsed.params["certificates"] is False


def test_the_api_servers_trust_the_certificate_of_cert_manager_for_the_service(
    with_cert_manager: dict[tuple[str, str], Object],
) -> None:
    configuration = with_cert_manager["MutatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION]
    annotations = configuration["metadata"]["annotations"]
    trusted = annotations["cert-manager.io/inject-ca-from"].split("/")
    issued = with_cert_manager["Certificate", "kfext-webhook"]
    assert trusted == [issued["metadata"]["namespace"], issued["metadata"]["name"]]
    for webhook in configuration["webhooks"]:
        service = webhook["clientConfig"]["service"]
        assert f"{service['name']}.{service['namespace']}.svc" in issued["spec"]["dnsNames"]
    assert posting.HOST in issued["spec"]["dnsNames"]


def test_certificates_of_cert_manager_end_at_an_authority_that_keeps_its_key(
    with_cert_manager: dict[tuple[str, str], Object],
) -> None:
    def issuer_of(certificate: str) -> Object:
        named = with_cert_manager["Certificate", certificate]["spec"]["issuerRef"]
        assert named["group"] == "cert-manager.io"
        result: Object = with_cert_manager[named["kind"], named["name"]]["spec"]
        return result

    root = with_cert_manager["Certificate", "kfext-webhook-root"]["spec"]
    assert issuer_of("kfext-webhook") == {"ca": {"secretName": root["secretName"]}}
    assert issuer_of("kfext-webhook-root") == {"selfSigned": {}}
    assert (root["isCA"], root["privateKey"]["rotationPolicy"]) == (True, "Never")

"""kfext's CRDs on a true API server: the accepted and the refused objects."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.core.settings.table import OF_A_JOB
from tests import setting_samples

REPOSITORY = Path(__file__).resolve().parents[2]
PLURALS = ("trainingpolicies", "trainingplans", "sharedgpus")
POLICIES = "/apis/kfext.dev/v1alpha1/trainingpolicies"
SLOTS = "/apis/kfext.dev/v1alpha1/sharedgpus"
SAMPLES = {path.stem: path for path in sorted((REPOSITORY / "crds" / "samples").glob("*.yaml"))}

Object = dict[str, Any]

# The malformed values of fields of the spec; the refusal names the field.
MALFORMED: dict[str, list[Any]] = {
    "weight": ["high", 1.5, 2**40],
    "namespaceSelector.matchLabels": ["team=a", {"team": 1}],
    "namespaceSelector.matchExpressions": [
        [{"key": "team", "operator": "Like", "values": ["a"]}],
        [{"key": "team", "operator": "In"}],
        [{"key": "team", "operator": "NotIn", "values": []}],
        [{"key": "team", "operator": "Exists", "values": ["a"]}],
        [{"operator": "Exists"}],
    ],
    "settings.colocation": ["always", "", "Preferred", False],
    "settings.network": ["hostNetwork", True],
    "settings.elastic": ["0-4", "4", "2-", "2..8", "-1-4", "2-100000", "Off", "off-2", 4],
    "settings.resize": ["memory", "cpu,memory", False],
    "settings.migrate": ["checkpoint"],
    "settings.preempt": ["checkpointed", True],
    "settings.stalled": ["off", True],
    "settings.metrics": [
        *("logs", "stdout:", "stdout:loss=(.*)", "push:8080", "stdout:" + "x" * 600),
        *(r"stdout:(?P<value>[a-\uffff])", "stdout:(?P<value>[a-\uffff])"),
    ],
    "settings.colour": ["blue"],
    # Only a job can ask for a GPU share.
    "settings.gpu-share": ["0.5"],
    "queue.order": ["longest"],
    "queue.fairness": ["fair", True],
    "queue.halfLife": ["1d", "0s"],
    "placement.bindTimeout": ["60", "0s", "-1s", "1d", "1.5m", "soon", 60, "9999999999999h"],
    "placement.createTimeout": ["30 s", "0m"],
    "placement.releaseAfter": ["never", "Auto", "10", ""],
    "placement.reserveAfter": ["auto", "0s"],
    "placement.newNodes": ["Ask", "", True],
    "placement.topologyKeys": ["zone", ["a/b/c"], [""], ["-zone"]],
    "placement.assumedBurst": ["-1", -1, "4 CPUs", "1e3", "4k", 0.5, {"cpu": 4}],
    "network.portRange": [
        "20000",
        "29999-20000",
        "25000-31000",
        "31000-31999",
        "29000-61000",
        "40000-45000",
        "1000-2000",
        "61000-70000",
        20000,
    ],
    "network.interfaces": ["eth0", ["eth 0"], ["a-name-that-is-too-long"]],
    "companion.resize.mode": ["on", False],
    "companion.shift.mode": ["acting"],
    "companion.scale.parameters": [
        {"wait": "long"},
        {"idle": 0},
        {"ceiling": 1.5},
        {"acrossNamespaces": 0.5},
        {"budget": 0.1},
    ],
    "companion.migrate.mode": ["never"],
    "companion.preempt.parameters": [{"wait": 0}],
    "companion.placement.mode": [""],
    "companion.speed": [{"mode": "act"}],
}
for key, sample in setting_samples.MALFORMED.items():
    if key not in OF_A_JOB:
        MALFORMED[f"settings.{key.removeprefix(f'{names.DOMAIN}/')}"].append(sample)
WELL_FORMED: dict[str, list[Any]] = {
    "weight": [-5, 0, 1000],
    "namespaceSelector.matchExpressions": [[{"key": "team", "operator": "DoesNotExist"}]],
    "settings.colocation": ["preferred", "required", "off"],
    "settings.elastic": ["1-1", "2-16", "off"],
    "settings.resize": ["off", "observe", "cpu"],
    "settings.preempt": ["off", "checkpoint", "always"],
    "settings.stalled": ["report", "restart"],
    "settings.metrics": ["auto", "push", "off", r"stdout:step (?P<step>\d+) (?P<value>\S+)"],
    "queue": [{"fairness": "usage", "halfLife": "168h"}],
    "placement.bindTimeout": ["1s", "90s", "1h30m"],
    "placement.releaseAfter": ["auto", "0s", "10m"],
    "placement.newNodes": ["ask", "release", "wait"],
    "placement.topologyKeys": [["topology.kubernetes.io/zone", "rack"]],
    "placement.assumedBurst": [0, 8, "4", "0.5", "500m"],
    "network.portRange": ["20000-29999", "1024-1024", "61000-65535"],
    "companion.resize": [{"mode": "observe"}],
    "companion.scale.parameters": [{"wait": 5, "rest": 90.5, "ceiling": 1, "acrossNamespaces": 0}],
}


def _cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(field, value, id=f"{field}={str(value)[:40]}")
        for field, values in table.items()
        for value in values
    ]


def _policy(*fields: tuple[str, Any]) -> Object:
    spec: Object = {}
    for field, value in fields:
        # A setting may have a dot in its name; no other field may.
        top, *rest = field.split(".", 1 if field.startswith("settings.") else -1)
        *parents, last = [top, *rest]
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": "tried"},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def kinds(testbed: Testbed) -> Testbed:
    """Return the testbed after kfext's CRDs are applied with kubectl."""
    _kubectl(testbed, "apply", "--server-side", "-k", str(REPOSITORY / "crds"))
    for plural in PLURALS:  # `kubectl wait` fails for a CRD without any condition yet
        path = f"/apis/kfext.dev/v1alpha1/{plural}"
        testbed.wait_for(partial(testbed.api.get, path), what=f"{plural} to be served")
    return testbed


def _kubectl(testbed: Testbed, *arguments: str) -> str:
    command = [str(testbed.binary("kubectl")), "--kubeconfig", str(testbed.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def _try(testbed: Testbed, policy: Object) -> None:
    testbed.api.create(f"{POLICIES}?dryRun=All&fieldValidation=Strict", policy)


@pytest.mark.parametrize("plural", PLURALS)
def test_the_api_server_accepts_the_schema(kinds: Testbed, plural: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.kfext.dev"
    conditions = kinds.api.get(path)["status"]["conditions"]
    status = {condition["type"]: condition["status"] for condition in conditions}
    assert status.get("NonStructuralSchema", "False") == "False"
    assert status["NamesAccepted"] == "True"


@pytest.mark.parametrize(("field", "value"), _cases(MALFORMED))
def test_a_malformed_policy_is_refused_with_the_name_of_the_field(
    kinds: Testbed, field: str, value: Any
) -> None:
    with pytest.raises(ApiError) as refusal:
        _try(kinds, _policy((field, value)))
    assert refusal.value.status in {400, 422}
    assert f"spec.{field}" in str(refusal.value)


@pytest.mark.parametrize(("field", "value"), _cases(WELL_FORMED))
def test_a_well_formed_policy_is_accepted(kinds: Testbed, field: str, value: Any) -> None:
    _try(kinds, _policy((field, value)))


def test_a_policy_for_some_namespaces_must_not_order_the_cluster(kinds: Testbed) -> None:
    selector = ("namespaceSelector.matchLabels", {"team": "a"})
    _try(kinds, _policy(selector, ("queue.fairness", "none")))
    with pytest.raises(ApiError, match=r"spec\.queue\.fairness.*orders the whole cluster"):
        _try(kinds, _policy(selector, ("queue.fairness", "usage")))


def test_a_policy_without_a_weight_has_weight_zero(kinds: Testbed) -> None:
    answer = kinds.api.create(f"{POLICIES}?dryRun=All", _policy(("settings.network", "pod")))
    assert answer["spec"]["weight"] == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_each_sample_is_accepted(kinds: Testbed, name: str) -> None:
    _kubectl(kinds, "apply", "--server-side", "--dry-run=server", "-f", str(SAMPLES[name]))


def test_the_status_of_a_plan_is_stored_completely_and_shown_in_columns(kinds: Testbed) -> None:
    plan = yaml.safe_load(SAMPLES["trainingplan"].read_text())
    path = "/apis/kfext.dev/v1alpha1/namespaces/default/trainingplans"
    name = plan["metadata"]["name"]
    try:
        kinds.api.create(path, plan)
        kinds.api.patch(f"{path}/{name}/status", {"status": plan["status"]})
        assert kinds.api.get(f"{path}/{name}")["status"] == plan["status"]
        header, row = _kubectl(kinds, "get", "trainingplans", name).splitlines()
        columns = ["NAME", "JOB", "PHASE", "STARTS", "NODES", "NETWORK", "REASON", "AGE"]
        assert header.split() == columns
        assert row.split()[:-1] == [name, "resnet", "Placed", "node-1", "pod", "Placed"]
        result = _kubectl(kinds, "get", "tplan", "--field-selector=status.phase=Placed", "-oname")
        assert result.split() == [f"trainingplan.kfext.dev/{name}"]
    finally:
        kinds.api.delete(f"{path}/{name}")


@pytest.mark.parametrize(
    ("field", "value"), [("phase", "Lost"), ("network", "overlay"), ("workers", -1)]
)
def test_an_impossible_status_is_refused(kinds: Testbed, field: str, value: Any) -> None:
    plan = yaml.safe_load(SAMPLES["trainingplan"].read_text())
    plan["metadata"]["name"] = f"tried-{field}"
    path = "/apis/kfext.dev/v1alpha1/namespaces/default/trainingplans"
    try:
        kinds.api.create(path, plan)
        with pytest.raises(ApiError, match=rf"status\.{field}"):
            kinds.api.patch(f"{path}/tried-{field}/status", {"status": {field: value}})
    finally:
        kinds.api.delete(f"{path}/tried-{field}")


def test_the_status_of_a_slot_is_stored_completely_and_shown_in_columns(kinds: Testbed) -> None:
    slot = yaml.safe_load(SAMPLES["sharedgpu"].read_text())
    name = slot["metadata"]["name"]
    try:
        kinds.api.create(SLOTS, slot)
        kinds.api.patch(f"{SLOTS}/{name}/status", {"status": slot["status"]})
        assert kinds.api.get(f"{SLOTS}/{name}")["status"] == slot["status"]
        header, row = _kubectl(kinds, "get", "sgpu", name).splitlines()
        columns = ["NAME", "NODE", "SLOT", "CARD", "HEALTHY", "BUSY", "PERMILLE", "AGE"]
        assert header.split() == columns
        card = slot["status"]["card"]
        assert row.split()[:-1] == [name, "node-1", "0", card, "true", "640"]
        result = _kubectl(kinds, "get", "sgpu", "--field-selector=spec.node=node-1", "-oname")
        assert result.split() == [f"sharedgpu.kfext.dev/{name}"]
    finally:
        kinds.api.delete(f"{SLOTS}/{name}")


@pytest.mark.parametrize(("field", "value"), [("node", "node-2"), ("slot", 1)])
def test_the_identity_of_a_slot_cannot_change(kinds: Testbed, field: str, value: Any) -> None:
    slot = yaml.safe_load(SAMPLES["sharedgpu"].read_text())
    slot["metadata"]["name"] = f"tried-{field}"
    try:
        kinds.api.create(SLOTS, slot)
        with pytest.raises(ApiError, match="cannot be changed"):
            kinds.api.patch(f"{SLOTS}/tried-{field}", {"spec": {field: value}})
    finally:
        kinds.api.delete(f"{SLOTS}/tried-{field}")


SHARER = {"podUID": "1", "namespace": "team", "pod": "train-0"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sharers", [{**SHARER, "busyPermille": 1001}]),
        ("memoryMiB", -1),
        ("sharers", [SHARER] * 101),
        ("sharers", [{**SHARER, "priority": "medium"}]),
        ("sharers", [{**SHARER, "sharePercent": 0}]),
        ("sharers", [{"pod": "train-0"}]),
    ],
)
def test_an_impossible_report_of_a_slot_is_refused(kinds: Testbed, field: str, value: Any) -> None:
    slot = yaml.safe_load(SAMPLES["sharedgpu"].read_text())
    slot["metadata"]["name"] = "tried-status"
    try:
        kinds.api.create(SLOTS, slot)
        with pytest.raises(ApiError, match=rf"status\.{field}"):
            kinds.api.patch(f"{SLOTS}/tried-status/status", {"status": {field: value}})
    finally:
        kinds.api.delete(f"{SLOTS}/tried-status")

"""The schemas of kfext's own kinds against the code that reads them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kfext import names
from kfext.core.job_history import LONGEST_CURVE, LONGEST_WHY, MAX_ENTRIES, MAX_NODES, JobHistory
from kfext.core.settings.table import OF_A_JOB, TABLE, parse_setting
from kfext.gpu.agent.api_server import status_of
from kfext.gpu.agent.report import SharerReport, SlotReport, SlotState
from kfext.model.gpu import MAX_SLOTS, reservation_of
from kfext.model.policy import parse_policy
from kfext.model.shared_gpu import (
    EVICTED_AFTER,
    LONGEST_COARSE,
    MAX_SHARERS,
    UNHOOKED,
    SharedGpu,
    parse_shared_gpu,
)
from kfext.state.running.policy import Policy
from kfext.state.running.registry import POLICIES
from tests.contract.manifests import CRDS, crd, read, schema

PLURALS = ["trainingpolicies", "trainingplans", "sharedgpus"]
SAMPLES = sorted((CRDS / "samples").glob("*.yaml"))
SETTINGS = schema("trainingpolicies")["properties"]["spec"]["properties"]["settings"]["properties"]
# The controller writes these; the API server would silently drop a field that the schema lacks.
WRITTEN_STATUS = {
    "phase": "string",
    "nodes": "array",
    "nodeSummary": "string",
    "network": "string",
    "workers": "integer",
    "reason": "string",
    "message": "string",
    "ahead": "integer",
    "expectedStart": "object",
    "conditions": "array",
    "places": "array",
    "requests": "object",
    "minimumWorkers": "integer",
    "requestedWorkers": "integer",
    "history": "array",
    "curve": "string",
}


def _walk(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path or ".", node
    for name, child in node.get("properties", {}).items():
        yield from _walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), Mapping):
            yield from _walk(node[key], f"{path}[]")


def _faults(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults that make a node of a schema non-structural or open."""
    free = node.get("x-kubernetes-int-or-string")
    if "type" not in node and not free:
        yield "has no type"
    if "properties" in node and "additionalProperties" in node:
        yield "has both properties and additionalProperties"
    if node.get("additionalProperties") in (True, False):
        yield "additionalProperties is a boolean"
    if node.get("x-kubernetes-preserve-unknown-fields"):
        yield "keeps unknown fields"
    if node.get("type") == "array" and not isinstance(node.get("items"), Mapping):
        yield "is an array without items"
    if node.get("type") == "array" and "x-kubernetes-list-type" not in node:
        yield "is an array without a list type"
    if node.keys() & {"$ref", "definitions", "dependencies", "uniqueItems", "patternProperties"}:
        yield "uses what the API server forbids"


@pytest.mark.parametrize("plural", PLURALS)
def test_every_node_of_a_schema_is_structural_and_closed(plural: str) -> None:
    faults = [
        f"{path} {fault}"
        for path, node in _walk(schema(plural))
        if path not in {".metadata"}
        for fault in _faults(node)
    ]
    assert faults == []


@pytest.mark.parametrize("plural", PLURALS)
def test_a_crd_is_small_enough_for_a_client_side_apply(plural: str) -> None:
    assert (CRDS / f"kfext.dev_{plural}.yaml").stat().st_size < 256 * 1024


@pytest.mark.parametrize("plural", PLURALS)
def test_a_crd_has_the_group_and_version_of_kfext_and_a_status_subresource(plural: str) -> None:
    spec = crd(plural)["spec"]
    (version,) = spec["versions"]
    assert crd(plural)["metadata"]["name"] == f"{plural}.{names.API_GROUP}"
    assert (spec["group"], version["name"]) == (names.API_GROUP, names.API_VERSION)
    assert version["subresources"] == {"status": {}}
    assert spec["names"]["plural"] == plural
    assert {"kfext", "kubeflow"} == set(spec["names"]["categories"])


@pytest.mark.parametrize("plural", PLURALS)
def test_every_printer_column_shows_a_field_of_the_schema(plural: str) -> None:
    fields = {path for path, _ in _walk(schema(plural))} | {".metadata.creationTimestamp"}
    (version,) = crd(plural)["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    shown = {re.sub(r"\[\?\(.*?\)\]", "[]", column["jsonPath"]) for column in columns}
    assert shown <= fields


@pytest.mark.parametrize("plural", ["trainingpolicies", "trainingplans"])
def test_conditions_merge_by_their_type(plural: str) -> None:
    conditions = schema(plural)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_plans_print_job_phase_nodes_network_reason_and_age() -> None:
    (version,) = crd("trainingplans")["spec"]["versions"]
    columns = [
        column for column in version["additionalPrinterColumns"] if not column.get("priority")
    ]
    assert [column["name"] for column in columns] == [
        "Job",
        "Phase",
        "Starts",
        "Nodes",
        "Network",
        "Reason",
        "Age",
    ]


def test_wide_tables_of_plans_have_the_progress_too() -> None:
    (version,) = crd("trainingplans")["spec"]["versions"]
    wide = [column for column in version["additionalPrinterColumns"] if column.get("priority")]
    assert [column["name"] for column in wide] == [
        "Kind",
        "Workers",
        "Step",
        "Seconds Left",
        "Message",
    ]


def test_the_phases_of_a_plan_agree_with_the_code() -> None:
    status = schema("trainingplans")["properties"]["status"]["properties"]
    assert sorted(status["phase"]["enum"]) == sorted(names.PHASES)


def test_the_status_of_a_plan_has_every_field_that_the_controller_writes() -> None:
    status = schema("trainingplans")["properties"]["status"]["properties"]
    assert {name: status[name]["type"] for name in WRITTEN_STATUS} == WRITTEN_STATUS


def test_the_bounds_of_a_history_agree_with_the_code() -> None:
    status = schema("trainingplans")["properties"]["status"]["properties"]
    entry = status["history"]["items"]["properties"]
    assert status["history"]["maxItems"] == MAX_ENTRIES
    assert (entry["nodes"]["maxItems"], entry["why"]["maxLength"]) == (MAX_NODES, LONGEST_WHY)
    assert status["curve"]["maxLength"] == LONGEST_CURVE
    history = JobHistory().with_entry("Scaled", "why", at=1.0, workers=2, nodes=("a",))
    for _ in range(2):
        history = history.with_entry("Scaled", "why", at=2.0, workers=2, nodes=("a",))
    (written,) = history.encode()["history"]
    assert written.keys() == entry.keys()
    assert {*status["history"]["items"]["required"]} == entry.keys() - {"times"}


def test_the_schema_accepts_every_reason_of_the_code() -> None:
    reason = schema("trainingplans")["properties"]["status"]["properties"]["reason"]
    reasons = [getattr(names, name) for name in dir(names) if name.startswith("REASON_")]
    assert len(reasons) > 10
    assert [word for word in reasons if not re.fullmatch(reason["pattern"], word)] == []


@pytest.mark.parametrize("key", [key for key in SETTINGS if "enum" in SETTINGS[key]])
def test_the_code_understands_every_word_that_the_schema_accepts(key: str) -> None:
    for word in SETTINGS[key]["enum"]:
        assert parse_setting(f"{names.DOMAIN}/{key}", word, place=key) == word


@given(text=st.from_regex(SETTINGS["elastic"]["pattern"], fullmatch=True))
def test_the_code_understands_every_range_that_the_schema_accepts(text: str) -> None:
    assume(len(text) <= SETTINGS["elastic"]["maxLength"])
    # The CEL rule of the field as an expression; tests/adapters runs the rule itself.
    minimum, _, maximum = text.partition("-")
    assume(text == "off" or int(minimum) <= int(maximum))
    parse_setting(names.ELASTIC, text, place="elastic")


@pytest.mark.parametrize("text", ["stdout:loss=(?P<value>[0-9.]+)", "auto", "off"])
def test_the_schema_accepts_every_form_of_metrics_that_the_code_understands(text: str) -> None:
    parse_setting(names.METRICS, text, place="metrics")
    assert re.fullmatch(SETTINGS["metrics"]["pattern"], text)


@pytest.mark.parametrize("key", [key for key in SETTINGS if "pattern" in SETTINGS[key]])
def test_a_text_setting_is_limited_in_length_so_that_rules_stay_cheap(key: str) -> None:
    assert SETTINGS[key]["maxLength"] <= len("stdout:") + 512  # an expression of 512 characters


class _Recorder(dict[str, Any]):
    """An object with every field; it records which fields are read."""

    def __init__(self, path: str, node: Mapping[str, Any], reads: set[str]) -> None:
        super().__init__()
        self._path, self._node, self._reads = path, node, reads

    def get(self, key: str, default: Any = None) -> Any:
        path = f"{self._path}.{key}"
        self._reads.add(path)
        return _example(path, self._node.get("properties", {}).get(key, {}), self._reads)


def _example(path: str, node: Mapping[str, Any], reads: set[str]) -> Any:
    if "properties" in node:
        return _Recorder(path, node, reads)
    if node.get("type") == "array":
        return [_example(f"{path}[]", node["items"], reads)]
    return {"object": {}, "integer": 0}.get(node.get("type", ""))


def test_every_field_that_the_code_reads_of_a_policy_is_in_the_schema() -> None:
    reads: set[str] = set()
    parse_policy(_Recorder("", schema("trainingpolicies"), reads))
    fields = {path for path, _ in _walk(schema("trainingpolicies"))} | {".metadata.name"}
    assert ".spec.placement.bindTimeout" in reads
    assert ".spec.namespaceSelector.matchExpressions[].operator" in reads
    assert reads <= fields


def test_the_full_sample_policy_shows_the_parameters_of_all_policies_with_their_defaults() -> None:
    shown = parse_policy(read(CRDS / "samples" / "trainingpolicy-full.yaml")).companion
    for policy in POLICIES:
        defaults = {name: parameter.default for name, parameter in policy.parameters.items()}
        assert shown[policy.name].parameters == defaults


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_default_of_a_parameter_is_within_its_bounds(policy: Policy) -> None:
    for parameter in policy.parameters.values():
        assert parameter.minimum <= parameter.default <= parameter.maximum


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
def test_the_code_knows_every_operator_of_a_selector_in_the_schema(operator: str) -> None:
    line = {"key": "team", "operator": operator, "values": ["a"]}
    policy = parse_policy({"spec": {"namespaceSelector": {"matchExpressions": [line]}}})
    selector = schema("trainingpolicies")["properties"]["spec"]["properties"]["namespaceSelector"]
    expressions = selector["properties"]["matchExpressions"]["items"]["properties"]
    assert set(expressions["operator"]["enum"]) == {"In", "NotIn", "Exists", "DoesNotExist"}
    assert policy.selector.matches({"team": "a"}) != policy.selector.matches({})


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_has_only_fields_of_its_schema(path: Path) -> None:
    sample = read(path)
    (plural,) = (
        plural for plural in PLURALS if crd(plural)["spec"]["names"]["kind"] == sample["kind"]
    )
    assert _undeclared(sample, schema(plural)) == []


def _undeclared(value: Any, node: Mapping[str, Any], path: str = "") -> list[str]:
    if path == ".metadata":
        return []
    if isinstance(value, list):
        return [fault for item in value for fault in _undeclared(item, node["items"], f"{path}[]")]
    if not isinstance(value, dict):
        return []
    faults = []
    for key, child in value.items():
        inner = node.get("properties", {}).get(key) or node.get("additionalProperties")
        where = f"{path}.{key}"
        faults += _undeclared(child, inner, where) if inner else [where]
    return faults


def test_the_samples_use_every_field_of_a_policy() -> None:
    used = set(_leaves(read(CRDS / "samples" / "trainingpolicy-full.yaml")["spec"]))
    spec = schema("trainingpolicies")["properties"]["spec"]
    wanted = {path.partition("[]")[0] for path, node in _walk(spec) if "properties" not in node}
    wanted = {path for path in wanted if "parameters" not in path}
    assert {path for path in wanted if not any(leaf.startswith(path) for leaf in used)} == set()


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{key}")
    else:
        yield path


def test_the_small_sample_policy_is_read_by_the_code() -> None:
    policy = parse_policy(read(CRDS / "samples" / "trainingpolicy.yaml"))
    assert (policy.name, policy.weight) == ("vision", 10)
    assert policy.selector.matches({"team": "vision"})
    assert not policy.selector.matches({"team": "speech"})
    assert policy.settings == {names.COLOCATION: "preferred", names.NETWORK: "pod"}
    placement = policy.placement
    assert (placement.bind_timeout, placement.create_timeout) == (90, 60)
    assert placement.release_after == 600


def test_the_full_sample_policy_has_settings_that_the_code_understands() -> None:
    policy = parse_policy(read(CRDS / "samples" / "trainingpolicy-full.yaml"))
    assert policy.settings.keys() == TABLE.keys() - OF_A_JOB
    for key, value in policy.settings.items():
        parse_setting(key, value, place=key)
    assert policy.placement.release_after is None


def test_the_full_sample_policy_shows_the_defaults_of_the_code() -> None:
    shown = parse_policy(read(CRDS / "samples" / "trainingpolicy-full.yaml")).placement
    default = parse_policy({}).placement
    assert (shown.bind_timeout, shown.create_timeout, shown.release_after) == (
        default.bind_timeout,
        default.create_timeout,
        default.release_after,
    )


# --- slots --------------------------------------------------------------------------------------

SLOT = schema("sharedgpus")["properties"]


def test_every_field_that_the_code_reads_of_a_slot_is_in_the_schema() -> None:
    reads: set[str] = set()
    assert parse_shared_gpu(_Recorder("", schema("sharedgpus"), reads)) is not None
    assert {".spec.node", ".status.sharers[].evict"} <= reads
    assert reads <= {path for path, _ in _walk(schema("sharedgpus"))} | {".metadata.name"}


def test_the_bounds_of_a_slot_agree_with_the_code() -> None:
    spec, status = SLOT["spec"]["properties"], SLOT["status"]["properties"]
    assert (spec["slot"]["minimum"], spec["slot"]["maximum"]) == (0, MAX_SLOTS - 1)
    assert status["sharers"]["maxItems"] == MAX_SHARERS
    strikes = status["sharers"]["items"]["properties"]["strikes"]
    assert strikes["maximum"] == EVICTED_AFTER
    unhooked = status["sharers"]["items"]["properties"]["unhooked"]
    assert unhooked["enum"] == list(UNHOOKED)
    assert status["sharers"]["items"]["properties"]["coarseMillis"]["maximum"] == (
        LONGEST_COARSE * 1000
    )
    largest = status["memoryMiB"]["maximum"]
    assert _slot_with(memoryMiB=largest).memory == largest
    assert not _slot_with(memoryMiB=largest + 1).memory
    busiest = status["sharers"]["items"]["properties"]["busyPermille"]["maximum"]
    for busy in (busiest, busiest + 1):
        (sharer,) = _slot_with(sharers=[{"busyPermille": busy}]).sharers
        assert sharer.busy == (busy if busy == busiest else None)


def _slot_with(**status: object) -> SharedGpu:
    parsed = parse_shared_gpu({"spec": {"slot": 0}, "status": status})
    assert parsed is not None
    return parsed


BOUNDS = {
    "string": {"maxLength", "enum", "format"},
    "array": {"maxItems"},
    "integer": {"minimum"},
    "number": {"minimum"},
}
"""Type -> the keywords that bound a value of it; any keyword suffices."""


def test_all_reports_of_agents_are_bounded() -> None:
    written = {**SLOT["spec"]["properties"], **SLOT["status"]["properties"]}
    nodes = [child for node in written.values() for child in _walk(node)]
    assert len(nodes) > 20
    unbounded = [
        (path, node)
        for path, node in nodes
        if node["type"] in BOUNDS and not node.keys() & BOUNDS[node["type"]]
    ]
    assert unbounded == []


def test_all_reports_of_agents_are_in_the_schema() -> None:
    high = SharerReport("team", "a", high=True, share=0.7, busy=0.6, memory=2**30)
    low = SharerReport(
        *("team", "b"),
        high=False,
        share=0.3,
        used=0.4,
        infeasible=True,
        strikes=2,
        evict=True,
        unhooked="HookFailed",
        longest=0.08,
        coarse=True,
    )
    report = SlotReport(
        0, "GPU-1", loss=0.02, sharers=(high, low), reservation="uid", state=SlotState(1024)
    )
    status = status_of(report)
    assert _undeclared({"status": status}, schema("sharedgpus")) == []
    fields = SLOT["status"]["properties"]
    assert status.keys() == fields.keys()
    sharer = fields["sharers"]["items"]
    written = {key for entry in status["sharers"] for key in entry}
    assert written == sharer["properties"].keys()
    assert all(entry.keys() >= set(sharer["required"]) for entry in status["sharers"])


def test_node_and_number_of_a_slot_cannot_be_changed() -> None:
    rules = [rule["rule"] for rule in SLOT["spec"]["x-kubernetes-validations"]]
    assert rules == ["self == oldSelf"]
    assert SLOT["spec"]["required"] == ["node", "slot"]


def test_the_sample_slot_is_read_by_the_controller() -> None:
    raw = read(CRDS / "samples" / "sharedgpu.yaml")
    parsed = parse_shared_gpu(raw)
    assert parsed is not None
    assert raw["metadata"]["name"] == reservation_of(parsed.node, parsed.slot)
    assert (parsed.node, parsed.slot) == ("node-1", 0)
    assert parsed.reservation
    assert parsed.card
    assert parsed.memory == 81559
    assert (parsed.healthy, parsed.moved) == (True, False)
    sharers = [(entry.busy, entry.loss, entry.gets) for entry in parsed.sharers]
    assert sharers == [(640, 20, None), (870, None, 310)]
    assert raw["status"].keys() == SLOT["status"]["properties"].keys() - {"trouble"}

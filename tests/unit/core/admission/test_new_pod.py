"""The pod webhook: which pods it gates or pins, and PYTHONUNBUFFERED."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.new_pod import mutate_pod, unbuffered
from kfext.core.admission.review import ReviewResult
from kfext.model.kinds.registered import KINDS
from tests.unit.objects import Raw, json_values, odd_pods, pod

APART = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
}
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "uid": "u", "controller": True}
GATE = {"name": names.GATE}
FOREIGN = {"name": "other.example/gate"}


def gates(raw: Raw) -> Any:
    ops = list(mutate_pod(raw, controller_alive=True).ops)
    return jsonpatch.apply_patch(raw, ops)["spec"].get("schedulingGates")


GATED = {
    "a PyTorchJob's pod": (pod(), [GATE]),
    "a TFJob's pod": (pod(ownerReferences=[OWNER]), [GATE]),
    "the default scheduler by name": (pod(spec={"schedulerName": "default-scheduler"}), [GATE]),
    "an empty node name": (pod(spec={"nodeName": ""}), [GATE]),
    "null gates": (pod(spec={"schedulingGates": None}), [GATE]),
    "no gates": (pod(spec={"schedulingGates": []}), [GATE]),
    "a gate of another system is kept, and stands first": (
        pod(spec={"schedulingGates": [FOREIGN]}),
        [FOREIGN, GATE],
    ),
    "a job controls it beside an owner that does not": (
        pod(ownerReferences=[{"kind": "Other", "controller": False}, OWNER]),
        [GATE],
    ),
    "colocation preferred in the template": (
        pod(annotations={names.COLOCATION: "preferred"}),
        [GATE],
    ),
    "a term that kfext does not model, in a pod of a job that kfext started": (
        pod(spec={"affinity": APART}, annotations={names.PLAN_GENERATION: "1"}),
        [GATE],
    ),
    "such a term in a pod of a job that must be on one node": (
        pod(spec={"affinity": APART}, annotations={names.COLOCATION: "required"}),
        [GATE],
    ),
}


@pytest.mark.parametrize(("raw", "want"), GATED.values(), ids=GATED)
def test_the_pods_of_training_jobs_are_gated(raw: Raw, want: list[Raw]) -> None:
    assert gates(raw) == want


UNGATED = {
    "it has no owner": pod(ownerReferences=[]),
    "a Job controls it": pod(ownerReferences=[{**OWNER, "apiVersion": "batch/v1", "kind": "Job"}]),
    "a job of another kind controls it": pod(ownerReferences=[{**OWNER, "kind": "Job"}]),
    "a job of a later version controls it": pod(
        ownerReferences=[{**OWNER, "apiVersion": "kubeflow.org/v2"}]
    ),
    "a job owns but does not control it": pod(ownerReferences=[{**OWNER, "controller": False}]),
    "controller is not true but a text": pod(ownerReferences=[{**OWNER, "controller": "true"}]),
    "the kind is a list": pod(ownerReferences=[{**OWNER, "kind": []}]),
    "it names its node": pod(spec={"nodeName": "node-1"}),
    "another scheduler places it": pod(spec={"schedulerName": "volcano"}),
    "its job was released": pod(annotations={names.RELEASED: "NoRoom"}),
    "colocation is off": pod(annotations={names.COLOCATION: "off"}),
    "it has a term that kfext does not model": pod(spec={"affinity": APART}),
    "it is gated already": pod(spec={"schedulingGates": [FOREIGN, GATE]}),
    "its gates are a string": pod(spec={"schedulingGates": "x"}),
}
BEYOND = {
    "it has too many tolerations": (pod(spec={"tolerations": [{}] * 65}), "65 tolerations"),
    "it has too many gates of others": (
        pod(spec={"schedulingGates": [{"name": f"other.example/{n}"} for n in range(501)]}),
        "1002 values that matter",
    ),
}


@pytest.mark.parametrize(("raw", "why"), BEYOND.values(), ids=BEYOND)
def test_a_pod_beyond_a_bound_is_not_gated(raw: Raw, why: str) -> None:
    mutation = mutate_pod(raw, controller_alive=True)
    assert mutation.ops == ()
    assert [verdict.reason for verdict in mutation.verdicts] == [names.REASON_HANDS_OFF]
    assert why in mutation.verdicts[0].message


@pytest.mark.parametrize("raw", UNGATED.values(), ids=UNGATED)
def test_a_pod_that_is_not_to_be_gated_is_not_changed(raw: Raw) -> None:
    assert mutate_pod(raw, controller_alive=True) == ReviewResult()


def test_no_pod_is_gated_while_no_controller_could_remove_the_gate() -> None:
    assert mutate_pod(pod(), controller_alive=False) == ReviewResult()


@given(raw=odd_pods | json_values, alive=st.booleans())
def test_X1_any_pod_gets_a_valid_patch_and_a_second_review_none(raw: Any, *, alive: bool) -> None:
    before = copy.deepcopy(raw)
    mutation = mutate_pod(raw, controller_alive=alive)
    assert raw == before
    assert len(mutation.ops) <= alive, "no operation but the gate"
    after = jsonpatch.apply_patch(raw, list(mutation.ops)) if mutation.ops else raw
    assert mutate_pod(after, controller_alive=alive).ops == ()


# --- a gang that is born pinned -------------------------------------------------------------------

PLACES = '{"uid":"u","nodes":["a","b"],"replicas":{"worker":[0,1]}}'
LABELS = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/replica-type": "worker"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def born_pinned(index: int = 1, *, places: str = PLACES, uid: str = "u", **spec: Any) -> Raw:
    labels = {**LABELS, "training.kubeflow.org/replica-index": f"{index}"}
    annotations = {names.PLACES: places, names.PLAN_GENERATION: "1"}
    owners = [{**OWNER, "uid": uid}]
    return pod(spec=spec, labels=labels, annotations=annotations, ownerReferences=owners)


def selected(*nodes: str) -> Raw:
    """A node affinity with a term for each node by name, or an empty term for an empty name."""
    by_name = {"key": "metadata.name", "operator": "In"}
    terms = [{"matchFields": [{**by_name, "values": [node]}]} if node else {} for node in nodes]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


BORN: dict[str, tuple[Raw, str]] = {
    "at its place": (born_pinned(), "b"),
    "beside a term of its user": (born_pinned(affinity=APART), "b"),
    "a different index at a different place": (born_pinned(0), "a"),
    "pinned already, as in a second review": (born_pinned(affinity=selected("b")), "b"),
    "an index without a place waits at the gate": (born_pinned(2), ""),
    "a pod of another job waits at the gate": (born_pinned(uid="other"), ""),
    "places that are no JSON": (born_pinned(places="{"), ""),
    "places that are a list": (born_pinned(places="[]"), ""),
    "places that are too long": (born_pinned(places=PLACES + " " * 1024), ""),
    "terms that cannot be tightened": (born_pinned(affinity=selected("")), ""),
}


@pytest.mark.parametrize(("raw", "node"), BORN.values(), ids=BORN)
def test_a_pod_of_a_gang_that_is_born_pinned(raw: Raw, node: str) -> None:
    for _ in range(2):
        raw = jsonpatch.apply_patch(raw, list(mutate_pod(raw, controller_alive=True).ops))
    assert raw["spec"].get("schedulingGates") == (None if node else [GATE])
    if node:
        assert raw["spec"]["affinity"]["nodeAffinity"] == selected(node)["nodeAffinity"]


def test_no_pod_is_pinned_while_no_controller_runs() -> None:
    assert mutate_pod(born_pinned(), controller_alive=False) == ReviewResult()


# --- Python that prints at once -------------------------------------------------------------------

SET = {"name": "PYTHONUNBUFFERED", "value": "1"}
OTHER = {"name": "X", "value": "y"}
BY_USER = {"name": "PYTHONUNBUFFERED", "value": ""}
FROM = {"name": "PYTHONUNBUFFERED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def spec(**container: Any) -> Raw:
    return {"containers": [{"name": "side"}, {"name": "tensorflow", **container}]}


@pytest.mark.parametrize(
    ("pod_spec", "want"),
    [
        pytest.param(spec(), [SET], id="no variables"),
        pytest.param(spec(env=None), [SET], id="null"),
        pytest.param(spec(env=[]), [SET], id="an empty list"),
        pytest.param(spec(env=[OTHER]), [OTHER, SET], id="others are kept"),
        pytest.param(spec(env=[BY_USER, OTHER]), [BY_USER, OTHER], id="the user's value is kept"),
        pytest.param(spec(env=[FROM]), [FROM], id="from any source"),
        pytest.param(spec(env="x"), "x", id="what the API server will refuse"),
    ],
)
def test_pythonunbuffered_is_set_where_it_is_unset(pod_spec: Raw, want: Any) -> None:
    changed, operations = unbuffered(KINDS["TFJob"], pod_spec)
    patched = jsonpatch.apply_patch({"spec": pod_spec}, operations)["spec"]
    assert patched == changed
    assert patched["containers"][1].get("env") == want
    assert patched["containers"][0] == {"name": "side"}


@pytest.mark.parametrize(
    "pod_spec",
    [
        pytest.param({}, id="no containers"),
        pytest.param({"containers": "x"}, id="containers are a string"),
        pytest.param({"containers": [None, {"name": "main"}]}, id="no training container"),
    ],
)
def test_pods_without_a_trainer_are_not_changed(pod_spec: Raw) -> None:
    assert unbuffered(KINDS["TFJob"], pod_spec) == (pod_spec, [])


def test_the_operator_sets_the_variable_for_a_pytorchjob() -> None:
    pod_spec = {"containers": [{"name": "pytorch"}]}
    assert unbuffered(KINDS["PyTorchJob"], pod_spec) == (pod_spec, [])


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("base", ["", "20000"])
def test_the_variable_is_also_set_on_the_host_network(alive: bool, base: str) -> None:
    config = '{"cluster": {"worker": ["train-worker-0.team.svc:2222"]}, "task": {"type": "worker"}}'
    raw = pod(
        ownerReferences=[OWNER],
        annotations={names.PORT_BASE: base} if base else {},
        labels={names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0", names.JOB_NAME: "train"},
        spec=spec(env=[{"name": "TF_CONFIG", "value": config}]),
    )
    operations = list(mutate_pod(raw, controller_alive=alive).ops)
    patched = jsonpatch.apply_patch(raw, operations)["spec"]
    env = {variable["name"]: variable.get("value") for variable in patched["containers"][1]["env"]}
    assert env["PYTHONUNBUFFERED"] == "1"
    assert (":2000" in env["TF_CONFIG"]) == bool(base)
    assert patched.get("hostNetwork", False) is bool(base)

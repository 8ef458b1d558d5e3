import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.bounds import MAX_PODS
from kfext.model.gpu import MAX_SLOTS, GpuShare
from kfext.model.plan import MAX_SHARES, Plan, decode_plan, plan_of
from kfext.model.pod import ReplicaKey
from kfext.names import PLAN
from tests.builders import JobBuilder, job
from tests.unit.model.test_gpu import shares
from tests.unit.objects import json_values


def managed_by(system: str) -> JobBuilder:
    builder = job().worker(2)
    builder.raw["spec"]["runPolicy"]["managedBy"] = system
    return builder


types = st.sampled_from(["master", "worker", "ps"])
keys = st.builds(ReplicaKey, type=types, index=st.integers(min_value=0, max_value=40))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans with some types that share GPUs."""
    assignment = draw(st.dictionaries(keys, st.sampled_from(["node-1", "node-2", "n3"])))
    terms = draw(st.dictionaries(types, shares, max_size=2))
    sharing = [key for key in assignment if key.type in terms and draw(st.booleans())]
    return Plan(
        job_uid=draw(st.text(min_size=1)),
        generation=draw(st.integers(min_value=1, max_value=10**6)),
        assignment=assignment,
        shares=terms,
        slots={key: draw(st.integers(0, MAX_SLOTS - 1)) for key in sharing},
    )


@given(plans())
def test_a_plan_reads_back_as_it_was_written(plan: Plan) -> None:
    assert decode_plan(plan.encode(), job_uid=plan.job_uid) == plan


@given(plans())
def test_a_plan_of_another_job_is_ignored(plan: Plan) -> None:
    assert decode_plan(plan.encode(), job_uid=f"{plan.job_uid}x") is None
    assert decode_plan(plan.encode(), job_uid="") is None


def written(**fields: object) -> str:
    plan = {"uid": "uid-1", "generation": 1, "nodes": ["a"], "replicas": {"worker": [0]}}
    return json.dumps({**plan, **fields})


FOREIGN: dict[str, str] = {
    "a malformed generation": written(generation=0),
    "a generation beyond 32 bits": written(generation=2**31),
    "more replicas than a gang has": written(replicas={"worker": [0] * (MAX_PODS + 1)}),
    "more replicas than a gang has, in several types": written(
        replicas={"worker": [0] * MAX_PODS, "ps": [0], "chief": []}
    ),
    "more slots than a gang and its replicas have": written(slots={"worker": [0] * 2 * MAX_PODS}),
    "more text than the annotations of an object can have": written(why="x" * 2**18),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_a_plan_that_kfext_does_not_write_is_ignored(text: str) -> None:
    assert decode_plan(written(), job_uid="uid-1") is not None
    assert decode_plan(text, job_uid="uid-1") is None


def test_the_length_of_a_plan_is_checked_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("was decoded"))
    assert decode_plan("[" * 2**19, job_uid="uid-1") is None


PLANNED_JOBS: dict[str, tuple[JobBuilder, bool]] = {
    "a job that the operator runs": (job().worker(2), True),
    "a job managed by the operator": (managed_by("kubeflow.org/training-operator"), True),
    "a job that another system runs": (managed_by("kueue.x-k8s.io/multikueue"), False),
    "the largest gang": (job().worker(MAX_PODS), True),
    "a job that is too large for a plan": (job().worker(MAX_PODS + 1), False),
    "a job with more pods than any cluster": (job().worker(2**31 - 1), False),
}


@pytest.mark.parametrize(("builder", "want"), PLANNED_JOBS.values(), ids=PLANNED_JOBS)
def test_which_jobs_have_plans_that_count(builder: JobBuilder, want: bool) -> None:
    assert (plan_of(builder.annotated(PLAN, written()).build()) is not None) == want


def test_replicas_with_an_invalid_node_are_left_out() -> None:
    written = (
        '{"uid":"u","generation":2,"nodes":["a"],"replicas":{"worker":[0,-1,7,"0",null,true,0]}}'
    )
    plan = decode_plan(written, job_uid="u")
    assert plan is not None
    assert plan.assignment == {ReplicaKey("worker", 0): "a", ReplicaKey("worker", 6): "a"}


def test_each_node_of_a_plan_is_listed_once_in_name_order() -> None:
    places = {ReplicaKey("worker", i): node for i, node in enumerate(["b", "a", "b"])}
    assert Plan(job_uid="u", generation=1, assignment=places).nodes == ("a", "b")


def test_a_plan_of_500_replicas_has_less_than_4_KiB() -> None:
    places = {ReplicaKey("worker", i): f"node-{i % 60:04}" for i in range(500)}
    assert len(Plan(job_uid="u" * 36, generation=1, assignment=places).encode()) < 4096


TERMS = {"units": 50}
WORKER = ReplicaKey("worker", 0)
SLOTS: dict[str, tuple[dict[str, object], dict[ReplicaKey, int]]] = {
    "as written by kfext": ({"slots": {"worker": [3]}, "shares": {"worker": TERMS}}, {WORKER: 3}),
    "no slot": ({"slots": {"worker": [-1]}, "shares": {"worker": TERMS}}, {}),
    "a slot beyond the last": ({"slots": {"worker": [64]}, "shares": {"worker": TERMS}}, {}),
    "a replica without a node": (
        {"slots": {"worker": [3, 4], "ps": [1]}, "shares": {"worker": TERMS, "ps": TERMS}},
        {WORKER: 3},
    ),
    "a type without terms": ({"slots": {"worker": [3]}, "shares": {"ps": TERMS}}, {}),
    "impossible terms": ({"slots": {"worker": [3]}, "shares": {"worker": {"units": 101}}}, {}),
    "a boolean": ({"slots": {"worker": [True]}, "shares": {"worker": TERMS}}, {}),
    "a string": ({"slots": "3", "shares": {"worker": TERMS}}, {}),
    "terms that are a list": ({"slots": {"worker": [3]}, "shares": [TERMS]}, {}),
}


@pytest.mark.parametrize(("fields", "want"), SLOTS.values(), ids=SLOTS)
def test_a_replica_has_a_slot_only_with_a_node_and_terms(
    fields: dict[str, object], want: dict[ReplicaKey, int]
) -> None:
    plan = decode_plan(written(**fields), job_uid="uid-1")
    assert plan is not None
    assert plan.assignment == {WORKER: "a"}
    assert plan.slots == want
    assert set(plan.shares) >= {key.type for key in want}


def test_no_more_terms_are_read_than_a_job_has_types() -> None:
    terms = {f"type-{number}": {"units": 50, "memory": number} for number in range(30)}
    plan = decode_plan(written(shares=terms), job_uid="uid-1")
    assert plan is not None
    assert len(plan.shares) <= MAX_SHARES


@given(slots=json_values, terms=json_values)
def test_malformed_slots_and_terms_leave_the_nodes_unchanged(slots: object, terms: object) -> None:
    plan = decode_plan(written(slots=slots, shares=terms), job_uid="uid-1")
    assert plan is not None
    assert (plan.assignment, plan.slots, plan.shares) == ({WORKER: "a"}, {}, {})


def test_a_plan_without_shares_has_no_fields_for_them() -> None:
    places = {WORKER: "a"}
    assert set(json.loads(Plan("u", 1, places).encode())) == {
        *("uid", "generation", "nodes", "replicas")
    }
    shared = Plan("u", 1, places, shares={"worker": GpuShare(50)}, slots={WORKER: 0}).encode()
    assert {"slots", "shares"} <= set(json.loads(shared))

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.bounds import MOST_PODS
from kfext.model.plan import Plan, decode_plan, plan_of
from kfext.model.pod import ReplicaKey
from kfext.names import PLAN
from tests.builders import JobBuilder, job


def managed_by(system: str) -> JobBuilder:
    made = job().worker(2)
    made.raw["spec"]["runPolicy"]["managedBy"] = system
    return made


keys = st.builds(
    ReplicaKey,
    type=st.sampled_from(["master", "worker", "ps"]),
    index=st.integers(min_value=0, max_value=40),
)
plans = st.builds(
    Plan,
    job_uid=st.text(min_size=1),
    generation=st.integers(min_value=1, max_value=10**6),
    assignment=st.dictionaries(keys, st.sampled_from(["node-1", "node-2", "n3"])),
)


@given(plans)
def test_a_plan_reads_back_as_it_was_written(plan: Plan) -> None:
    assert decode_plan(plan.encode(), job_uid=plan.job_uid) == plan


@given(plans)
def test_a_plan_of_another_job_is_ignored(plan: Plan) -> None:
    assert decode_plan(plan.encode(), job_uid=f"{plan.job_uid}x") is None
    assert decode_plan(plan.encode(), job_uid="") is None


def written(**fields: object) -> str:
    whole = {"uid": "uid-1", "generation": 1, "nodes": ["a"], "replicas": {"worker": [0]}}
    return json.dumps({**whole, **fields})


NOT_OURS: dict[str, str] = {
    "a generation that is none": written(generation=0),
    "a generation beyond all counting": written(generation=2**31),
    "more replicas than a gang has": written(replicas={"worker": [0] * (MOST_PODS + 1)}),
    "more replicas in several types": written(
        replicas={"worker": [0] * MOST_PODS, "ps": [0], "chief": []}
    ),
    "more text than an object can have": written(why="x" * 2**18),
}


@pytest.mark.parametrize("text", NOT_OURS.values(), ids=NOT_OURS)
def test_a_plan_that_kfext_does_not_write_is_ignored(text: str) -> None:
    assert decode_plan(written(), job_uid="uid-1") is not None
    assert decode_plan(text, job_uid="uid-1") is None


def test_the_length_of_a_plan_is_looked_at_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("was decoded"))
    assert decode_plan("[" * 2**19, job_uid="uid-1") is None


BELIEVED: dict[str, tuple[JobBuilder, bool]] = {
    "a job that the operator runs": (job().worker(2), True),
    "a job that is named after the operator": (managed_by("kubeflow.org/training-operator"), True),
    "a job that another system runs": (managed_by("kueue.x-k8s.io/multikueue"), False),
    "the largest gang": (job().worker(MOST_PODS), True),
    "a job that is too large for a plan": (job().worker(MOST_PODS + 1), False),
    "a job of which nobody creates the pods": (job().worker(2**31 - 1), False),
}


@pytest.mark.parametrize(("made", "want"), BELIEVED.values(), ids=BELIEVED)
def test_whose_plan_is_believed(made: JobBuilder, want: bool) -> None:
    assert (plan_of(made.annotated(PLAN, written()).build()) is not None) == want


def test_places_that_name_no_node_are_left_out() -> None:
    written = (
        '{"uid":"u","generation":2,"nodes":["a"],"replicas":{"worker":[0,-1,7,"0",null,true,0]}}'
    )
    plan = decode_plan(written, job_uid="u")
    assert plan is not None
    assert plan.assignment == {ReplicaKey("worker", 0): "a", ReplicaKey("worker", 6): "a"}


def test_the_nodes_of_a_plan_are_named_once_and_in_order() -> None:
    places = {ReplicaKey("worker", i): node for i, node in enumerate(["b", "a", "b"])}
    assert Plan(job_uid="u", generation=1, assignment=places).nodes == ("a", "b")


def test_a_plan_of_500_replicas_is_small() -> None:
    places = {ReplicaKey("worker", i): f"node-{i % 60:04}" for i in range(500)}
    assert len(Plan(job_uid="u" * 36, generation=1, assignment=places).encode()) < 4096

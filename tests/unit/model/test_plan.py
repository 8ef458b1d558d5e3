from hypothesis import given
from hypothesis import strategies as st

from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import ReplicaKey

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

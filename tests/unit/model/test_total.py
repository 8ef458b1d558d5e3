"""An object of any form can be read: the result is a value, never an error."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState
from kfext.model.kinds.registered import KINDS
from kfext.model.node import parse_node
from kfext.model.plan import decode_plan
from kfext.model.pod import parse_pod
from kfext.model.policy import parse_policy, policy_for
from tests.builders import state_in
from tests.unit.objects import json_values, odd_jobs, odd_nodes, odd_pods, odd_policies

objects = st.dictionaries(st.text(max_size=5), json_values)


@given(odd_jobs | objects)
def test_any_job_can_be_read(raw: dict[str, Any]) -> None:
    job = parse_job(raw)
    if job is None:
        assert raw.get("kind") not in KINDS
        return
    assert isinstance(job, TrainingJob)
    assert job.pods == len(list(job.replicas())) >= 0
    assert all(amount >= 0 for amount in job.requests.values())
    assert isinstance(job.finished and job.held, bool)
    assert isinstance(job.started_by, str)


@given(odd_pods | objects)
def test_any_pod_can_be_read(raw: dict[str, Any]) -> None:
    pod = parse_pod(raw)
    assert pod.requests["pods"] == 1
    waits = (pod.pinned_to or pod.unschedulable) and not pod.node_name
    assert bool(pod.gated or waits) == (pod.constraints is not None)
    assert isinstance(hash(pod.constraints), int)


@given(odd_nodes | objects)
def test_any_node_can_be_read(raw: dict[str, Any]) -> None:
    node = parse_node(raw)
    assert all(amount > 0 for amount in node.allocatable.values())


@given(odd_policies | objects)
def test_any_policy_can_be_read_and_applied(raw: dict[str, Any]) -> None:
    policy = parse_policy(raw)
    assert policy_for([policy], {"team": "a"}).placement.bind_timeout >= 0


@pytest.mark.parametrize("decode", [state_in, lambda text: decode_plan(text, job_uid="u")])
@given(written=st.none() | st.text() | json_values.map(str))
def test_any_annotation_can_be_read(decode: Callable[[Any], object], written: str | None) -> None:
    decode(written)


DAMAGED = {
    "nothing": None,
    "an empty text": "",
    "half of a plan": '{"uid":"u","gen',
    "brackets that never close": "[" * 100_000,
    "a list": "[1]",
    "a number too long to convert": '{"uid":"u","strikes":' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("written", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_annotation_counts_as_absent(written: str | None) -> None:
    assert decode_plan(written, job_uid="u") is None
    assert state_in(written) == JobState()


def test_a_number_beyond_floats_counts_as_zero() -> None:
    assert state_in('{"uid":"u","retryAt":' + "9" * 400 + "}") == JobState()

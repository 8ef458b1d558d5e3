"""What tenants forge in a soak is worth forging: only who wrote it speaks against it."""

import json

import pytest

from e2e.soak import tenants
from e2e.soak.facts import HELD, PLAN, STATE
from kfext.model.job import parse_job
from kfext.model.plan import decode_plan
from tests.unit.soak.raw import Raw

KINDS = ("PyTorchJob", "TFJob")


def stored(kind: str) -> Raw:
    made = tenants.forged_job("job", "copied", kind=kind)
    made["metadata"] |= {"uid": "its-uid", "namespace": "team"}
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_plan_is_one_that_kfext_would_believe(kind: str) -> None:
    raw = stored(kind)
    job = parse_job(raw)
    believed = decode_plan(tenants.forged_mark(PLAN, raw, ["a", "b"]), job_uid="its-uid")
    assert job is not None
    assert believed is not None
    assert set(believed.assignment.values()) == {"a", "b"}
    assert len(believed.assignment) == job.pods


def test_a_forged_state_names_the_job() -> None:
    assert json.loads(tenants.forged_mark(STATE, stored("TFJob"), ["a"]))["uid"] == "its-uid"


def test_junk_leaves_room_for_the_mark_that_a_job_is_held_and_not_for_a_plan() -> None:
    written = tenants.forged_job("job", "junk")["metadata"]["annotations"]
    left = tenants.MOST_BYTES - sum(len(key) + len(value) for key, value in written.items())
    plan = tenants.forged_mark(PLAN, stored("PyTorchJob"), ["a"])
    assert len(HELD + "true") < left < len(PLAN + plan)


def test_a_giant_is_one_of_which_nobody_makes_the_pods() -> None:
    policy = tenants.forged_job("job", "giant")["spec"]["runPolicy"]
    assert policy == {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}

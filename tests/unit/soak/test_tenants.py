"""A soak's forgeries are plausible: only their author gives them away."""

import json

import pytest

from e2e.soak import tenants
from e2e.soak.facts import PLAN, STATE
from kfext.model.job import parse_job
from kfext.model.plan import decode_plan
from tests.unit.soak.raw import Raw

KINDS = ("PyTorchJob", "TFJob")


def stored(kind: str) -> Raw:
    manifest = tenants.forged_job("job", "copied", kind=kind)
    manifest["metadata"] |= {"uid": "its-uid", "namespace": "team"}
    return manifest


@pytest.mark.parametrize("kind", KINDS)
def test_kfext_would_believe_a_forged_plan(kind: str) -> None:
    raw = stored(kind)
    job = parse_job(raw)
    believed = decode_plan(tenants.forged_mark(PLAN, raw, ["a", "b"]), job_uid="its-uid")
    assert job is not None
    assert believed is not None
    assert set(believed.assignment.values()) == {"a", "b"}
    assert len(believed.assignment) == job.pods


def test_a_forged_state_names_the_job() -> None:
    assert json.loads(tenants.forged_mark(STATE, stored("TFJob"), ["a"]))["uid"] == "its-uid"

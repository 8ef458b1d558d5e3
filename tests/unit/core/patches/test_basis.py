"""The patches of a job's stored basis equal the patches of the whole job."""

from collections.abc import Callable

import pytest
from hypothesis import given

from kfext import names
from kfext.core.patches.basis import basis
from kfext.core.patches.job import (
    Raw,
    release_patch,
    replan_patch,
    save_state_patch,
    suspend_patch,
    unsuspend_patch,
)
from kfext.core.patches.json_patch import Operation, Unpatchable
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from tests.builders import job
from tests.unit.objects import odd_jobs

PLAN = Plan("uid-1", 1, {ReplicaKey("worker", 0): "a", ReplicaKey("master", 0): "b"}, port=20000)
STATE = JobState(strikes=1, requested=4, assigned=2)
Patch = Callable[[Raw, TrainingJob], list[Operation]]
PATCHES: dict[str, Patch] = {
    "unsuspend": lambda raw, job: unsuspend_patch(raw, job, PLAN, state=STATE),
    "replan": lambda raw, job: replan_patch(raw, job, PLAN),
    "suspend": lambda raw, job: suspend_patch(raw, job, STATE),
    "save the state": lambda raw, job: save_state_patch(raw, job, STATE),
    "release": lambda raw, job: release_patch(raw, job, Verdict(names.REASON_TOO_BIG, "why")),
}


def patch_or_error(patch: Patch, raw: Raw, job: TrainingJob) -> object:
    try:
        return patch(raw, job)
    except (Unpatchable, KeyError) as error:  # a job that is not held cannot be unsuspended
        return type(error)


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
@given(raw=odd_jobs)
def test_the_patches_of_any_job_are_the_same(patch: Patch, raw: Raw) -> None:
    job = parse_job(raw)
    if job is not None:
        assert patch_or_error(patch, basis(raw, job), job) == patch_or_error(patch, raw, job)


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_the_patches_of_an_ordinary_job_are_the_same(patch: Patch) -> None:
    ports = [{"name": "x", "containerPort": 1}, {"name": "pytorchjob-port", "containerPort": 2}]
    spec = {
        "containers": [{"name": "side"}, {"name": "pytorch", "ports": ports, "args": ["x" * 99]}],
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}},
    }
    builder = job().master(spec=spec).worker(4, spec=spec).held().elastic(rdzvPort=29400)
    raw, training_job = builder.raw, builder.build()
    assert patch(basis(raw, training_job), training_job) == patch(raw, training_job)
    assert "x" * 99 not in str(basis(raw, training_job))

from dataclasses import replace

import pytest

from kfext.model.cpu_size import TrainerCpu
from kfext.model.pod import Pod
from kfext.state.changes import is_newer, is_older, place_of
from tests.builders import job, pod

OLDER: dict[str, tuple[str, str, bool]] = {
    "a lower number": ("9", "10", True),
    "a higher number": ("10", "9", False),
    "the same": ("9", "9", False),
    "none, before any": ("", "1", True),
    "what is no number": ("abc", "10", False),
}


@pytest.mark.parametrize(("one", "other", "want"), OLDER.values(), ids=OLDER)
def test_versions_of_one_object_are_compared_as_numbers(one: str, other: str, want: bool) -> None:
    assert is_older(one, other) is want


NEWER: dict[str, tuple[str, bool]] = {
    "a later version": ("11", True),
    "the known version": ("10", False),
    "an earlier version": ("9", False),
    "what cannot be compared": ("abc", True),
}


@pytest.mark.parametrize(("version", "want"), NEWER.values(), ids=NEWER)
def test_a_job_is_newer_unless_its_version_is_known_or_older(version: str, want: bool) -> None:
    assert is_newer(version, job().version(10).build()) is want


BEFORE = pod(job().worker(1, cpu="1").build(), "worker", 0)
AFTER: dict[str, tuple[Pod, bool]] = {
    "it is bound": (replace(BEFORE, node_name="a"), True),
    "it ends": (replace(BEFORE, phase="Succeeded"), True),
    "it is being deleted": (replace(BEFORE, deleting=True), True),
    "kube-scheduler reports a reason": (replace(BEFORE, unschedulable="no room"), True),
    "a resize changes what it takes": (replace(BEFORE, requests={"cpu": 2000}), True),
    "a resize changes its limit": (replace(BEFORE, trainer=TrainerCpu(1000, 2000)), False),
    "it starts to run": (replace(BEFORE, phase="Running"), False),
    "anything else is written on it": (replace(BEFORE, resource_version="2"), False),
}


@pytest.mark.parametrize(("after", "want"), AFTER.values(), ids=AFTER)
def test_what_changes_a_decision(after: Pod, want: bool) -> None:
    assert (place_of(after) != place_of(BEFORE)) is want

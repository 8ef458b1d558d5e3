"""The story of `make up` with real training: each command has the result that it promises."""

import os
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import playground
from e2e.harness.install import kubectl
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed

pytestmark = pytest.mark.long
PATIENCE = 900.0
"""A change takes a checkpoint, the start of slow pods, and a minute of quiet before growth."""
Object = dict[str, Any]


@pytest.fixture
def bed() -> Iterator[Testbed]:
    name = f"story-{os.getpid()}"
    yield playground.bring_up(name)
    playground.tear_down(name)


def test_each_scene_of_the_story_comes_true(bed: Testbed) -> None:
    elastic, waits, _, resize, _ = playground.STORY

    submit(bed, elastic)
    wait_status(bed, "elastic", lambda status: status["workers"] == 4 and remaining(status))

    submit(bed, waits)
    waiting = ("Queued", "NoRoom")
    wait_status(bed, "resnet", lambda status: (status["phase"], status["reason"]) == waiting)
    wait_status(bed, "elastic", lambda status: status["workers"] < 4)
    wait_status(bed, "resnet", lambda status: status["phase"] == "Placed" and remaining(status))
    wait_status(bed, "resnet", lambda status: status["phase"] == "Finished")
    wait_status(bed, "elastic", lambda status: status["workers"] == 4)

    submit(bed, resize)
    for job in ("short", "long"):
        wait_status(bed, job, lambda status: resized(status) == ("True", "CpuMoved"))


def submit(bed: Testbed, scene: playground.Scene) -> None:
    apply, *_ = scene.command.split(" && ")
    kubectl(bed, *shlex.split(apply)[1:], "-n", playground.NAMESPACE)


def wait_status(bed: Testbed, job: str, matches: Any) -> None:
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{playground.NAMESPACE}/trainingplans"
    name, seen = f"pytorchjob-{job}", list[Object]()

    def shown() -> bool:
        plans = {plan["metadata"]["name"]: plan for plan in bed.api.get(path)["items"]}
        seen.append(plans.get(name, {}).get("status", {}))
        return bool(seen[-1]) and bool(matches(seen[-1]))

    until(shown, what=f"{job} has the status", account=lambda: str(seen[-1]), seconds=PATIENCE)


def remaining(status: Object) -> Any:
    """Return the remaining seconds that a job shows, or None."""
    return (status.get("progress") or {}).get("secondsLeft")


def resized(status: Object) -> tuple[str, str]:
    """Return the status and the reason of the condition Resized."""
    conditions = [known for known in status.get("conditions", ()) if known["type"] == "Resized"]
    return (conditions[0]["status"], conditions[0]["reason"]) if conditions else ("", "")

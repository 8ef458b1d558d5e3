"""`kubectl kfext queue`: what it prints of the jobs that wait."""

import json

import pytest
import yaml

from kfext.cli.queue import queue_of, written
from kfext.model.priority import PriorityClass
from tests.builders import job

NOW = 10_000.0
CLASSES = {"high": PriorityClass("high", 1000)}


def waiting() -> list[dict[str, object]]:
    return listed(classes=CLASSES)


def listed(*, classes: dict[str, PriorityClass] | None) -> list[dict[str, object]]:
    old = job(name="old", uid="1").worker(2, cpu="1", gpus=1).held().created(0).build()
    urgent = job("TFJob", name="urgent", uid="2").ps(1).worker(1, cpu="500m").held().created(9_940)
    urgent.prioritized("high")
    runs = job(name="runs", uid="3").worker(1).build()
    statuses = {
        "1": {"phase": "Queued", "reason": "NoRoom", "message": "1 cpu short"},
        "2": {"phase": "Queued", "reason": "NoRoom", "message": ""},
        "3": {"phase": "Placed"},
    }
    return queue_of([old, urgent.build(), runs], statuses=statuses, classes=classes, now=NOW)


def test_only_what_waits_is_listed_the_highest_priority_first() -> None:
    assert [line["name"] for line in waiting()] == ["urgent", "old"]


def test_the_queue_as_a_table() -> None:
    assert written(waiting(), output="text", namespace="") == (
        "#  PRIORITY   AGE  PODS  ASKS                     JOB                  REASON\n"
        "1  1000 high  60s  2     0.5 cpu                  TFJob team/urgent    NoRoom\n"
        "2  0          2h   2     2 cpu, 2 nvidia.com/gpu  PyTorchJob team/old  NoRoom\n"
        "    1 cpu short\n"
    )


def test_an_empty_queue() -> None:
    assert written([], output="text", namespace="") == "no job waits\n"
    assert written([], output="text", namespace="team") == "no job waits in namespace team\n"


def test_in_one_namespace_no_place_in_the_queue_is_pretended() -> None:
    head, first, *_ = written(waiting(), output="text", namespace="team").splitlines()
    assert head.startswith("PRIORITY")
    assert first.startswith("1000 high  60s")


def test_without_the_classes_no_priority_is_pretended() -> None:
    old, urgent = (listed(classes=None)[at] for at in (0, 1))
    assert (old["priority"], old["priorityClass"]) == (None, "")
    assert (urgent["priority"], urgent["priorityClass"]) == (None, "high")
    assert "\n?         2h" in written([old], output="text", namespace="team")


def test_a_job_that_is_held_without_a_plan_is_listed() -> None:
    only = job(name="only", uid="9").worker(1).held().created(0).build()
    (line,) = queue_of([only], statuses={}, classes=CLASSES, now=NOW)
    assert (line["name"], line["reason"]) == ("only", "")
    assert "is the controller running" in line["message"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_the_queue_for_programs(output: str) -> None:
    printed = written(waiting(), output=output, namespace="")
    read = json.loads(printed) if output == "json" else yaml.safe_load(printed)
    assert [line["priority"] for line in read] == [1000, 0]

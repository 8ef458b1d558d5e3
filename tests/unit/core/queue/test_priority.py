"""The priority of a job, and its position in words."""

from collections.abc import Mapping

import pytest

from kfext.core.queue.priority import in_line, priority_class, why_there
from kfext.model.priority import PriorityClass, parse_priority_class
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM, RESERVATION_PRIORITY
from tests.builders import JobBuilder, job

LOW = PriorityClass("low", -10)
HIGH = PriorityClass("high", 1000)
URGENT = PriorityClass("urgent", 5000, preempts=False)
CLASSES = {known.name: known for known in (LOW, HIGH, URGENT)}
USUAL = {**CLASSES, "usual": PriorityClass("usual", 7, default=True)}


def using(*templates: str, workers: int = 1) -> JobBuilder:
    """A job with templates that name priority classes."""
    master, worker = (
        {"priorityClassName": name} if name else {} for name in (*templates, "", "")[:2]
    )
    return job().master(spec=master).worker(workers, spec=worker)


def scheduling_with(builder: JobBuilder, name: str) -> JobBuilder:
    """The job with a class in its schedulingPolicy."""
    builder.raw["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": name}
    return builder


CASES: Mapping[str, tuple[JobBuilder, Mapping[str, PriorityClass], int]] = {
    "the highest of the templates decides": (using("low", "urgent"), CLASSES, 5000),
    "a template without a class counts as naming none": (using("", "high"), CLASSES, 1000),
    "a template without replicas does not count": (using("low", "urgent", workers=0), CLASSES, -10),
    "the schedulingPolicy is not for pods": (scheduling_with(using("low"), "urgent"), CLASSES, -10),
    "without a class the global default decides": (using(), USUAL, 7),
    "without a class and a global default it is 0": (using(), CLASSES, 0),
    "an unknown class counts as none": (using("typo", "high"), CLASSES, 1000),
    "the class of the pods that reserve GPUs counts as none": (
        using(RESERVATION_PRIORITY, "low"),
        {**CLASSES, RESERVATION_PRIORITY: PriorityClass(RESERVATION_PRIORITY, 10**9)},
        -10,
    ),
    "of two global defaults the lowest holds, as in Kubernetes": (
        using(),
        {**USUAL, "other": PriorityClass("other", 3, default=True)},
        3,
    ),
}


@pytest.mark.parametrize(("builder", "classes", "want"), CASES.values(), ids=CASES.keys())
def test_the_priority_of_a_job(
    builder: JobBuilder, classes: Mapping[str, PriorityClass], want: int
) -> None:
    assert priority_class(builder.build(), classes).value == want


PARSED = {
    "all fields": (
        {"metadata": {"name": "a"}, "value": 5, "globalDefault": True, "preemptionPolicy": "Never"},
        PriorityClass("a", 5, default=True, preempts=False),
    ),
    "defaults": ({"metadata": {"name": "a"}, "value": 5}, PriorityClass("a", 5)),
    "odd fields count as absent": ({"metadata": 7, "value": "5"}, PriorityClass("", 0)),
    "a value beyond what Kubernetes allows counts as absent": (
        {"metadata": {"name": "a"}, "value": 2**40},
        PriorityClass("a", 0),
    ),
}


@pytest.mark.parametrize(("raw", "want"), PARSED.values(), ids=PARSED.keys())
def test_the_parsed_priority_class(raw: dict[str, object], want: PriorityClass) -> None:
    assert parse_priority_class(raw) == want


NO_ROOM = Verdict(REASON_NO_ROOM, "2 cpu short")
PLACES: dict[str, tuple[int, str]] = {
    "the first": (0, "first in the queue"),
    "the second": (1, "; 1 job is ahead"),
    "further back": (2, "; 2 jobs are ahead"),
    "the last exact position": (10, "; 10 jobs are ahead"),
    "far behind": (20, "; about 20 jobs are ahead"),
}


@pytest.mark.parametrize(("ahead", "want"), PLACES.values(), ids=PLACES)
def test_the_number_of_jobs_ahead_is_in_the_message(ahead: int, want: str) -> None:
    verdict = in_line(NO_ROOM, ahead=ahead, exact=10, kept_nodes="", awaited="")
    assert verdict.reason == REASON_NO_ROOM
    assert verdict.message.startswith("2 cpu short; ")
    assert want in verdict.message
    assert "kept" not in verdict.message


KEPT: dict[str, tuple[str, str, str, str]] = {
    "a node, until a job has ended": ("a", "x", "a is reserved", "until x has ended"),
    "nodes, until a job has ended": ("a and b", "x", "a and b are reserved", "until x has ended"),
    "a node, until jobs have ended": ("a", "x and y", "a is reserved", "until x and y have ended"),
}


@pytest.mark.parametrize(("nodes", "awaited", "kept", "until"), KEPT.values(), ids=KEPT)
def test_the_reservation_is_in_the_message(nodes: str, awaited: str, kept: str, until: str) -> None:
    message = in_line(NO_ROOM, ahead=0, exact=10, kept_nodes=nodes, awaited=awaited).message
    assert kept in message
    assert message.endswith(until)


def test_a_reservation_that_waits_for_no_job_is_shown_without_an_end() -> None:
    message = in_line(NO_ROOM, ahead=0, exact=10, kept_nodes="a", awaited="").message
    assert message.endswith("reserved for it")


REASONS: dict[str, tuple[int, float | None, str]] = {
    "its length does not count": (7, None, "priority 7, its age and the usual length of jobs"),
    "its length counts": (0, 720.0, "priority 0, its age and the 12m it should take"),
}


@pytest.mark.parametrize(("priority", "length", "want"), REASONS.values(), ids=REASONS)
def test_the_reason_for_a_position_is_shown_with_it(
    priority: int, length: float | None, want: str
) -> None:
    behind = why_there(priority, length)
    message = in_line(NO_ROOM, ahead=2, exact=10, kept_nodes="", awaited="", behind=behind).message
    assert message.endswith(f"2 jobs are ahead in the queue; its place follows from {want}")

"""What a queued job is told of its place in the queue."""

import pytest

from kfext.core.queue.position import in_line
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM

NO_ROOM = Verdict(REASON_NO_ROOM, "2 cpu short")

PLACES: dict[str, tuple[int, str]] = {
    "the first": (0, "first in the queue"),
    "the second": (1, "; 1 job is ahead"),
    "further back": (2, "; 2 jobs are ahead"),
    "the last that is told exactly": (10, "; 10 jobs are ahead"),
    "far behind": (20, "; about 20 jobs are ahead"),
}


@pytest.mark.parametrize(("ahead", "want"), PLACES.values(), ids=PLACES)
def test_its_place_is_told_behind_why_it_waits(ahead: int, want: str) -> None:
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
def test_what_is_kept_for_it_is_told_too(nodes: str, awaited: str, kept: str, until: str) -> None:
    message = in_line(NO_ROOM, ahead=0, exact=10, kept_nodes=nodes, awaited=awaited).message
    assert kept in message
    assert message.endswith(until)


def test_room_that_waits_for_nobody_is_kept_without_an_end() -> None:
    message = in_line(NO_ROOM, ahead=0, exact=10, kept_nodes="a", awaited="").message
    assert message.endswith("reserved for it")

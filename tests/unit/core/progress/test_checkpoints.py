"""What the lines of a log show of checkpoints, one after the other."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.checkpoints import CheckpointLog, Checkpoints
from kfext.model.log_line import LogLine

NOW = 1000.0
PROGRESS, RESTART = "progress", "restart"
BEGUN, COMPLETE = "saving checkpoint to /c", "saved checkpoint /c/1.pt"
LISTENS, ANSWER = "kfext.checkpoint 0", "kfext.checkpoint 4"


def shown(*events: str, now: float = NOW) -> Checkpoints:
    """What a log has shown after these lines: line n is of second n, at step 10 n."""
    log = CheckpointLog()
    for number, event in enumerate(events, 1):
        if event == PROGRESS:
            log.goes_on()
        elif event == RESTART:
            log.restarted()
            log.goes_on()
        else:
            log.take(LogLine(number, event), step=10 * number, now=now)
    return log.seen


SEEN: dict[str, tuple[tuple[str, ...], Checkpoints]] = {
    "nothing": ((), Checkpoints()),
    "other lines": (("starting", PROGRESS), Checkpoints()),
    "one that is complete": ((COMPLETE,), Checkpoints(1, 10)),
    "one that was begun": ((BEGUN,), Checkpoints()),
    "begun, and other lines": ((BEGUN, "writing", "writing"), Checkpoints()),
    "begun, and the training goes on: as of its begin": ((BEGUN, PROGRESS), Checkpoints(1, 10)),
    "begun and complete": ((BEGUN, COMPLETE), Checkpoints(2, 20)),
    "begun, complete, and it goes on": ((BEGUN, COMPLETE, PROGRESS), Checkpoints(2, 20)),
    "begun, and a restart": ((BEGUN, RESTART, PROGRESS), Checkpoints()),
    "complete, begun, and a restart": ((COMPLETE, BEGUN, RESTART), Checkpoints(1, 10)),
    "begun twice": ((BEGUN, BEGUN, PROGRESS), Checkpoints(2, 20)),
    "two": ((COMPLETE, PROGRESS, COMPLETE), Checkpoints(3, 30)),
    "it listens": ((LISTENS,), Checkpoints(answered=0)),
    "an answer is a complete checkpoint": ((ANSWER,), Checkpoints(1, 10, 4)),
    "it listens on after its answer": ((ANSWER, LISTENS), Checkpoints(1, 10, 4)),
    "an answer with a smaller number": ((ANSWER, "kfext.checkpoint 2"), Checkpoints(2, 20, 4)),
    "it listens while one is written": ((BEGUN, LISTENS, PROGRESS), Checkpoints(1, 10, 0)),
}


@pytest.mark.parametrize(("events", "want"), SEEN.values(), ids=SEEN)
def test_what_the_lines_show(events: tuple[str, ...], want: Checkpoints) -> None:
    assert shown(*events) == want


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(Checkpoints(), False, id="nothing"),
        pytest.param(Checkpoints(saved=1.0), True, id="a checkpoint"),
        pytest.param(Checkpoints(answered=0), True, id="it listens"),
    ],
)
def test_whether_anything_was_shown(seen: Checkpoints, want: bool) -> None:
    assert seen.shown is want


def test_a_checkpoint_is_never_newer_than_the_reader() -> None:
    assert shown("x", "x", COMPLETE, now=2.0).saved == 2.0


def test_a_clock_that_was_set_back_makes_no_checkpoint_older() -> None:
    log = CheckpointLog()
    for at in (50.0, 20.0):
        log.take(LogLine(at, COMPLETE), step=None, now=NOW)
    assert log.seen.saved == 50.0


EVENTS = st.sampled_from([PROGRESS, RESTART, BEGUN, COMPLETE, LISTENS, ANSWER, "other"])


@given(st.lists(EVENTS, max_size=12))
def test_what_was_shown_is_never_taken_back(events: list[str]) -> None:
    history = [shown(*events[:number]) for number in range(len(events) + 1)]
    for before, after in pairwise(history):
        assert (after.saved or 0) >= (before.saved or 0)
        assert (-1 if after.answered is None else after.answered) >= (
            -1 if before.answered is None else before.answered
        )
        assert after.shown or not before.shown

"""What the lines of a log show of checkpoints, one after the other."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.checkpoints import CheckpointLog, Checkpoints
from kfext.model.log_line import LogLine
from tests.no_saves import ASYNCHRONOUS, FAILING, NO_SAVES

NOW = 1000.0
PROGRESS, RESTART = "step 9 loss 0.5", "restart"
COMPLETE = "saved checkpoint /c/1.pt"
AT_STEP = "saved checkpoint at step 9"
BEGUN = "saving checkpoint at iteration 15 to /c"
FINISHED = "successfully saved checkpoint from iteration 15 to /c"
OTHER_BEGUN, OTHER_FINISHED = BEGUN.replace("15", "25"), FINISHED.replace("15", "25")
FAILED = "could not write /c/9: quota exceeded, going on"
ORBAX = "[process=0][thread=async_save] Background save thread done. Time taken: 8.1s."
TITAN = "Finished saving the checkpoint in 2.50 seconds."
LISTENS, ANSWER = "kfext.checkpoint 0", "kfext.checkpoint 4"


def shown(*events: str, now: float = NOW) -> Checkpoints:
    """What a log has shown after these lines: line n is of second n, at step 10 n."""
    log = CheckpointLog()
    for number, event in enumerate(events, 1):
        if event == RESTART:
            log.restarted()
        else:
            log.take(LogLine(number, event), step=10 * number, now=now)
    return log.seen


SEEN: dict[str, tuple[tuple[str, ...], Checkpoints]] = {
    "nothing": ((), Checkpoints()),
    "other lines": (("starting", PROGRESS), Checkpoints()),
    "one that is complete": ((COMPLETE,), Checkpoints(1, 10)),
    "the same file again": ((COMPLETE, PROGRESS, COMPLETE), Checkpoints(3, 30)),
    "the same number again": ((AT_STEP, PROGRESS, AT_STEP), Checkpoints(1, 10)),
    "the same number again after a restart": ((AT_STEP, RESTART, AT_STEP), Checkpoints(3, 30)),
    "another number": ((AT_STEP, AT_STEP.replace("9", "19")), Checkpoints(2, 20)),
    "begun": ((BEGUN,), Checkpoints()),
    "begun, and the training goes on": ((BEGUN, PROGRESS, PROGRESS), Checkpoints()),
    "begun and finished: as of its begin": ((BEGUN, PROGRESS, FINISHED), Checkpoints(1, 10)),
    "finished in the end": ((PROGRESS, BEGUN, FINISHED, PROGRESS), Checkpoints(2, 20)),
    "begun, and a restart": ((BEGUN, RESTART, FINISHED.replace("15", "5")), Checkpoints()),
    "complete, begun, and a restart": ((COMPLETE, BEGUN, RESTART), Checkpoints(1, 10)),
    "begun twice, and the first one finished": ((BEGUN, OTHER_BEGUN, FINISHED), Checkpoints()),
    "begun twice, and the second one finished": (
        (BEGUN, OTHER_BEGUN, FINISHED, OTHER_FINISHED),
        Checkpoints(2, 20),
    ),
    "begun, and failed": ((BEGUN, FAILED, PROGRESS), Checkpoints()),
    "begun, failed, and said to be finished after later steps": (
        (BEGUN, PROGRESS, FAILED, FINISHED.replace("15", "9")),
        Checkpoints(),
    ),
    "failed before": ((FAILED, BEGUN, FINISHED), Checkpoints(2, 20)),
    "complete, and a failure of something else": ((COMPLETE, FAILED), Checkpoints(1, 10)),
    "finished, and no later step was shown": ((PROGRESS, OTHER_FINISHED), Checkpoints(2, 20)),
    "finished, and its begin was not seen": ((PROGRESS, FINISHED), Checkpoints()),
    "finished, and its begin was that of another framework": (
        ("Saving checkpoint at step: 15", PROGRESS, FINISHED),
        Checkpoints(),
    ),
    "finished by a line that names no save": (
        ("[process=0] Saving checkpoint at step 9", PROGRESS, ORBAX),
        Checkpoints(1, 10),
    ),
    "a line that names no save, alone": ((ORBAX,), Checkpoints()),
    "finished after one that was complete later": (
        (BEGUN, COMPLETE, FINISHED),
        Checkpoints(2, 20),
    ),
    "torchtitan": (("Saving the checkpoint.", TITAN), Checkpoints(1, 10)),
    "torchtitan, which may be asynchronous": (
        ("Saving the checkpoint (or staging if async is enabled).", TITAN),
        Checkpoints(),
    ),
    "two": ((COMPLETE, PROGRESS, COMPLETE), Checkpoints(3, 30)),
    "it listens": ((LISTENS,), Checkpoints(answered=0)),
    "an answer is a complete checkpoint": ((ANSWER,), Checkpoints(1, 10, 4)),
    "it listens on after its answer": ((ANSWER, LISTENS), Checkpoints(1, 10, 4)),
    "an answer with a smaller number": ((ANSWER, "kfext.checkpoint 2"), Checkpoints(2, 20, 4)),
    "it listens while one is written": ((BEGUN, LISTENS, FINISHED), Checkpoints(1, 10, 0)),
}


@pytest.mark.parametrize(("events", "want"), SEEN.values(), ids=SEEN)
def test_what_the_lines_show(events: tuple[str, ...], want: Checkpoints) -> None:
    assert shown(*events) == want


@pytest.mark.parametrize("kind", NO_SAVES)
def test_no_line_that_is_no_save_shows_a_checkpoint(kind: str) -> None:
    for line in NO_SAVES[kind]:
        assert shown(PROGRESS, line, PROGRESS, PROGRESS) == Checkpoints(), line


def test_a_save_that_says_that_it_failed_shows_no_checkpoint() -> None:
    assert shown(*FAILING, PROGRESS, PROGRESS) == Checkpoints()


@pytest.mark.parametrize(("begun", "between", "complete"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_save_in_the_background_is_complete_when_a_line_says_so(
    begun: str, between: str, complete: str
) -> None:
    going_on = (begun, between, PROGRESS, PROGRESS)
    assert shown(*going_on) == Checkpoints()
    assert shown(*going_on, complete) == Checkpoints(1, 10)
    assert shown(*going_on, FAILED, complete) == Checkpoints()


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


EVENTS = st.sampled_from(
    [PROGRESS, RESTART, BEGUN, FINISHED, FAILED, COMPLETE, LISTENS, ANSWER, "other"]
)


@given(st.lists(EVENTS, max_size=12))
def test_what_was_shown_is_never_taken_back(events: list[str]) -> None:
    history = [shown(*events[:number]) for number in range(len(events) + 1)]
    for before, after in pairwise(history):
        assert (after.saved or 0) >= (before.saved or 0)
        assert (-1 if after.answered is None else after.answered) >= (
            -1 if before.answered is None else before.answered
        )
        assert after.shown or not before.shown

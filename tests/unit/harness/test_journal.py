"""The restarts of an elastic training job and their steps, read from its output."""

from e2e.harness.journal import Resumed, answers, redone, resumes, worlds

LINES = [
    "resumed at step 0 with world 4",
    "kfext.checkpoint 0",
    "step 5/100 loss=1.5",
    "saved checkpoint at step 7",
    "kfext.checkpoint 3",
    "step 10/100 loss=1.2",
    "resumed at step 7 with world 2",
    "saved checkpoint at step 20",
    "resumed at step 7 with world 4",
    '{"steps": 100, "loss": 0.5}',
]


def test_each_start_has_the_last_save_before_it() -> None:
    assert resumes(LINES) == [Resumed(0, 4, 0), Resumed(7, 2, 7), Resumed(7, 4, 20)]
    assert worlds(LINES) == [4, 2, 4]


def test_a_start_from_before_the_last_save_has_lost_steps() -> None:
    assert [start.kept for start in resumes(LINES)] == [True, True, False]


def test_the_line_of_checkpoint_0_is_no_answer() -> None:
    assert answers(LINES) == [3]


def test_a_resumed_line_without_a_world_has_world_0() -> None:
    assert resumes(["resumed at step 12"]) == [Resumed(12, 0, 0)]


def test_the_steps_after_the_resumed_step_count_as_repeated() -> None:
    # From 10 back to 7, and from 7 to 7; steps after the last printed line are unknown.
    assert redone(LINES) == 3
    assert redone([*LINES, "step 30/100 loss=1", "resumed at step 20"]) == 13
    assert redone(["resumed at step 40 with world 1", "step 45/100 loss=1"]) == 0

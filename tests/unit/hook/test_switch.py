import sys

import pytest

from kfext.hook.switch import Switch


def fail() -> None:
    raise RuntimeError("no")


def test_the_first_error_turns_all_hooks_off_and_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    switch, done = Switch(), list[str]()
    fails, acts = switch.guard(fail), switch.guard(done.append)
    switch.at_end(lambda: done.append("end"))
    acts("before")
    fails()
    fails()
    acts("after")
    assert done == ["before", "end"]
    assert capsys.readouterr().err.count("\n") == 1


def test_what_fails_at_the_end_keeps_nothing_else_from_ending() -> None:
    switch, done = Switch(), list[str]()
    switch.at_end(fail)
    switch.at_end(lambda: done.append("end"))
    switch.turn_off(RuntimeError("no"))
    assert done == ["end"]


@pytest.mark.parametrize("stderr", [None, open])  # what has no `write` is like a closed one
def test_a_job_without_stderr_does_not_notice(
    monkeypatch: pytest.MonkeyPatch, stderr: object
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    Switch().guard(fail)()


def test_a_guarded_function_rests_while_it_must() -> None:
    done: list[int] = []
    resting = [True, False]
    act = Switch().guard(done.append, resting.pop)
    act(1)
    act(2)
    assert done == [1]

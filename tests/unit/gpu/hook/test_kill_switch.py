import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import sleep
from types import FrameType

import pytest

from kfext.gpu.hook.kill_switch import KillSwitch


def fail() -> None:
    raise RuntimeError("no")


def test_the_first_error_turns_all_hooks_off_and_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    switch, done = KillSwitch(), list[str]()
    fails, acts = switch.guard(fail), switch.guard(done.append)
    switch.on_turn_off(lambda: done.append("end"))
    acts("before")
    fails()
    fails()
    acts("after")
    assert done == ["before", "end"]
    assert capsys.readouterr().err.count("\n") == 1


class PreemptedError(Exception):
    """What a program raises to save its work."""


def handles(number: int, frame: object) -> None:
    raise PreemptedError


def handles_whatever(*_: object) -> None:
    raise PreemptedError


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[..., None]], None]]:
    """Let a function handle a signal that arrives soon."""
    before = signal.getsignal(signal.SIGALRM)

    def rings(handler: Callable[..., None]) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield rings
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("handler", [handles, handles_whatever, partial(handles_whatever, "x")])
def test_an_error_of_a_signal_handler_reaches_the_program_and_the_hooks_stay_on(
    handler: Callable[..., None], alarm: Callable[[Callable[..., None]], None]
) -> None:
    switch, done = KillSwitch(), list[str]()
    alarm(handler)
    with pytest.raises(PreemptedError):
        switch.guard(lambda: sleep(30))()
    switch.guard(done.append)("after")
    assert done == ["after"]


def test_an_error_of_a_hook_that_takes_frames_is_an_error_of_the_hook(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(frame: FrameType | None) -> None:
        raise RuntimeError(str(frame is None))

    KillSwitch().guard(lambda: fails(None))()
    assert "no longer gives way" in capsys.readouterr().err


def test_a_failure_at_the_end_prevents_no_other_end() -> None:
    switch, done = KillSwitch(), list[str]()
    switch.on_turn_off(fail)
    switch.on_turn_off(lambda: done.append("end"))
    switch.turn_off(RuntimeError("no"))
    assert done == ["end"]


@pytest.mark.parametrize("stderr", [None, open])  # no `write` is like a closed stderr
def test_a_job_without_stderr_does_not_notice(
    monkeypatch: pytest.MonkeyPatch, stderr: object
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    KillSwitch().guard(fail)()


def test_a_guarded_function_rests_while_it_must() -> None:
    done: list[int] = []
    resting = [True, False]
    act = KillSwitch().guard(done.append, resting.pop)
    act(1)
    act(2)
    assert done == [1]

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


def test_the_first_error_turns_all_hooks_off_for_good(capsys: pytest.CaptureFixture[str]) -> None:
    switch, calls = KillSwitch(), list[str]()
    guarded_fail, guarded_append = switch.guard(fail), switch.guard(calls.append)
    switch.on_turn_off(lambda: calls.append("end"))
    guarded_append("before")
    guarded_fail()
    guarded_fail()
    guarded_append("after")
    assert calls == ["before", "end"]
    assert capsys.readouterr().err.count("\n") == 1


class PreemptedError(Exception):
    """An error that a program's signal handler raises, so that the program saves its work."""


def raise_with_frame(number: int, frame: object) -> None:
    raise PreemptedError


def raise_with_any(*_: object) -> None:
    raise PreemptedError


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[..., None]], None]]:
    """Return a function that sets a signal handler and sends the signal soon after."""
    before = signal.getsignal(signal.SIGALRM)

    def set_alarm(handler: Callable[..., None]) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


HANDLERS = [raise_with_frame, raise_with_any, partial(raise_with_any, "x")]


@pytest.mark.parametrize("handler", HANDLERS)
def test_an_error_of_a_signal_handler_reaches_the_program_and_the_hooks_stay_on(
    handler: Callable[..., None], alarm: Callable[[Callable[..., None]], None]
) -> None:
    switch, calls = KillSwitch(), list[str]()
    alarm(handler)
    with pytest.raises(PreemptedError):
        switch.guard(lambda: sleep(30))()
    switch.guard(calls.append)("after")
    assert calls == ["after"]


def test_an_error_of_a_hook_with_a_frame_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    def fail_with_frame(frame: FrameType | None) -> None:
        raise RuntimeError(str(frame is None))

    KillSwitch().guard(lambda: fail_with_frame(None))()
    assert "no longer gives way" in capsys.readouterr().err


def test_a_cleanup_that_fails_does_not_prevent_the_next_cleanup() -> None:
    switch, calls = KillSwitch(), list[str]()
    switch.on_turn_off(fail)
    switch.on_turn_off(lambda: calls.append("end"))
    switch.turn_off(RuntimeError("no"))
    assert calls == ["end"]


@pytest.mark.parametrize("stderr", [None, open])  # `open` has no `write`, like a closed stderr
def test_errors_without_stderr_are_ignored(monkeypatch: pytest.MonkeyPatch, stderr: object) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    KillSwitch().guard(fail)()


def test_a_guarded_function_is_skipped_while_the_condition_holds() -> None:
    calls: list[int] = []
    skips = [True, False]
    guarded = KillSwitch().guard(calls.append, skips.pop)
    guarded(1)
    guarded(2)
    assert calls == [1]

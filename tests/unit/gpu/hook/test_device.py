import ctypes
from typing import Any

import pytest

from kfext.gpu.hook import device as module
from kfext.gpu.hook.device import Cuda

GLOBAL, THREAD_LOCAL = 0, 1


class Event:
    """A CUDA event that adds the calls to it to a list."""

    def __init__(self, calls: list[object]) -> None:
        self._calls = calls
        self.complete = True

    def record(self) -> None:
        self._calls.append("record")

    def synchronize(self) -> None:
        self._calls.append("synchronize")

    def query(self) -> bool:
        self._calls.append("query")
        return self.complete


class FakeCuda:
    """`torch.cuda` and the driver, with the capture mode of the calling thread.

    `calls`: the calls to events, and the modes that were set, in order.
    """

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.mode = GLOBAL
        self.cuda = self
        self.initialized = self.captures = True
        self.events: list[Event] = []

    def Event(self, **_: bool) -> Event:
        self.events.append(Event(self.calls))
        return self.events[-1]

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        if not self.initialized:
            raise RuntimeError("Tried to instantiate dummy base class")
        return self.captures

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        pointed = ctypes.cast(mode, ctypes.POINTER(ctypes.c_int)).contents
        self.mode, pointed.value = pointed.value, self.mode
        self.calls.append(self.mode)
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(module, "_driver", lambda: fake)
    return fake


@pytest.mark.parametrize(
    ("expected", "call"), [(None, "synchronize"), (0, "query")], ids=["blocks", "polls"]
)
def test_a_wait_limits_the_capture_mode_to_its_thread_during_the_call(
    cuda: FakeCuda, expected: int | None, call: str
) -> None:
    Cuda(cuda).mark().wait(expected)
    assert cuda.calls == ["record", THREAD_LOCAL, call, GLOBAL]


def test_a_wait_that_polls_in_vain_finally_blocks(cuda: FakeCuda) -> None:
    marker = Cuda(cuda).mark()
    cuda.events[0].complete = False
    marker.wait(0)
    assert cuda.calls[-2:] == ["synchronize", GLOBAL]
    assert cuda.calls.count("synchronize") == 1


def test_events_are_used_again_once_their_markers_are_gone(cuda: FakeCuda) -> None:
    card = Cuda(cuda)
    markers = [card.mark() for _ in range(3)]
    for _ in range(100):
        card.mark().wait()
    assert len(cuda.events) == 4
    del markers
    assert [card.mark() for _ in range(4)]
    assert len(cuda.events) == 4


def test_torch_is_not_asked_about_captures_before_cuda_is_initialised(cuda: FakeCuda) -> None:
    assert Cuda(cuda).capturing()
    cuda.initialized = False
    assert not Cuda(cuda).capturing()

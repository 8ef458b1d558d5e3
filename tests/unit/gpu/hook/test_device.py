import ctypes
from typing import Any

import pytest

from kfext.gpu.hook import device as module
from kfext.gpu.hook.device import Cuda

GLOBAL, THREAD_LOCAL = 0, 1


class Event:
    """A CUDA event that records the calls to it."""

    def __init__(self, done: list[object]) -> None:
        self._done = done
        self.came = True

    def record(self) -> None:
        self._done.append("record")

    def synchronize(self) -> None:
        self._done.append("synchronize")

    def query(self) -> bool:
        self._done.append("query")
        return self.came


class FakeCuda:
    """`torch.cuda` and the driver, with the mode of the calling thread."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.mode = GLOBAL
        self.cuda = self
        self.initialized = self.captures = True
        self.events: list[Event] = []

    def Event(self, **_: bool) -> Event:
        self.events.append(Event(self.done))
        return self.events[-1]

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        if not self.initialized:
            raise RuntimeError("Tried to instantiate dummy base class")
        return self.captures

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        held = ctypes.cast(mode, ctypes.POINTER(ctypes.c_int)).contents
        self.mode, held.value = held.value, self.mode
        self.done.append(self.mode)
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    monkeypatch.setattr(module, "_driver", lambda: made)
    return made


@pytest.mark.parametrize(
    ("expected", "asked"), [(None, "synchronize"), (0, "query")], ids=["blocks", "polls"]
)
def test_a_wait_leaves_the_captures_of_other_threads_alone(
    cuda: FakeCuda, expected: int | None, asked: str
) -> None:
    Cuda(cuda).mark().wait(expected)
    assert cuda.done == ["record", THREAD_LOCAL, asked, GLOBAL]


def test_a_wait_that_polls_in_vain_finally_blocks(cuda: FakeCuda) -> None:
    marker = Cuda(cuda).mark()
    cuda.events[0].came = False
    marker.wait(0)
    assert cuda.done[-2:] == ["synchronize", GLOBAL]
    assert cuda.done.count("synchronize") == 1


def test_events_are_used_again_once_their_markers_are_gone(cuda: FakeCuda) -> None:
    card = Cuda(cuda)
    kept = [card.mark() for _ in range(3)]
    for _ in range(100):
        card.mark().wait()
    assert len(cuda.events) == 4
    del kept
    assert [card.mark() for _ in range(4)]
    assert len(cuda.events) == 4


def test_a_process_without_cuda_is_not_asked_whether_it_captures(cuda: FakeCuda) -> None:
    assert Cuda(cuda).capturing()
    cuda.initialized = False
    assert not Cuda(cuda).capturing()

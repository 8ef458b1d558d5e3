import ctypes
from typing import Any

import pytest

from kfext.gpu.hook import device as module
from kfext.gpu.hook.device import Cuda

GLOBAL, THREAD_LOCAL = 0, 1


class Event:
    """An event of CUDA, which writes down what was done to it."""

    def __init__(self, done: list[object]) -> None:
        self._done = done

    def record(self) -> None:
        self._done.append("record")

    def synchronize(self) -> None:
        self._done.append("synchronize")


class FakeCuda:
    """`torch.cuda` and the driver, with the mode of the calling thread."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.mode = GLOBAL
        self.cuda = self
        self.initialized = self.captures = True

    def Event(self, **_: bool) -> Event:
        return Event(self.done)

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


def test_a_wait_leaves_the_captures_of_other_threads_alone(cuda: FakeCuda) -> None:
    Cuda(cuda).mark().wait()
    assert cuda.done == ["record", THREAD_LOCAL, "synchronize", GLOBAL]


def test_a_process_without_cuda_is_not_asked_whether_it_captures(cuda: FakeCuda) -> None:
    assert Cuda(cuda).capturing()
    cuda.initialized = False
    assert not Cuda(cuda).capturing()

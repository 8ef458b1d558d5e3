"""The hook of a high-priority job: its beacon shows when PyTorch submits work to the card."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .beacon import Beacon
from .device import Device
from .learning import Learning
from .torch_calls import TorchCalls, first_parameter

_MAX_FORWARDS = 4
"""After this many forwards no backward is expected, unless one followed more forwards earlier."""
_LEARNING_STEPS, _MAX_CALLS = 5, 1000
"""The hook watches all modules for this many steps, or this many calls of outermost modules."""


class HighPriorityHook:
    """Calls the beacon around the work of the outermost modules, of backward and of the optimizers.

    While a model is new, all modules call the beacon, which takes about a microsecond each. Each
    end of work takes about a tenth of a millisecond, because a thread wakes for it. `join` makes
    the beacon when the process first submits work to the card.
    """

    def __init__(self, calls: TorchCalls, device: Device, join: Callable[[], Beacon]) -> None:
        self._calls = calls
        self._device = device
        self._join = join
        self._beacon: Beacon | None = None
        self._within: list[int] = []
        self._in_backward = False
        self._forwards, self._most_forwards = 0, _MAX_FORWARDS
        self._outermost: dict[int, weakref.ref[Any]] = {}
        self._handles: list[Any] = []
        self._learning = Learning(
            steps=_LEARNING_STEPS, most=_MAX_CALLS, learn=self._learn, settle=self._settle
        )
        calls.on_optimizers(self._begin, self._after_step, self._end)
        calls.on_replays(self._before_call, self._end)
        self._learn()

    def leave(self) -> None:
        """Drop the beacon in a fork, which makes its own if it ever uses the card."""
        self._beacon = None

    def stop(self) -> None:
        """Stop calling the beacon; the job is shown as idle."""
        self._calls.unhook(self._handles)
        if self._beacon is not None:
            self._beacon.stop()

    def _learn(self) -> None:
        self._calls.unhook(self._handles)
        self._within, self._outermost = [], {}
        self._handles = self._calls.on_modules(self._enter, self._exit)

    def _settle(self) -> None:
        """Watch only the outermost modules from now on."""
        alive = [module() for module in self._outermost.values()]
        modules = [module for module in alive if module is not None]
        if any(self._calls.is_script(module) for module in modules):
            return  # a TorchScript module takes no hook of its own, so all modules stay hooked
        self._calls.unhook(self._handles)
        for module in modules:
            self._handles.append(self._calls.before_forward(module, self._before_call))
            self._handles.append(self._calls.after_forward(module, self._after_call))

    def _enter(self, module: Any) -> None:
        self._detect_failed_backward()
        if self._in_backward:
            return  # modules that backward calls, for activation checkpointing, are not outermost
        if id(module) in self._within:
            self._within.clear()  # the last forward of the module raised an error
        if not self._within:
            self._outermost[id(module)] = weakref.ref(module)
            self._before_call()
        self._within.append(id(module))

    def _exit(self, module: Any, returned: Any) -> None:
        if self._in_backward:
            return
        while self._within and self._within.pop() != id(module):
            pass
        if not self._within:
            self._after_call(returned)

    def _before_call(self) -> None:
        """Record the call of an outermost module or a replay."""
        self._detect_failed_backward()
        self._begin()
        if self._beacon is not None:
            self._learning.record_pass()

    def _detect_failed_backward(self) -> None:
        """End a backward that has raised an error; the program may continue without a step."""
        if self._in_backward and not self._calls.in_backward():
            self._in_backward = False
            self._within.clear()

    def _begin(self) -> None:
        if self._beacon is None:
            if not self._device.ready():
                return
            self._beacon = self._join()
        self._beacon.begin()

    def _end(self) -> None:
        """Let the card become idle after its current work, unless backward continues."""
        if self._beacon is not None and not self._in_backward:
            self._beacon.end(self._device.mark())

    def _after_call(self, returned: Any) -> None:
        trains = self._calls.on_backward(returned, self._at_backward)
        self._forwards += trains
        if not trains or self._forwards > self._most_forwards:
            self._end()
        elif self._beacon is not None and not self._in_backward:
            self._beacon.pause(self._device.mark())  # more forwards, or backward, follow

    def _at_backward(self) -> None:
        self._most_forwards = max(self._most_forwards, self._forwards)
        self._forwards = 0
        self._begin()
        if not self._in_backward:
            self._in_backward = True
            self._calls.after_backward(self._after_backward)

    def _after_backward(self) -> None:
        self._in_backward = False
        self._end()

    def _after_step(self, optimizer: Any) -> None:
        if self._beacon is None:
            return
        self._learning.record_parameter(first_parameter(optimizer))
        self._forwards = 0
        self._in_backward = False  # a backward may have failed, and no module was called since
        self._within.clear()
        self._beacon.step()
        self._end()
        self._learning.record_step()

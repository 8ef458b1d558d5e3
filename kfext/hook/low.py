"""The job of low priority: the gate stands at few places of each step, found by looking at some."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from . import torch_calls as calls
from . import words
from .boundaries import choose, longest_between
from .device import Device, Marker
from .gate import Gate

_IGNORED_STEPS, _LEARNING_STEPS = 2, 5
"""At first kernels are chosen and memory is reserved; then the gate stands at every module."""
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class Low:
    """Has a training with PyTorch pass the gate before modules and when backward comes to them.

    `join` makes the gate and the page of the process, when it first gives work to the card. A place
    is FORWARD or BACKWARD and the id of a module, or OPTIMIZER and 0, where the gate always stands.
    """

    def __init__(
        self, torch: Any, device: Device, join: Callable[[], tuple[Gate, memoryview]]
    ) -> None:
        self._torch = torch
        self._device = device
        self._join = join
        self._gate: Gate | None = None
        self._left = False
        self._handles: list[Any] = []
        self._modules: dict[int, weakref.ref[Any]] = {}
        self._steps = 0
        self._passed = False
        self._laps: list[list[tuple[Any, Marker, Marker]]] = []
        calls.on_optimizers(torch, self._optimize, self._stepped)
        self._learn()

    def leave(self) -> None:
        """Do nothing from now on: this is a fork of the process that passes the gate."""
        self._left, self._gate = True, None

    @property
    def _learning(self) -> bool:
        return bool(self._laps)

    def _learn(self) -> None:
        calls.unhook(self._handles)
        self._steps, self._laps, self._modules = 0, [[]], {}
        self._handles = calls.on_modules(self._torch, self._before, self._after)

    def _settle(self, page: memoryview, wanted: float) -> None:
        """Keep the gate at few places, between which the card has one micro-step of work."""
        calls.unhook(self._handles)
        steps = [_seconds(passed) for passed in self._laps if len(passed) > 1]
        kept = choose(steps, wanted)
        longest = longest_between(steps, kept)
        page[words.LONGEST_NS] = int(longest * 1e9)
        page[words.HOOKED] = words.COARSE if longest > wanted else words.READY
        for key, module in self._modules.items():
            for side in (FORWARD, BACKWARD):
                if (side, key) in kept:
                    self._stand(side, module())
        self._laps, self._modules = [], {}

    def _stand(self, where: str, module: Any) -> None:
        """Put the gate at a place, unless the module is gone."""
        if module is None:
            return
        if where == FORWARD:
            self._handles.append(calls.before_forward(self._torch, module, self._cross))
            return

        def returned(value: Any) -> None:
            calls.on_backward(self._torch, value, self._cross)

        self._handles.append(calls.after_forward(self._torch, module, returned))

    def _before(self, module: Any) -> None:
        self._modules.setdefault(id(module), weakref.ref(module))
        self._look(FORWARD, id(module))

    def _after(self, module: Any, returned: Any) -> None:
        key = id(module)
        calls.on_backward(self._torch, returned, lambda: self._look(BACKWARD, key))

    def _optimize(self) -> None:
        if self._learning:
            self._look(OPTIMIZER, 0)
        elif self._gate is not None:
            self._gate.enter()

    def _cross(self) -> None:
        self._passed = True
        if self._gate is not None:
            self._gate.enter()

    def _look(self, where: str, key: int) -> None:
        """Pass the gate, and note what the card does between this place and the next."""
        self._passed = True
        if self._gate is None:
            if self._left or not self._device.ready():
                return
            self._gate, self._page = self._join()
            self._page[words.HOOKED] = words.WATCHING
        ended = self._device.mark()
        self._gate.enter()
        if self._learning and self._steps >= _IGNORED_STEPS:
            self._laps[-1].append(((where, key), ended, self._device.mark()))

    def _stepped(self) -> None:
        if self._gate is None:
            return
        self._gate.step()
        self._page[words.PULSE] = monotonic_ns()
        self._page[words.MEMORY] = self._device.memory()
        self._steps += 1
        if self._learning and self._steps == _IGNORED_STEPS + _LEARNING_STEPS:
            self._settle(self._page, self._gate.micro_step())
        elif self._learning and self._steps > _IGNORED_STEPS:
            self._laps.append([])
        elif not self._learning and not self._passed:
            self._learn()  # the job trains another model now
        self._passed = False


def _seconds(passed: list[tuple[Any, Marker, Marker]]) -> list[tuple[Any, float]]:
    """Return the work on the card from each place to the next; the last one has none after it."""
    passed[-1][1].wait()
    return [
        (place, ended.seconds_since(began))
        for (place, _, began), (_, ended, _) in zip(passed, passed[1:])
    ]

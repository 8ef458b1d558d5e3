"""The job of high priority: when PyTorch gives work to the card, the beacon says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import torch_calls as calls
from .beacon import Beacon
from .device import Device

_LEARNING_STEPS = 5
"""Steps in which all modules are looked at; after them only the outermost ones."""


class High:
    """Calls the beacon around what the outermost modules, backward and the optimizers do.

    While a model is new all modules call it, at a cost of about a microsecond each. `join` makes
    the beacon, when the process first gives work to the card.
    """

    def __init__(self, torch: Any, device: Device, join: Callable[[], Beacon]) -> None:
        self._torch = torch
        self._device = device
        self._join = join
        self._beacon: Beacon | None = None
        self._left = False
        self._within: list[int] = []
        self._outermost: dict[int, Any] = {}
        self._handles: list[Any] = []
        self._steps = 0
        self._passed = False
        calls.on_optimizers(torch, self._begin, self._stepped)
        self._learn()

    def leave(self) -> None:
        """Do nothing from now on: this is a fork of the process that has the beacon."""
        self._left, self._beacon = True, None

    def _learn(self) -> None:
        calls.unhook(self._handles)
        self._steps = 0
        self._handles = calls.on_modules(self._torch, self._enter, self._exit)

    def _settle(self) -> None:
        """Look at the outermost modules alone from now on."""
        calls.unhook(self._handles)
        for module in self._outermost.values():
            self._handles.append(calls.before_forward(self._torch, module, self._called))
            self._handles.append(calls.after_forward(self._torch, module, self._returned))
        self._outermost = {}

    def _enter(self, module: Any) -> None:
        if id(module) in self._within:
            self._within.clear()  # its last forward has raised
        if not self._within:
            self._outermost[id(module)] = module
            self._called()
        self._within.append(id(module))

    def _exit(self, module: Any, returned: Any) -> None:
        while self._within and self._within.pop() != id(module):
            pass
        if not self._within:
            self._returned(returned)

    def _called(self) -> None:
        self._passed = True
        self._begin()

    def _begin(self) -> None:
        if self._beacon is not None:
            self._beacon.begin()
        elif not self._left and self._device.ready():
            self._beacon = self._join()
            self._beacon.begin()

    def _returned(self, returned: Any) -> None:
        if self._beacon is not None:
            self._beacon.end()
            calls.on_backward(self._torch, returned, self._backward)

    def _backward(self) -> None:
        if self._beacon is not None:
            self._beacon.begin()
            calls.after_backward(self._torch, self._beacon.end)

    def _stepped(self) -> None:
        if self._beacon is None:
            return
        self._beacon.step()
        self._within.clear()
        self._steps += 1
        if self._steps == _LEARNING_STEPS:
            self._settle()
        elif self._steps > _LEARNING_STEPS and not self._passed:
            self._learn()  # the job trains another model now
        self._passed = False

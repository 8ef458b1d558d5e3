"""Which hook a process gets once it has imported a framework."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from .agent_connection import Link, Notice
from .beacon import Beacon
from .device import Cuda, Device
from .gate import Gate, Orders
from .high import High
from .keras_calls import Fits
from .low import Low
from .page import Page
from .start import DEVICE, HIGH, PRIORITY, SOCKET
from .switch import Switch
from .torch_calls import TorchCalls, hide_from_scripts
from .words import CALLBACK_LIST, FAILED, LAYOUT, OLD_TENSORFLOW, UNHOOKED, VERSION

_SWITCH = Switch()
_NOTICE = Notice(os.environ.get(SOCKET, ""))
_OLDEST_TENSORFLOW = (2, 6)
"""Older versions have Keras inside, without a module of its own."""


def install(name: str, framework: ModuleType) -> None:
    """Install the hook of a framework, by its name, right after the process has imported it."""
    _INSTALLS[name](framework)


def failed() -> None:
    """Tell the agent that a hook has failed."""
    _NOTICE.give(FAILED)


def _on_torch(torch: ModuleType) -> None:
    device = _device(torch)
    hide_from_scripts(torch)
    calls = TorchCalls(torch, device, _SWITCH)
    if os.environ.get(PRIORITY) == HIGH:
        _keep(High(calls, device, lambda: _join_high(device.memory)))
    else:
        _keep(Low(calls, device, lambda: _join_low(device)))


def _on_keras(keras: ModuleType) -> None:
    unheard = partial(_NOTICE.give, CALLBACK_LIST)
    _keep(Fits(keras, _SWITCH, lambda: _join_high(_unknown), unheard))


def _unknown() -> int:
    """Return 0 for an unknown amount of memory: Keras has no figure of its backend's."""
    return 0


def _on_tensorflow(tensorflow: ModuleType) -> None:
    numbers = str(getattr(tensorflow, "__version__", "")).split(".")[:2]
    if all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) < _OLDEST_TENSORFLOW:
        _NOTICE.give(OLD_TENSORFLOW)


def _keep(hooked: High | Low | Fits) -> None:
    _SWITCH.at_end(hooked.stop)
    # A worker of a DataLoader must not write to the page of the process that started it.
    os.register_at_fork(after_in_child=hooked.leave)


def _device(torch: ModuleType) -> Device:
    given = os.environ.get(DEVICE)
    if not given:
        return Cuda(torch)
    module, _, name = given.partition(":")
    made: Device = getattr(import_module(module), name)(torch)
    return made


def _page() -> Page:
    page, process = Page.make(), os.getpid()
    page.words[LAYOUT] = VERSION

    def unhook() -> None:
        if os.getpid() == process:  # a fork shares the page but has no hook of its own
            page.words[UNHOOKED] = FAILED

    _SWITCH.at_end(unhook)
    return page


def _join_high(memory: Callable[[], int]) -> Beacon:
    page = _page()
    beacon = Beacon(page.words, memory=memory, fail=_SWITCH.turn_off)
    atexit.register(beacon.stop)
    _linked(page, beacon.take)
    return beacon


def _join_low(device: Device) -> Gate:
    page, orders = _page(), Orders()
    _linked(page, orders.take)
    return Gate(page.words, orders, device)


def _linked(own: Page, take: Callable[[dict[str, Any], list[int]], None]) -> None:
    link = Link(os.environ[SOCKET], own=own, take=take)
    os.register_at_fork(after_in_child=link.leave)


_INSTALLS: dict[str, Callable[[ModuleType], None]] = {
    "torch": _on_torch,
    "keras": _on_keras,
    "tf_keras": _on_keras,
    "tensorflow": _on_tensorflow,
}
_SWITCH.at_end(failed)

"""Installs the hook for PyTorch, Keras or TensorFlow once the process has imported it."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from .agent_connection import AgentConnection, UnhookedReporter
from .beacon import Beacon
from .device import Cuda, Device
from .gate import Gate, Orders
from .high import HighPriorityHook
from .keras_calls import KerasHook
from .kill_switch import KillSwitch
from .low import LowPriorityHook
from .page import Page
from .start import DEVICE, HIGH, PRIORITY, SOCKET
from .torch_calls import TorchCalls, hide_from_scripts
from .words import CALLBACK_LIST, FAILED, LAYOUT, OLD_TENSORFLOW, UNHOOKED, VERSION

_KILL_SWITCH = KillSwitch()
_REPORTER = UnhookedReporter(os.environ.get(SOCKET, ""))
_OLDEST_TENSORFLOW = (2, 6)
"""TensorFlow before 2.6 contains Keras, so the import of `keras` cannot be hooked."""


def install(name: str, framework: ModuleType) -> None:
    """Install the hook for the framework module `name`, right after its import."""
    _INSTALLERS[name](framework)


def report_failure() -> None:
    """Tell the agent that a hook has failed."""
    _REPORTER.report(FAILED)


def _on_torch(torch: ModuleType) -> None:
    device = _device(torch)
    hide_from_scripts(torch)
    calls = TorchCalls(torch, device, _KILL_SWITCH)
    if os.environ.get(PRIORITY) == HIGH:
        _register(HighPriorityHook(calls, device, lambda: _connect_beacon(device.memory)))
    else:
        _register(LowPriorityHook(calls, device, lambda: _connect_gate(device)))


def _on_keras(keras: ModuleType) -> None:
    def report_callback_list() -> None:
        _REPORTER.report(CALLBACK_LIST)

    def connect() -> Beacon:
        # 0 means unknown, since Keras does not expose the memory of its backend.
        return _connect_beacon(lambda: 0)

    _register(KerasHook(keras, _KILL_SWITCH, connect, report_callback_list))


def _on_tensorflow(tensorflow: ModuleType) -> None:
    numbers = str(getattr(tensorflow, "__version__", "")).split(".")[:2]
    if all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) < _OLDEST_TENSORFLOW:
        _REPORTER.report(OLD_TENSORFLOW)


def _register(hook: HighPriorityHook | LowPriorityHook | KerasHook) -> None:
    """Stop the hook when the kill switch turns it off, and detach it in a fork."""
    _KILL_SWITCH.on_turn_off(hook.stop)
    # After a fork, the child must not write to the page of its parent.
    os.register_at_fork(after_in_child=hook.leave)


def _device(torch: ModuleType) -> Device:
    spec = os.environ.get(DEVICE)
    if not spec:
        return Cuda(torch)
    module, _, name = spec.partition(":")
    device: Device = getattr(import_module(module), name)(torch)
    return device


def _new_page() -> Page:
    """Return the page of this process; it shows when the hooks are turned off."""
    page, process = Page.make(), os.getpid()
    page.words[LAYOUT] = VERSION

    def show_failure() -> None:
        if os.getpid() == process:  # a fork shares the page but has no hook of its own
            page.words[UNHOOKED] = FAILED

    _KILL_SWITCH.on_turn_off(show_failure)
    return page


def _connect_beacon(memory: Callable[[], int]) -> Beacon:
    page = _new_page()
    beacon = Beacon(page.words, memory=memory, fail=_KILL_SWITCH.turn_off)
    atexit.register(beacon.stop)
    _connect(page, beacon.handle)
    return beacon


def _connect_gate(device: Device) -> Gate:
    page, orders = _new_page(), Orders()
    _connect(page, orders.handle)
    return Gate(page.words, orders, device)


def _connect(page: Page, handle: Callable[[dict[str, Any], list[int]], None]) -> None:
    connection = AgentConnection(os.environ[SOCKET], page=page, handle=handle)
    os.register_at_fork(after_in_child=connection.leave)


_INSTALLERS: dict[str, Callable[[ModuleType], None]] = {
    "torch": _on_torch,
    "keras": _on_keras,
    "tf_keras": _on_keras,
    "tensorflow": _on_tensorflow,
}
_KILL_SWITCH.on_turn_off(report_failure)

"""The cards of a node by NVML, NVIDIA's library for managing them."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pynvml

from kfext.gpu.inventory import Card, InventoryError

_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of a program, after which the card is as it was. Source: NVIDIA, "Xid Errors", and
k8s-device-plugin internal/rm/health.go."""
_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "EXCLUSIVE_PROCESS",
}
"""Those in which at most one process can use a card; NVIDIA's MPS daemon is meant for the last."""
_UNKNOWN = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_NoPermission,
)
_MIB = 2**20


class Nvml:
    """Reads them. A card that has reported an error stays out until the agent starts again."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
            self._events = pynvml.nvmlEventSetCreate()
            for handle in _handles():
                _register(handle, self._events)
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML does not start: {error}") from error
        self._errors: dict[str, str] = {}
        self._reported: dict[str, Counter[int]] = {}

    def cards(self) -> list[Card]:
        """Return the cards in the order of NVML, which is that of their bus addresses."""
        try:
            self._take_events()
            return [self._measured(self._card(handle), handle) for handle in _handles()]
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML does not answer: {error}") from error

    def _card(self, handle: Any) -> Card:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
        except pynvml.NVMLError as error:
            return Card(uuid, 0, f"its memory cannot be read: {error}")
        return Card(uuid, memory, self._errors.get(uuid) or _why_not_shared(handle))

    def _measured(self, card: Card, handle: Any) -> Card:
        """Return a card with the figures that it has, of which one that is split has few."""
        used = _figure(pynvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = _figure(pynvml.nvmlDeviceGetPowerUsage, handle)
        return replace(
            card,
            utilisation=None if used is None else used.gpu / 100,
            power=None if milliwatts is None else milliwatts / 1000,
            errors=dict(self._reported.get(card.uuid, {})),
        )

    def _take_events(self) -> None:
        """Take in the errors since the last call, without waiting for one."""
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                return
            uuid = pynvml.nvmlDeviceGetUUID(event.device)
            self._reported.setdefault(uuid, Counter())[event.eventData] += 1
            if event.eventData not in _APPLICATION_XIDS:
                self._errors[uuid] = f"it reported Xid {event.eventData}"


def _handles() -> list[Any]:
    number = pynvml.nvmlDeviceGetCount()
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(number)]


def _figure(read: Callable[[Any], Any], handle: Any) -> Any:
    """Return a figure of a card, None if it has none now."""
    try:
        return read(handle)
    except pynvml.NVMLError:
        return None


def _register(handle: Any, events: Any) -> None:
    with suppress(pynvml.NVMLError_NotSupported):  # a virtual card may not report errors
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)


def _why_not_shared(handle: Any) -> str:
    """Return what keeps a card that is well from being shared, empty if nothing does."""
    split = _known(pynvml.nvmlDeviceGetMigMode, handle)
    if split is not None and split[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        return "it is split by MIG"
    mode = _known(pynvml.nvmlDeviceGetComputeMode, handle)
    if mode in _MODES:
        return f"its compute mode is {_MODES[mode]}, not DEFAULT"
    if _known(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle):
        return "NVIDIA's MPS daemon shares it among programs"
    return ""


def _known(read: Callable[[Any], Any], handle: Any) -> Any:
    """Return what is read of a card, None if it or its driver knows nothing of that."""
    try:
        return read(handle)
    except _UNKNOWN:
        return None

"""The cards of a node: the port to them, and its adapter to NVML, NVIDIA's library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pynvml

NOT_SHOWN = "the driver does not show it"
"""Why a card cannot be shared that only kubelet, or an earlier answer of the driver, lists."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card.

    `memory`: its total memory in MiB. `trouble`: why it accepts no sharers; empty if it does.
    `utilisation`: the fraction of the driver's last sampling period in which it was busy. `power`:
    its power in watts. For both, None means unknown.
    `errors`: how often it has reported each Xid since the inventory was made.
    """

    uuid: str
    memory: int
    trouble: str = ""
    utilisation: float | None = None
    power: float | None = None
    errors: Mapping[int, int] = field(default_factory=dict)


class Inventory(Protocol):
    """The cards of a node."""

    def cards(self) -> list[Card]:
        """Return every card, in an order that does not change. Raises InventoryError."""


class InventoryError(Exception):
    """The cards cannot be read; the message has the reason."""


_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of a program, after which the card is intact. Source: NVIDIA, "Xid Errors", and
k8s-device-plugin internal/rm/health.go."""
_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "EXCLUSIVE_PROCESS",
}
"""Modes in which at most one process can use a card; NVIDIA's MPS daemon needs the last mode."""
_UNSUPPORTED = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_NoPermission,
)
_MIB = 2**20


class Nvml:
    """Reads the cards. A card that has reported an error is excluded until the agent starts again.

    A card that the driver no longer shows is excluded too, and hides no other card. A card that the
    driver has never shown has a number instead of its UUID, so the number of slots of the node does
    not change.
    """

    def __init__(self) -> None:
        self._known: dict[str, Card] = {}
        self._exclusions: dict[str, str] = {}
        self._reported: dict[str, Counter[int]] = {}
        try:
            pynvml.nvmlInit()
            self._events = pynvml.nvmlEventSetCreate()
            for index in range(pynvml.nvmlDeviceGetCount()):
                _register(index, self._events)
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML does not start: {error}") from error

    def cards(self) -> list[Card]:
        """Return the cards in the order of NVML, which follows their bus addresses."""
        try:
            unidentified = self._read_events()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML does not answer: {error}") from error
        shown = {card.uuid: card for card in map(self._card, range(count)) if card is not None}
        for uuid in self._known.keys() - shown.keys():
            self._exclusions.setdefault(uuid, unidentified or NOT_SHOWN)
        self._known |= shown
        never_shown = range(count - len(self._known))
        return [
            *(
                shown.get(uuid) or Card(uuid, card.memory, self._exclusions[uuid])
                for uuid, card in self._known.items()
            ),
            *(Card(f"unknown-{number}", 0, NOT_SHOWN) for number in never_shown),
        ]

    def _card(self, index: int) -> Card | None:
        """Return a card, or None for a card that the driver cannot identify."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError:
            return None
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
            trouble = self._exclusions.get(uuid) or _why_not_shared(handle)
        except pynvml.NVMLError as error:
            return Card(uuid, 0, f"it cannot be read: {error}")
        return self._with_measurements(Card(uuid, memory, trouble), handle)

    def _with_measurements(self, card: Card, handle: Any) -> Card:
        """Return a card with its measurements; a card that is split by MIG reports few."""
        rates = _read_or_none(pynvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = _read_or_none(pynvml.nvmlDeviceGetPowerUsage, handle)
        return replace(
            card,
            utilisation=None if rates is None else rates.gpu / 100,
            power=None if milliwatts is None else milliwatts / 1000,
            errors=dict(self._reported.get(card.uuid, {})),
        )

    def _read_events(self) -> str:
        """Record the errors since the last call, without waiting for more.

        Return the last error of a card that can no longer be identified; empty if there is none.
        """
        unidentified = ""
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except (pynvml.NVMLError_Timeout, pynvml.NVMLError_GpuIsLost):
                return unidentified
            error = f"it reported Xid {event.eventData}"
            try:
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
            except pynvml.NVMLError:
                unidentified = error
                continue
            self._reported.setdefault(uuid, Counter())[event.eventData] += 1
            if event.eventData not in _APPLICATION_XIDS:
                self._exclusions[uuid] = error


def _read_or_none(read: Callable[[Any], Any], handle: Any) -> Any:
    """Return a value of a card, or None after any error."""
    try:
        return read(handle)
    except pynvml.NVMLError:
        return None


def _register(index: int, events: Any) -> None:
    # A virtual card may not report errors, and a lost card fails at every call. The other cards can
    # still be shared.
    with suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)


def _why_not_shared(handle: Any) -> str:
    """Return the reason why a healthy card cannot be shared; empty if it can."""
    mig = _read_if_supported(pynvml.nvmlDeviceGetMigMode, handle)
    if mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        return "it is split by MIG"
    mode = _read_if_supported(pynvml.nvmlDeviceGetComputeMode, handle)
    if mode in _MODES:
        return f"its compute mode is {_MODES[mode]}, not DEFAULT"
    if _read_if_supported(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle):
        return "NVIDIA's MPS daemon shares it among programs"
    return ""


def _read_if_supported(read: Callable[[Any], Any], handle: Any) -> Any:
    """Return a value of a card; None means that the driver does not have it."""
    try:
        return read(handle)
    except _UNSUPPORTED:
        return None

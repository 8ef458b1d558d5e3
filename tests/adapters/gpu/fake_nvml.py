"""A fake of NVIDIA's library, as pynvml shows it: the functions that kfext calls, and no others."""

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeCard:
    """A card. `memory`: in bytes. None: its driver does not know the value.

    `split`: by MIG. `clients`: the number of processes on its MPS daemon. `reports`: whether it can
    report errors. `lost`: the NVML error of each call about it. `unreadable`: whether its memory
    cannot be read. `measured`: whether it has a utilisation and a power.
    """

    uuid: str
    memory: int = 16 * 2**30
    split: bool | None = False
    mode: int | None = pynvml.NVML_COMPUTEMODE_DEFAULT
    clients: int | None = 0
    reports: bool = True
    lost: int | None = None
    unreadable: bool = False
    measured: bool = True


@dataclass
class FakeNvml:
    """A driver with cards. `errors`: the UUID and the Xid of each error not yet read.

    `installed`: whether the library is installed.
    """

    present: list[FakeCard]
    errors: deque[tuple[str, int]] = field(default_factory=deque)
    installed: bool = True

    def nvmlInit(self) -> None:
        if not self.installed:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, card: FakeCard, kind: int, events: object) -> None:
        if not card.reports:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:
        assert milliseconds == 0
        if not self.errors:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        uuid, number = self.errors.popleft()
        (card,) = (card for card in self.present if card.uuid == uuid)
        return SimpleNamespace(device=card, eventData=number)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.present)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        return self._checked(self.present[index])

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:
        return self._checked(card).uuid

    def _checked(self, card: FakeCard) -> FakeCard:
        if card.lost is not None:
            raise pynvml.NVMLError(card.lost)
        return card

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:
        if card.unreadable:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return SimpleNamespace(total=card.memory)

    def nvmlDeviceGetUtilizationRates(self, card: FakeCard) -> Any:
        self._check_measured(card)
        return SimpleNamespace(gpu=75, memory=30)

    def nvmlDeviceGetPowerUsage(self, card: FakeCard) -> int:
        self._check_measured(card)
        return 412_500

    def _check_measured(self, card: FakeCard) -> None:
        if not card.measured:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> tuple[int, int]:
        if card.split is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(card.split), int(card.split)

    def nvmlDeviceGetComputeMode(self, card: FakeCard) -> int:
        if card.mode is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return card.mode

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, card: FakeCard) -> list[Any]:
        if card.clients is None:  # as drivers before 510
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return [SimpleNamespace(pid=number) for number in range(card.clients)]

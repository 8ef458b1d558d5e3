"""The simulated cards of a node; on the testbed the agent loads this module instead of NVML."""

import json
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from kfext.gpu.device.inventory import Card

LIST = "cards.json"
_REPORT = b"r"
"""The same as REPORT in `cpu_card`, which the agent cannot import."""
_TIMEOUT_SECONDS = 1.0


class CpuCards:
    """The cards in a list beside this file; a test may edit the list to report an error of a card.

    It reports the utilisation of the cards; power and error counters are not simulated.
    """

    def __init__(self, folder: Path = Path(__file__).parent) -> None:
        self._folder = folder
        self._samples: dict[str, tuple[float, float]] = {}

    def cards(self) -> list[Card]:
        listed = [Card(**card) for card in json.loads((self._folder / LIST).read_text())]
        return [replace(card, utilisation=self._utilisation(card.uuid)) for card in listed]

    def _utilisation(self, uuid: str) -> float | None:
        """Return the fraction of the time since the last call in which a card was busy."""
        before = self._samples.pop(uuid, None)
        with suppress(OSError, ValueError):
            self._samples[uuid] = monotonic(), _busy_seconds(self._folder / uuid)
        after = self._samples.get(uuid)
        if before is None or after is None:
            return None
        (began, busy_before), (now, busy) = before, after
        return min((busy - busy_before) / (now - began), 1.0)


def _busy_seconds(path: Path) -> float:
    """Return the seconds of all kernels that have ended on a card."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as card:
        card.settimeout(_TIMEOUT_SECONDS)
        card.connect(str(path))
        card.send(_REPORT)
        return sum(float(client["seconds"]) for client in json.loads(card.recv(2**16))["clients"])

"""The simulated cards of a node, in place of NVML: loaded by the agent on the testbed."""

import json
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from kfext.gpu.device.inventory import Card

LIST = "cards.json"
_REPORT = b"r"
"""As in `cpu_card`, which the agent cannot import."""
_SECONDS = 1.0


class CpuCards:
    """The cards in the list beside this file; a test may edit it to report a trouble of a card.

    Their utilisation is known; power and errors are not simulated.
    """

    def __init__(self, folder: Path = Path(__file__).parent) -> None:
        self._folder = folder
        self._counted: dict[str, tuple[float, float]] = {}

    def cards(self) -> list[Card]:
        """Return the cards that are in the list now."""
        listed = [Card(**card) for card in json.loads((self._folder / LIST).read_text())]
        return [replace(card, utilisation=self._utilisation(card.uuid)) for card in listed]

    def _utilisation(self, uuid: str) -> float | None:
        """Return the part of the time since the last call that a card worked."""
        before = self._counted.pop(uuid, None)
        with suppress(OSError, ValueError):
            self._counted[uuid] = monotonic(), _worked(self._folder / uuid)
        after = self._counted.get(uuid)
        if before is None or after is None:
            return None
        (since, had), (now, has) = before, after
        return min((has - had) / (now - since), 1.0)


def _worked(path: Path) -> float:
    """Return the seconds of all kernels that have ended on a card."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as card:
        card.settimeout(_SECONDS)
        card.connect(str(path))
        card.send(_REPORT)
        return sum(float(client["seconds"]) for client in json.loads(card.recv(2**16))["clients"])

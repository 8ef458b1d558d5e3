"""The cards of a node that its CPU plays, in place of NVML: loaded by the agent on the testbed."""

import json
from pathlib import Path

from kfext.gpu.inventory import Card

LIST = "cards.json"
_FOLDER = Path(__file__).parent


class CpuCards:
    """Those in the list beside this file; a test may edit it to give one a trouble."""

    def cards(self) -> list[Card]:
        """Return them as they are in the list now."""
        return [Card(**one) for one in json.loads((_FOLDER / LIST).read_text())]

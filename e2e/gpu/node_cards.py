"""Simulates the cards of a node.

    python3 -m e2e.gpu.node_cards --node NAME --cards 4

It stands in for NVIDIA's driver, and runs as a process of the node.
"""

import argparse
import hashlib
import json
import shutil
import threading
from pathlib import Path

from e2e.gpu import cpu_inventory
from e2e.gpu.cpu_card import CpuCard

CARDS = Path("/var/lib/kubelet/cpu-cards")
"""The folder of the sockets on the node; each node of the testbed has its own /var/lib/kubelet."""
INSIDE = "/cards"
"""The same folder in a container."""
MEMORY = 16 * 1024
"""The memory that a card reports, in MiB; it limits nothing."""


def uuids(node: str, count: int) -> list[str]:
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return [f"GPU-{digest}-{number}" for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", required=True)
    parser.add_argument("--cards", type=int, default=4)
    arguments = parser.parse_args()
    CARDS.mkdir(exist_ok=True)
    cards = uuids(arguments.node, arguments.cards)
    shutil.copy(cpu_inventory.__file__, CARDS)
    threads = [threading.Thread(target=CpuCard(CARDS / card).serve) for card in cards]
    for thread in threads:
        thread.start()
    listed = [{"uuid": card, "memory": MEMORY} for card in cards]
    (CARDS / cpu_inventory.LIST).write_text(json.dumps(listed))
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

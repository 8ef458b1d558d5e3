"""The cards of a node that its CPU plays, and the device plugin that offers them whole.

    python3 -m e2e.gpu.node_cards --node NAME --cards 4

It stands in for NVIDIA's driver and NVIDIA's device plugin, and is run as a process of the node. A
container that may use a card finds its UUID in NVIDIA_VISIBLE_DEVICES, as with NVIDIA's runtime,
and the socket of that name in the folder CARDS.
"""

import argparse
import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from e2e.gpu import cpu_inventory
from e2e.gpu.cpu_card import CpuCard
from kfext.gpu.device_plugin import Allocation, DevicePlugin, Mount
from kfext.names import NATIVE_GPU

CARDS = Path("/var/lib/kubelet/cpu-cards")
"""On the node: /var/lib/kubelet is a node's own, also on the testbed."""
INSIDE = "/cards"
MEMORY = 16 * 1024
"""MiB of a card, which nothing uses."""
_LOOK_SECONDS = 0.5


def uuids(node: str, count: int) -> list[str]:
    """Return the UUIDs of a node's cards."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return [f"GPU-{digest}-{number}" for number in range(count)]


def allocate(devices: Sequence[str]) -> Allocation:
    """Return what a container with whole cards gets."""
    env = {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(devices))}
    return Allocation(env, [Mount(str(CARDS), INSIDE)])


async def offer() -> None:
    """Offer the cards to kubelet for ever, of those in trouble as unhealthy ones."""
    plugin = DevicePlugin(NATIVE_GPU, allocate=allocate)
    await plugin.offer(_health())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await plugin.offer(_health())


def _health() -> dict[str, bool]:
    listed = json.loads((CARDS / cpu_inventory.LIST).read_text())
    return {card["uuid"]: not card.get("trouble") for card in listed}


def main() -> None:
    """Play the cards of a node."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", required=True)
    parser.add_argument("--cards", type=int, default=4)
    asked = parser.parse_args()
    CARDS.mkdir(exist_ok=True)
    cards = uuids(asked.node, asked.cards)
    shutil.copy(cpu_inventory.__file__, CARDS)
    listed = [{"uuid": card, "memory": MEMORY} for card in cards]
    (CARDS / cpu_inventory.LIST).write_text(json.dumps(listed))
    for card in cards:
        threading.Thread(target=CpuCard(CARDS / card).serve, daemon=True).start()
    asyncio.run(offer())


if __name__ == "__main__":
    main()

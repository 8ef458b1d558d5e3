"""The device plugin that offers the played cards of a node whole, as NVIDIA's does.

    python3 -m e2e.gpu.native_plugin

It is run as a process of the node once that plays its cards (e2e.gpu.node_cards). A container that
may use a card finds its UUID in NVIDIA_VISIBLE_DEVICES, as with NVIDIA's runtime, and the socket of
that name in a folder.
"""

import asyncio
import json
from collections.abc import Sequence

from e2e.gpu.cpu_inventory import LIST
from e2e.gpu.node_cards import CARDS, INSIDE
from kfext.gpu.device.kubelet import Allocation, DevicePlugin
from kfext.names import NATIVE_GPU

_LOOK_SECONDS = 0.5


def allocate(devices: Sequence[str]) -> Allocation:
    """Return what a container with whole cards gets."""
    env = {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(devices))}
    return Allocation(env, {str(CARDS): INSIDE})


async def offer() -> None:
    """Offer the cards to kubelet without end; cards in trouble are unhealthy."""
    plugin = DevicePlugin(NATIVE_GPU, allocate=allocate)
    await plugin.offer(_health())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await plugin.offer(_health())


def _health() -> dict[str, bool]:
    listed = json.loads((CARDS / LIST).read_text())
    return {card["uuid"]: not card.get("trouble") for card in listed}


if __name__ == "__main__":
    asyncio.run(offer())

"""The device plugin that offers the cards of a node whole, as NVIDIA's does.

    python3 -m e2e.gpu.native_plugin [--nvml]

It runs as a process of the node, after the process that simulates its cards (e2e.gpu.node_cards). A
container that may use a card finds its UUID in NVIDIA_VISIBLE_DEVICES, as with NVIDIA's runtime,
and the socket of that name in a folder. With `--nvml` the cards are the GPUs of this machine, and
the substitute of NVIDIA's runtime (e2e.gpu.nvidia_runtime) reads the variable.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence

from e2e.gpu.cpu_inventory import LIST
from e2e.gpu.node_cards import CARDS, INSIDE
from kfext.gpu.device.inventory import Nvml
from kfext.gpu.device.kubelet import Allocation, DevicePlugin
from kfext.names import NATIVE_GPU

_LOOK_SECONDS = 0.5
Health = dict[str, bool]
"""Whether each card is healthy, by UUID."""


def variable(devices: Sequence[str]) -> dict[str, str]:
    """Return the environment variable of a container with whole cards."""
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(devices))}


async def offer(
    allocate: Callable[[Sequence[str]], Allocation], health: Callable[[], Health]
) -> None:
    """Offer the cards to kubelet without end; a card with a trouble is unhealthy."""
    plugin = DevicePlugin(NATIVE_GPU, allocate=allocate)
    await plugin.offer(health())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await plugin.offer(health())


def _played() -> Health:
    listed = json.loads((CARDS / LIST).read_text())
    return {card["uuid"]: not card.get("trouble") for card in listed}


def main() -> None:
    """Offer the cards of this node."""
    if "--nvml" in sys.argv:
        inventory = Nvml()
        asyncio.run(
            offer(
                lambda devices: Allocation(variable(devices)),
                lambda: {card.uuid: not card.trouble for card in inventory.cards()},
            )
        )
    asyncio.run(offer(lambda devices: Allocation(variable(devices), {str(CARDS): INSIDE}), _played))


if __name__ == "__main__":
    main()

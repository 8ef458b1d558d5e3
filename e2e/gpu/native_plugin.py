"""A stand-in for NVIDIA's device plugin: it offers whole cards of a node to kubelet.

    python3 -m e2e.gpu.native_plugin [--nvml]

It runs as a process of the node, after the process that simulates its cards (e2e.gpu.node_cards). A
container finds the UUID of its card in NVIDIA_VISIBLE_DEVICES, as with NVIDIA's runtime, and the
card's socket, named by the UUID, in a folder. With `--nvml` the cards are the GPUs of this machine,
and a stand-in for NVIDIA's runtime (e2e.gpu.nvidia_runtime) reads the variable.
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

_POLL_SECONDS = 0.5
Health = dict[str, bool]
"""Whether each card is healthy, by UUID."""


def variable(devices: Sequence[str]) -> dict[str, str]:
    """Return the environment variable that gives a container these devices."""
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(devices))}


async def offer(
    allocate: Callable[[Sequence[str]], Allocation], health: Callable[[], Health]
) -> None:
    """Offer the cards to kubelet without end; `health` is polled."""
    plugin = DevicePlugin(NATIVE_GPU, allocate=allocate)
    await plugin.offer(health())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await plugin.offer(health())


def _simulated_health() -> Health:
    cards = json.loads((CARDS / LIST).read_text())
    return {card["uuid"]: not card.get("trouble") for card in cards}


def main() -> None:
    if "--nvml" in sys.argv:
        inventory = Nvml()
        asyncio.run(
            offer(
                lambda devices: Allocation(variable(devices)),
                lambda: {card.uuid: not card.trouble for card in inventory.cards()},
            )
        )
    folders = {str(CARDS): INSIDE}
    asyncio.run(offer(lambda devices: Allocation(variable(devices), folders), _simulated_health))


if __name__ == "__main__":
    main()

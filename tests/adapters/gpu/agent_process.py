"""The agent as a process that a test may kill, with a kubelet and pods of the test.

python -m tests.adapters.gpu.agent_process FOLDER
"""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from kfext.gpu.agent.agent import Agent
from kfext.gpu.agent.report import Pod
from kfext.gpu.device.inventory import Card
from kfext.gpu.device.kubelet import allocatable_devices, allocated_devices
from kfext.model.gpu import GpuShare
from kfext.names import GPU_NAMESPACE, NATIVE_GPU

NODE, CARD = "node-a", "GPU-1"
AGENT_POD = (GPU_NAMESPACE, "kfext-agent-1")
PLUGINS, RESOURCES, TERMS = "plugins", "resources.sock", "terms.json"
"""In FOLDER: kubelet's folder for plugins, its socket of pod resources, and the terms of pods."""


class OneCard:
    """An inventory of one healthy card."""

    def cards(self) -> list[Card]:
        return [Card(CARD, 16384)]


def terms_of(folder: Path, pod: Pod) -> GpuShare | None:
    content = json.loads((folder / TERMS).read_text()).get(pod[1])
    return GpuShare(**content) if content else None


async def run(folder: Path) -> None:
    agent = Agent(
        node=NODE,
        inventory=OneCard(),
        root=folder / "root",
        busybox=Path(__file__),
        allocated_devices=partial(allocated_devices, lambda: {AGENT_POD}, folder / RESOURCES),
        allocatable_devices=partial(allocatable_devices, NATIVE_GPU, folder / RESOURCES),
        terms=partial(terms_of, folder),
        uid=lambda pod: f"uid-{pod[1]}",
        plugins=folder / PLUGINS,
    )
    await agent.run()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))

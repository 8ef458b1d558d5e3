"""A node on which a test may kill the agent and the jobs, which are real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from e2e.gpu.cpu_card import report
from kfext.model.gpu import reservation_of, units_of
from kfext.names import GPU_NAMESPACE, NATIVE_GPU
from tests.adapters.gpu.agent_process import AGENT_POD, CARD, NODE, PLUGINS, RESOURCES, TERMS
from tests.adapters.gpu.fake_kubelet import RESOURCES as MESSAGES
from tests.adapters.gpu.fake_kubelet import FakeKubelet, allocate
from tests.adapters.gpu.sharer_process import BURST

SLOT, ENDPOINT = "kfext.dev/gpu-0", "kfext.dev-gpu-0.sock"
UNITS = {"high": units_of(0)[:50], "low": units_of(0)[50:80]}
Process = subprocess.Popen[bytes]


class FaultyNode:
    """A node with one card, which the CPU simulates; the job `high` has high priority, `low` low.

    `jobs`: the process of each job, by its name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._allocated = {reservation_of(NODE, 0): (GPU_NAMESPACE, NATIVE_GPU, [CARD])}
        self._terms: dict[str, dict[str, Any]] = {}
        self._sockets: dict[str, str] = {}
        self._resources: grpc.aio.Server | None = None
        self._processes: list[Process] = []
        self.kubelet = FakeKubelet(folder / PLUGINS)
        self.jobs: dict[str, Process] = {}

    async def start(self) -> None:
        (self._folder / PLUGINS).mkdir()
        self._write_terms()
        await self.kubelet.start()
        await self._serve_pod_resources()
        self._run("e2e.gpu.cpu_card", str(self._folder / "card"))
        self.start_agent()
        await until((self._folder / "card").exists)

    async def stop(self) -> None:
        for process in reversed(self._processes):  # the jobs before their card
            process.kill()
            process.wait()
        await self.kubelet.stop()
        assert self._resources is not None
        await self._resources.stop(grace=None)

    def start_agent(self) -> None:
        self.agent = self._run("tests.adapters.gpu.agent_process", str(self._folder))

    def signal_agent(self, number: signal.Signals) -> None:
        self.agent.send_signal(number)
        if number == signal.SIGKILL:
            self.agent.wait()

    async def admit(self, name: str) -> None:
        """Let kubelet allocate a pod its units, as soon as the agent has a card for the slot."""
        async with asyncio.timeout(30):
            while True:
                try:
                    async with self.kubelet.channel(ENDPOINT) as channel:
                        (result,) = (await allocate(channel, UNITS[name])).container_responses
                    break
                except grpc.aio.AioRpcError:  # the agent does not serve yet, or knows no card
                    await asyncio.sleep(0.05)
        (folder,) = (mount.host_path for mount in result.mounts if "sockets" in mount.host_path)
        self._sockets[name] = f"{folder}/agent"
        self._allocated[name] = ("team", SLOT, UNITS[name])
        self._terms[name] = {"units": 50, "high": name == "high", "min_share": 0.0}
        self._write_terms()

    def run(self, name: str) -> Process:
        """Run the process of an admitted pod."""
        arguments = name, self._sockets[name], str(self._folder / "card")
        self.jobs[name] = self._run("tests.adapters.gpu.sharer_process", *arguments)
        return self.jobs[name]

    def kill(self, name: str) -> None:
        self.jobs[name].kill()
        self.jobs[name].wait()

    def end(self, name: str) -> None:
        """Let kubelet forget a pod."""
        del self._allocated[name]

    def folders(self) -> list[str]:
        """Return the folders of sockets that the agent keeps."""
        return sorted(file.name for file in (self._folder / "root" / "sockets").iterdir())

    def agent_descriptors(self) -> int:
        """Return the number of open descriptors of the agent."""
        return len(os.listdir(f"/proc/{self.agent.pid}/fd"))

    def count(self, name: str, counter: str = "kernels") -> int:
        """Return a counter of the card, over all processes of a job."""
        clients = report(str(self._folder / "card"))["clients"]
        return sum(int(client[counter]) for client in clients if client["name"] == name)

    async def wait_for(self, name: str, *, bursts: int = 10) -> None:
        """Wait until a job has begun the kernels of this many more bursts."""
        wanted = self.count(name) + bursts * BURST
        await until(lambda: self.count(name) >= wanted)

    async def pace(self) -> float:
        """Return the kernels that `low` begins for each kernel of `high`, from now on."""
        low, high = self.count("low"), self.count("high")
        await self.wait_for("high")
        return (self.count("low") - low) / (self.count("high") - high)

    def low_kernels(self) -> tuple[int, int]:
        """Return the number of kernels of `low` that did not wait for `high`, and of all."""
        return self.count("low", "late"), self.count("low")

    def late(self, *, since: tuple[int, int] = (0, 0)) -> float:
        """Return the fraction of the kernels of `low`, since a count, that did not wait."""
        late, kernels = self.low_kernels()
        return (late - since[0]) / (kernels - since[1])

    def _write_terms(self) -> None:
        new = self._folder / "new"
        new.write_text(json.dumps(self._terms))
        new.rename(self._folder / TERMS)

    def _run(self, module: str, *arguments: str) -> Process:
        process = subprocess.Popen([sys.executable, "-m", module, *arguments])
        self._processes.append(process)
        return process

    async def _serve_pod_resources(self) -> None:
        async def list_all(_: Any, __: Any) -> Any:
            pods = [
                {
                    "name": pod,
                    "namespace": namespace,
                    "containers": [
                        {"name": "a", "devices": [{"resource_name": name, "device_ids": devices}]}
                    ],
                }
                for pod, (namespace, name, devices) in self._allocated.items()
            ]
            namespace, name = AGENT_POD
            pods.append({"name": name, "namespace": namespace})
            return MESSAGES["ListPodResourcesResponse"](pod_resources=pods)

        handler = grpc.unary_unary_rpc_method_handler(
            list_all,
            request_deserializer=MESSAGES["ListPodResourcesRequest"].FromString,
            response_serializer=MESSAGES["ListPodResourcesResponse"].SerializeToString,
        )
        server = self._resources = grpc.aio.server()
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"unix://{self._folder / RESOURCES}")
        await server.start()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)

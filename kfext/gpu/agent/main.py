"""Entry point of the node agent: it connects the node's cards, its kubelet and the API server."""

import asyncio
import os
import resource
import shutil
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import structlog

from kfext.core.admission.gpu import BUSYBOX
from kfext.errors import KfextError
from kfext.gpu.agent.agent import Agent
from kfext.gpu.agent.api_server import NodePods, SharedGpus
from kfext.gpu.agent.metrics import registry
from kfext.gpu.device.inventory import Inventory, InventoryError, Nvml
from kfext.gpu.device.kubelet import allocatable_devices, allocated_devices
from kfext.kube.client import Client
from kfext.kube.connection import find_access
from kfext.names import GPU_NAMESPACE, NATIVE_GPU
from kfext.runtime import serve_probes, stop_signal

FAKE_INVENTORY = "KFEXT_GPU_INVENTORY"
"""Variable with MODULE:CLASS of a fake inventory for tests; unset in production."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Config:
    """The arguments of the agent.

    `pod`: the name of the agent's pod, in GPU_NAMESPACE. `root`: the agent's own folder on the
    node. `cdi`: whether containers receive their card by its CDI name instead of a variable.
    """

    node: str
    pod: str
    root: Path
    cdi: bool = False
    kubeconfig: Path | None = None
    probe_port: int = 8080


async def run(config: Config) -> None:
    """Share the cards of the node until SIGTERM. Raises KfextError if it cannot continue.

    When the agent ends, jobs keep running; low-priority jobs then pace themselves.
    """
    raise_open_file_limit()
    stop = stop_signal()
    async with Client(find_access(kubeconfig=config.kubeconfig)) as client:
        pods = NodePods(client, node=config.node)
        agent = _agent(config, pods)
        shared_gpus = SharedGpus(client, node=config.node, reports=agent.reports)
        probes = await serve_probes(
            port=config.probe_port,
            live=agent.liveness_problem,
            ready=lambda: None if pods.synced.is_set() else "the node's pods are not read yet",
            registry=registry(agent.reports, agent.cards),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(pods.run())]
                await _wait_for_pods(pods, stop)
                running += map(tasks.create_task, (agent.run(), shared_gpus.run()))
                _log.info("sharing", node=config.node)
                await stop.wait()
                for task in running:
                    task.cancel()
        finally:
            await probes.cleanup()


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each process of a sharer needs up to 5.

    If containerd is a service of a recent systemd, a container starts with a soft limit of 1024.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


async def _wait_for_pods(pods: NodePods, stop: asyncio.Event) -> None:
    """Return once the node's pods have been read, or `stop` is set."""
    events = [asyncio.create_task(event.wait()) for event in (pods.synced, stop)]
    await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    for event in events:
        event.cancel()


def _agent(config: Config, pods: NodePods) -> Agent:
    busybox = shutil.which(BUSYBOX)
    if busybox is None:
        raise KfextError(f"there is no {BUSYBOX}, which the containers of jobs need")
    try:
        return Agent(
            node=config.node,
            inventory=node_inventory(),
            root=config.root,
            busybox=Path(busybox),
            allocated_devices=partial(
                allocated_devices, lambda: {(GPU_NAMESPACE, config.pod), *pods.running()}
            ),
            allocatable_devices=partial(allocatable_devices, NATIVE_GPU),
            terms=pods.terms,
            uid=pods.uid,
            cdi=config.cdi,
        )
    except InventoryError as error:
        raise KfextError(str(error)) from error


def node_inventory() -> Inventory:
    """Return the cards of this node. Raises InventoryError without a driver."""
    spec = os.environ.get(FAKE_INVENTORY)
    if not spec:
        return Nvml()
    module, _, name = spec.partition(":")
    inventory: Inventory = getattr(import_module(module), name)()
    return inventory

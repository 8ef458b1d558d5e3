"""GPU sharing on the testbed: cards that the CPU of a node plays, and kfext with its agent."""

import asyncio
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from e2e.gpu import cpu_inventory, node_cards
from e2e.gpu.cpu_card import report
from e2e.harness.install import kubectl, wait_installed
from e2e.harness.installed import component
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.realnodes import Node
from kfext.gpu.device.pod_resources import Held, held_devices
from kfext.model.gpu import resource_of
from kfext.names import AGENT, GPU_NAMESPACE, NATIVE_GPU

_OVERLAY = REPOSITORY / "e2e/gpu/overlay"
_LABEL = "kfext.dev/gpu-sharing=true"
_READY_SECONDS = 180.0
_CARDS, _PLUGIN = "cards", "native-plugin"
"""The processes of a node that play its cards and NVIDIA's device plugin."""
_SHARED_GPUS = "/apis/kfext.dev/v1alpha1/sharedgpus"

Object = dict[str, Any]


def play_cards(node: Node, count: int) -> None:
    """Have a node play so many cards and offer them to its kubelet, until the node is killed."""
    listed = _cards_folder(node) / cpu_inventory.LIST
    listed.unlink(missing_ok=True)
    _start(node, "e2e.gpu.node_cards", "--node", node.name, "--cards", str(count), name=_CARDS)
    until(listed.exists, what=f"{node.name} plays its cards")
    start_native_plugin(node)


def start_native_plugin(node: Node) -> None:
    """Have what plays NVIDIA's device plugin offer the cards of a node."""
    _start(node, "e2e.gpu.native_plugin", name=_PLUGIN)


def stop_native_plugin(bed: Testbed, node: Node) -> None:
    """End it, as if its pod were deleted."""
    bed.stop_process(node.sandbox.process(_PLUGIN))


def stop_cards(bed: Testbed, node: Node) -> None:
    """Take the cards away from a node."""
    stop_native_plugin(bed, node)
    bed.stop_process(node.sandbox.process(_CARDS))


def _start(node: Node, module: str, *arguments: str, name: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    node.sandbox.start_process(["env", f"PYTHONPATH={REPOSITORY}", *command], name=name)


def install_sharing(bed: Testbed, *nodes: Node) -> None:
    """Install kfext with GPU sharing on these nodes; return once their slots can be used."""
    for node in nodes:
        kubectl(bed, "label", "--overwrite", "node", node.name, _LABEL)
    kubectl(bed, "apply", "--server-side", "-k", str(_OVERLAY))
    wait_installed(bed)
    for node in nodes:
        wait_shared(bed, node)


def wait_shared(bed: Testbed, node: Node) -> None:
    """Return once the slots of a node can be used."""
    bed.wait_for(
        partial(_offers, bed, node.name),
        what=f"the agent of {node.name}",
        seconds=_READY_SECONDS,
    )


def uninstall_sharing(bed: Testbed, *nodes: Node) -> None:
    """Take GPU sharing away from kfext, which is then as if it had been installed without."""
    for node in nodes:
        kubectl(bed, "label", "node", node.name, f"{_LABEL.partition('=')[0]}-")
    gone = yaml.safe_dump_all(component("gpu-sharing"))
    options = ("--ignore-not-found", "--timeout=180s")
    kubectl(bed, "delete", *options, "-f", "-", given=gone)  # and with it the agents
    kubectl(bed, "delete", *options, "--all", "sharedgpus")


def slots(bed: Testbed, node: str) -> list[Object]:
    """Return the SharedGPUs of a node, by slot."""
    found = [one for one in bed.api.get(_SHARED_GPUS)["items"] if one["spec"]["node"] == node]
    return sorted(found, key=lambda one: int(one["spec"]["slot"]))


def reservations(bed: Testbed) -> list[Object]:
    """Return the pods that reserve GPUs."""
    pods = bed.api.get(f"/api/v1/namespaces/{GPU_NAMESPACE}/pods")["items"]
    return [pod for pod in pods if "kfext.dev/gpu-slot" in pod["metadata"]["labels"]]


def set_trouble(node: Node, uuid: str, trouble: str) -> None:
    """Have a card of a node report a trouble, or none if it is empty."""
    path = _cards_folder(node) / cpu_inventory.LIST
    listed = json.loads(path.read_text())
    for card in listed:
        if card["uuid"] == uuid:
            card["trouble"] = trouble
    # Whoever reads it sees one list or the other.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(listed))
    new.rename(path)


def agent_of(bed: Testbed, node: Node) -> Object:
    """Return the pod of a node's agent that is not about to end."""
    pods = bed.api.get(f"/api/v1/namespaces/{GPU_NAMESPACE}/pods")["items"]
    (found,) = (
        pod
        for pod in pods
        if pod["spec"].get("serviceAccountName") == AGENT
        and pod["spec"].get("nodeName") == node.name
        and not pod["metadata"].get("deletionTimestamp")
    )
    return dict(found)


def signal_agent(bed: Testbed, node: Node, number: signal.Signals) -> None:
    """Send a signal to the process of a node's agent."""
    uid = agent_of(bed, node)["metadata"]["uid"]
    for pid in node.pod_processes(uid, running="kfext"):
        os.kill(pid, number)


def left_over(node: Node) -> list[str]:
    """Return what the agent keeps on a node for sharers: the folders of sockets, cards given."""
    parts = [node.sandbox.folder / "kfext" / part for part in ("sockets", "cards")]
    return [str(one) for part in parts if part.is_dir() for one in part.iterdir()]


def handed_out(bed: Testbed, node: Node) -> list[Held]:
    """Return what the kubelet of a node has given to containers of what it counts by devices."""
    asker = (GPU_NAMESPACE, agent_of(bed, node)["metadata"]["name"])
    folder = os.open(_kubelet_folder(node), os.O_PATH)
    try:
        socket = Path(f"/proc/self/fd/{folder}/pod-resources/kubelet.sock")  # as below
        return asyncio.run(held_devices(lambda: {asker}, socket))
    finally:
        os.close(folder)


def counted(node: Node, uuid: str) -> dict[str, Object]:
    """Return what a card has counted of each of its clients, by name."""
    folder = os.open(_cards_folder(node), os.O_PATH)
    try:
        found = report(f"/proc/self/fd/{folder}/{uuid}")  # the whole path may be too long
    finally:
        os.close(folder)
    return {client["name"]: client for client in found["clients"]}


def late(node: Node, uuid: str, name: str) -> float:
    """Return the part of its kernels that a job began long after another had come to the card."""
    client = counted(node, uuid)[name]
    return float(client["late"]) / int(client["kernels"])


def unreserved(bed: Testbed) -> None:
    """Return once no GPU is reserved any more."""
    until(lambda: not reservations(bed), what="all cards are given back")


def _kubelet_folder(node: Node) -> Path:
    return node.sandbox.folder / "kubelet"


def _cards_folder(node: Node) -> Path:
    return _kubelet_folder(node) / node_cards.CARDS.name


def _offers(bed: Testbed, node: str) -> bool:
    """Return whether the agent reports a node's cards, and kubelet has them, whole and in parts."""
    known = slots(bed, node)
    offered = bed.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
    wanted = [NATIVE_GPU, *(resource_of(at) for at in range(len(known)))]
    return bool(known) and all(int(offered.get(name, "0")) > 0 for name in wanted)

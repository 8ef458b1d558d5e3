"""GPU sharing on the testbed: the cards of a node, mostly simulated, and kfext's agent.

A `Pair` is two jobs on one card, of high and of low priority.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from e2e.gpu import cpu_inventory, node_cards
from e2e.gpu.cpu_card import report
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.install import component, kubectl, wait_installed
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.realnodes import Node
from kfext.gpu.device.kubelet import AllocatedDevices, allocated_devices
from kfext.model.gpu import resource_of
from kfext.names import AGENT, GPU_NAMESPACE, NATIVE_GPU

OVERLAY, OVERLAY_OF_GPUS = (REPOSITORY / "e2e/gpu" / name for name in ("overlay", "overlay-nvml"))
"""The overlays for simulated cards and for GPUs."""
_LABEL = "kfext.dev/gpu-sharing=true"
_READY_SECONDS = 180.0
_CARDS, _PLUGIN = "cards", "native-plugin"
"""The processes of a node that simulate its cards and NVIDIA's device plugin."""
_SHARED_GPUS = "/apis/kfext.dev/v1alpha1/sharedgpus"

Object = dict[str, Any]
ENDLESS = 100_000
"""Steps; no case reaches the last."""
LOAD_MS = 60.0
HIGH = {"share": "0.5", "priority": "high"}
LOW = {"share": "0.3", "min_share": "0"}
STEP_KERNELS = 61
"""Kernels of a step of 20 layers: 20 forward, 40 backward, and 1 of the optimizer, 1 ms each."""
TRAINING = "dial.py"
"""A part of the command line of each process of a training."""
_NUMBERS = count(1)
"""Numbers that make the names of jobs unique, since a card counts by name."""


def simulate_cards(node: Node, count: int) -> None:
    """Simulate cards on a node and offer them to its kubelet, until the node is killed."""
    listed = _cards_folder(node) / cpu_inventory.LIST
    listed.unlink(missing_ok=True)
    _start(node, "e2e.gpu.node_cards", "--node", node.name, "--cards", str(count), name=_CARDS)
    until(listed.exists, what=f"{node.name} simulates its cards")
    start_native_plugin(node)


def start_native_plugin(node: Node) -> None:
    """Offer the cards of a node by the substitute of NVIDIA's device plugin."""
    _start(node, "e2e.gpu.native_plugin", name=_PLUGIN)


def offer_gpus(node: Node) -> None:
    """Offer the GPUs of this machine on its only node, by that substitute."""
    _start(node, "e2e.gpu.native_plugin", "--nvml", name=_PLUGIN)


def stop_native_plugin(bed: Testbed, node: Node) -> None:
    """Stop the device plugin, as if its pod were deleted."""
    bed.stop_process(node.sandbox.process(_PLUGIN))


def stop_cards(bed: Testbed, node: Node) -> None:
    """Remove the cards from a node."""
    stop_native_plugin(bed, node)
    bed.stop_process(node.sandbox.process(_CARDS))


def _start(node: Node, module: str, *arguments: str, name: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    node.sandbox.start_process(["env", f"PYTHONPATH={REPOSITORY}", *command], name=name)


def install_sharing(bed: Testbed, *nodes: Node, overlay: Path = OVERLAY) -> None:
    """Install kfext with GPU sharing on these nodes; return once their slots can be used."""
    for node in nodes:
        kubectl(bed, "label", "--overwrite", "node", node.name, _LABEL)
    kubectl(bed, "apply", "--server-side", "-k", str(overlay))
    wait_installed(bed)
    for node in nodes:
        wait_shared(bed, node)


def wait_shared(bed: Testbed, node: Node) -> None:
    """Wait until the slots of a node can be used."""
    bed.wait_for(
        partial(_offers, bed, node.name),
        what=f"the agent of {node.name}",
        seconds=_READY_SECONDS,
    )


def uninstall_sharing(bed: Testbed, *nodes: Node) -> None:
    """Remove GPU sharing from kfext, as if it had never been installed."""
    for node in nodes:
        kubectl(bed, "label", "node", node.name, f"{_LABEL.partition('=')[0]}-")
    gone = yaml.safe_dump_all(component("gpu-sharing"))
    options = ("--ignore-not-found", "--timeout=180s")
    kubectl(bed, "delete", *options, "-f", "-", given=gone)  # and with it the agents
    kubectl(bed, "delete", *options, "--all", "sharedgpus")


def slots(bed: Testbed, node: str) -> list[Object]:
    """Return the SharedGPUs of a node, by slot."""
    cards = [item for item in bed.api.get(_SHARED_GPUS)["items"] if item["spec"]["node"] == node]
    return sorted(cards, key=lambda card: int(card["spec"]["slot"]))


def reservations(bed: Testbed) -> list[Object]:
    pods = bed.api.get(f"/api/v1/namespaces/{GPU_NAMESPACE}/pods")["items"]
    return [pod for pod in pods if "kfext.dev/gpu-slot" in pod["metadata"]["labels"]]


def set_trouble(node: Node, uuid: str, trouble: str) -> None:
    """Make a card of a node report a trouble, or none if it is empty."""
    path = _cards_folder(node) / cpu_inventory.LIST
    listed = json.loads(path.read_text())
    for card in listed:
        if card["uuid"] == uuid:
            card["trouble"] = trouble
    # A reader sees either the old or the new list.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(listed))
    new.rename(path)


def agent_of(bed: Testbed, node: Node) -> Object:
    """Return the pod of a node's agent that is not being deleted."""
    pods = bed.api.get(f"/api/v1/namespaces/{GPU_NAMESPACE}/pods")["items"]
    (agent,) = (
        pod
        for pod in pods
        if pod["spec"].get("serviceAccountName") == AGENT
        and pod["spec"].get("nodeName") == node.name
        and not pod["metadata"].get("deletionTimestamp")
    )
    return dict(agent)


def signal_agent(bed: Testbed, node: Node, number: signal.Signals) -> None:
    """Send a signal to the process of a node's agent."""
    uid = agent_of(bed, node)["metadata"]["uid"]
    for pid in node.pod_processes(uid, running="kfext"):
        os.kill(pid, number)


def left_over(node: Node) -> list[str]:
    """Return the agent's files on a node for sharers: folders of sockets, and assigned cards."""
    parts = [node.sandbox.folder / "kfext" / part for part in ("sockets", "cards")]
    return [str(file) for part in parts if part.is_dir() for file in part.iterdir()]


def kubelet_allocations(bed: Testbed, node: Node) -> list[AllocatedDevices]:
    """Return the devices that the kubelet of a node has allocated to containers."""
    asker = (GPU_NAMESPACE, agent_of(bed, node)["metadata"]["name"])
    folder = os.open(_kubelet_folder(node), os.O_PATH)
    try:
        socket = Path(f"/proc/self/fd/{folder}/pod-resources/kubelet.sock")  # as below
        return asyncio.run(allocated_devices(lambda: {asker}, socket))
    finally:
        os.close(folder)


def counted(node: Node, uuid: str) -> dict[str, Object]:
    """Return the counters of a card for each of its clients, by name."""
    folder = os.open(_cards_folder(node), os.O_PATH)
    try:
        counters = report(f"/proc/self/fd/{folder}/{uuid}")  # the whole path may be too long
    finally:
        os.close(folder)
    return {client["name"]: client for client in counters["clients"]}


def late(node: Node, uuid: str, name: str) -> float:
    """Return the part of a job's kernels that should have yielded to another job; see `CpuCard`."""
    client = counted(node, uuid)[name]
    return float(client["late"]) / int(client["kernels"])


def unreserved(bed: Testbed) -> None:
    """Wait until no GPU is reserved."""
    until(lambda: not reservations(bed), what="all cards are released")


def _kubelet_folder(node: Node) -> Path:
    return node.sandbox.folder / "kubelet"


def _cards_folder(node: Node) -> Path:
    return _kubelet_folder(node) / node_cards.CARDS.name


def _offers(bed: Testbed, node: str) -> bool:
    """Return whether the agent reports a node's cards, and kubelet offers them and their shares."""
    known = slots(bed, node)
    offered = bed.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
    resources = [NATIVE_GPU, *(resource_of(at) for at in range(len(known)))]
    return bool(known) and all(int(offered.get(name, "0")) > 0 for name in resources)


@dataclass(frozen=True)
class Pair:
    """Two jobs, by name, on the card with a UUID. `before`: low's counters once both trained."""

    team: Team
    node: Node
    card: str
    high: str
    low: str
    before: Object

    def goes_on(self, name: str, *, steps: int = 10) -> None:
        """Wait until a job has begun the kernels of `steps` more steps."""
        wanted = kernels(self.node, self.card, name) + steps * STEP_KERNELS
        until(
            lambda: kernels(self.node, self.card, name) >= wanted,
            what=f"{name} trains on",
            account=self.team.said,
        )

    def pace(self) -> float:
        """Return low's kernels for each kernel of high, measured from now on."""
        before = {job: kernels(self.node, self.card, job) for job in (self.low, self.high)}
        self.goes_on(self.high)
        low, high = (kernels(self.node, self.card, job) - n for job, n in before.items())
        return low / high

    def uids(self) -> dict[str, str]:
        return {name: self.team.running(name)["metadata"]["uid"] for name in (self.high, self.low)}

    def trains_on(self, *, in_pods: dict[str, str]) -> None:
        """Check that both train on, in these pods and on the same card, and that low yields."""
        assert card_of(self.team, self.node, self.high, self.low) == self.card
        for name in in_pods:
            self.goes_on(name)
        assert self.uids() == in_pods
        assert self.late() <= 0.01

    def late(self) -> float:
        """Return the late part of low's kernels since both jobs trained for some steps.

        Before the agent has greeted low's process, the gate knows no job to yield to.
        """
        now = counted(self.node, self.card)[self.low]
        late, begun = (now[count] - self.before[count] for count in ("late", "kernels"))
        return float(late / begun)

    def kill(self, name: str) -> None:
        """Kill the training of a job within a micro-step, without a farewell to the agent."""
        uid = self.team.running(name)["metadata"]["uid"]
        pids = self.node.pod_processes(uid, running=TRAINING)
        until(
            lambda: counted(self.node, self.card)[name]["micro_steps"],
            what=f"the card has work of {name}",
            account=self.team.said,
        )
        for pid in pids:
            with suppress(ProcessLookupError):  # a worker ends with the training
                os.kill(pid, signal.SIGKILL)


def named(role: str) -> str:
    """Return a unique name of a job."""
    return f"{role}-{next(_NUMBERS)}"


def beside_high(team: Team, node: Node, *, queue: int = 0, disables: bool = False) -> Pair:
    """Train a job of high priority, and a job of low priority on its card; see `dialled`.

    A job of low priority without a hook starts only after high was timed alone on the card, because
    high is never alone later.
    """
    high, low = named("high"), named("low")
    team.submit(dialled(high, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    team.running(high)
    if disables:
        until(
            lambda: any("lossPermille" in sharer for sharer in sharers(team, node)),
            what=f"{high} is timed",
            account=team.said,
        )
    team.submit(dialled(low, LOW, steps=ENDLESS, queue=queue, disables=disables))
    team.running(low)
    card = card_of(team, node, high, low)
    pair = Pair(team, node, card, high, low, before={})
    for name in (high, low):
        pair.goes_on(name)
    return replace(pair, before=counted(node, card)[low])


def card_of(team: Team, node: Node, *jobs: str) -> str:
    """Wait until only the pods of these jobs share a card, and return it."""
    slot = until(
        lambda: slot_of(team, node, *jobs),
        what=f"{', '.join(jobs)} are shown on one card",
        account=team.said,
    )
    return str(slot["status"]["card"])


def slot_of(team: Team, node: Node, *jobs: str) -> Object | None:
    """Return the slot that the pods of these jobs share, or None."""
    pods = {f"{name}-master-0" for name in jobs}
    for slot in slots(team.bed, node.name):
        if {sharer["pod"] for sharer in sharers_of(slot)} == pods:
            return slot
    return None


def sharers_of(slot: Object) -> list[Object]:
    return list(slot["status"].get("sharers", []))


def sharers(team: Team, node: Node) -> list[Object]:
    """Return the sharers of all cards of a node."""
    return [sharer for slot in slots(team.bed, node.name) for sharer in sharers_of(slot)]


def kernels(node: Node, card: str, name: str) -> int:
    """Return the number of kernels that a job has begun on a card, 0 before its first."""
    return int(counted(node, card).get(name, {"kernels": 0})["kernels"])

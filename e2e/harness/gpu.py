"""GPU sharing on the testbed: the cards of a node, mostly simulated, and kfext's agent.

A `Pair` is a high-priority and a low-priority job on one card.
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
from e2e.harness.gpu_jobs import Team, dial_job
from e2e.harness.install import component, kubectl, wait_installed
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.realnodes import Node
from kfext.gpu.device.kubelet import AllocatedDevices, allocated_devices
from kfext.model.gpu import resource_of
from kfext.names import AGENT, GPU_NAMESPACE, NATIVE_GPU

OVERLAY, OVERLAY_OF_GPUS = (REPOSITORY / "e2e/gpu" / name for name in ("overlay", "overlay-nvml"))
"""The kustomize overlays for simulated cards and for real GPUs."""
_LABEL = "kfext.dev/gpu-sharing=true"
_READY_SECONDS = 180.0
_CARDS, _PLUGIN = "cards", "native-plugin"
"""The names of a node's processes that simulate its cards and NVIDIA's device plugin."""
_SHARED_GPUS = "/apis/kfext.dev/v1alpha1/sharedgpus"

Object = dict[str, Any]
ENDLESS = 100_000
"""A number of steps that no case reaches."""
LOAD_MS = 60.0
"""The time in each step in which the high-priority job loads data and its card is idle."""
HIGH = {"share": "0.5", "priority": "high"}
LOW = {"share": "0.3", "min_share": "0"}
STEP_KERNELS = 61
"""The kernels in a step of 20 layers: 20 forward, 40 backward, 1 for the optimizer; 1 ms each."""
TRAINING_SCRIPT = "dial.py"
"""A word of the command line of each training process."""
_NUMBERS = count(1)
"""Numbers for unique job names; they must be unique because a card keeps its counters by name."""


def simulate_cards(node: Node, count: int) -> None:
    """Simulate cards on a node and offer them to its kubelet, until the node is killed."""
    listed = _cards_folder(node) / cpu_inventory.LIST
    listed.unlink(missing_ok=True)
    _start(node, "e2e.gpu.node_cards", "--node", node.name, "--cards", str(count), name=_CARDS)
    until(listed.exists, what=f"{node.name} simulates its cards")
    start_nvidia_stand_in(node)


def start_nvidia_stand_in(node: Node) -> None:
    """Offer the cards of a node to its kubelet, through a stand-in for NVIDIA's device plugin."""
    _start(node, "e2e.gpu.native_plugin", name=_PLUGIN)


def offer_gpus(node: Node) -> None:
    """Offer this machine's GPUs on its only node, through the same stand-in."""
    _start(node, "e2e.gpu.native_plugin", "--nvml", name=_PLUGIN)


def stop_nvidia_stand_in(bed: Testbed, node: Node) -> None:
    """Stop the device plugin, as if its pod were deleted."""
    bed.stop_process(node.sandbox.process(_PLUGIN))


def stop_cards(bed: Testbed, node: Node) -> None:
    stop_nvidia_stand_in(bed, node)
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
    manifests = yaml.safe_dump_all(component("gpu-sharing"))
    options = ("--ignore-not-found", "--timeout=180s")
    kubectl(bed, "delete", *options, "-f", "-", given=manifests)  # this also deletes the agents
    kubectl(bed, "delete", *options, "--all", "sharedgpus")


def shared_gpus(bed: Testbed, node: str) -> list[Object]:
    """Return the SharedGPUs of a node, in the order of their slots."""
    items = [item for item in bed.api.get(_SHARED_GPUS)["items"] if item["spec"]["node"] == node]
    return sorted(items, key=lambda item: int(item["spec"]["slot"]))


def reservations(bed: Testbed) -> list[Object]:
    """Return the pods that reserve a GPU."""
    pods = bed.api.get(f"/api/v1/namespaces/{GPU_NAMESPACE}/pods")["items"]
    return [pod for pod in pods if "kfext.dev/gpu-slot" in pod["metadata"]["labels"]]


def set_card_error(node: Node, uuid: str, error: str) -> None:
    """Make a card of a node report an error; an empty text makes it healthy again."""
    path = _cards_folder(node) / cpu_inventory.LIST
    listed = json.loads(path.read_text())
    for card in listed:
        if card["uuid"] == uuid:
            card["trouble"] = error
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


def sharer_files(node: Node) -> list[str]:
    """Return the agent's files about sharers on a node: their socket folders and assigned cards."""
    folders = [node.sandbox.folder / "kfext" / name for name in ("sockets", "cards")]
    return [str(file) for folder in folders if folder.is_dir() for file in folder.iterdir()]


def kubelet_allocations(bed: Testbed, node: Node) -> list[AllocatedDevices]:
    """Return the devices that the kubelet of a node has allocated to containers."""
    agent = (GPU_NAMESPACE, agent_of(bed, node)["metadata"]["name"])
    folder = os.open(_kubelet_folder(node), os.O_PATH)
    try:
        socket = Path(f"/proc/self/fd/{folder}/pod-resources/kubelet.sock")  # a short path
        return asyncio.run(allocated_devices(lambda: {agent}, socket))
    finally:
        os.close(folder)


def counters_of(node: Node, uuid: str) -> dict[str, Object]:
    """Return the counters of a card by client, that is by job name."""
    folder = os.open(_cards_folder(node), os.O_PATH)
    try:
        counters = report(f"/proc/self/fd/{folder}/{uuid}")  # the whole path may be too long
    finally:
        os.close(folder)
    return {client["name"]: client for client in counters["clients"]}


def late_fraction(node: Node, uuid: str, name: str) -> float:
    """Return the fraction of a job's kernels that should have yielded (`late` of `CpuCard`)."""
    client = counters_of(node, uuid)[name]
    return float(client["late"]) / int(client["kernels"])


def wait_unreserved(bed: Testbed) -> None:
    """Wait until no GPU is reserved."""
    until(lambda: not reservations(bed), what="all cards are released")


def _kubelet_folder(node: Node) -> Path:
    return node.sandbox.folder / "kubelet"


def _cards_folder(node: Node) -> Path:
    return _kubelet_folder(node) / node_cards.CARDS.name


def _offers(bed: Testbed, node: str) -> bool:
    """Return whether the agent reports a node's cards, and kubelet offers them and their shares."""
    known = shared_gpus(bed, node)
    offered = bed.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
    resources = [NATIVE_GPU, *(resource_of(slot) for slot in range(len(known)))]
    return bool(known) and all(int(offered.get(name, "0")) > 0 for name in resources)


@dataclass(frozen=True)
class Pair:
    """The names of a high-priority and a low-priority job, and the UUID of their card.

    `before`: the card's counters of the low-priority job, read when both trained.
    """

    team: Team
    node: Node
    card: str
    high: str
    low: str
    before: Object

    def wait_for_steps(self, name: str, *, steps: int = 10) -> None:
        """Wait until a job has started the kernels of `steps` more steps."""
        wanted = kernels(self.node, self.card, name) + steps * STEP_KERNELS
        until(
            lambda: kernels(self.node, self.card, name) >= wanted,
            what=f"{name} trains {steps} more steps",
            account=self.team.messages,
        )

    def pace(self) -> float:
        """Return the low job's kernels per kernel of the high job, measured from now on."""
        before = {job: kernels(self.node, self.card, job) for job in (self.low, self.high)}
        self.wait_for_steps(self.high)
        low, high = (kernels(self.node, self.card, job) - n for job, n in before.items())
        return low / high

    def uids(self) -> dict[str, str]:
        pods = {name: self.team.wait_running(name) for name in (self.high, self.low)}
        return {name: pod["metadata"]["uid"] for name, pod in pods.items()}

    def check_still_training(self, *, in_pods: dict[str, str]) -> None:
        """Check that both still train in these pods and on the same card, and that low yields."""
        assert wait_shared_card(self.team, self.node, self.high, self.low) == self.card
        for name in in_pods:
            self.wait_for_steps(name)
        assert self.uids() == in_pods
        assert self.late_fraction() <= 0.01

    def late_fraction(self) -> float:
        """Return the late fraction of the low job's kernels since `before` was read.

        Earlier kernels do not count: until low's process has registered with the agent, its gate
        knows no job to yield to.
        """
        now = counters_of(self.node, self.card)[self.low]
        late, started = (now[key] - self.before[key] for key in ("late", "kernels"))
        return float(late / started)

    def kill(self, name: str) -> None:
        """Kill a job's training processes within a micro-step, without a message to the agent."""
        uid = self.team.wait_running(name)["metadata"]["uid"]
        pids = self.node.pod_processes(uid, running=TRAINING_SCRIPT)
        until(
            lambda: counters_of(self.node, self.card)[name]["micro_steps"],
            what=f"the card has work of {name}",
            account=self.team.messages,
        )
        for pid in pids:
            with suppress(ProcessLookupError):  # a DataLoader worker ends with its parent
                os.kill(pid, signal.SIGKILL)


def unique_name(role: str) -> str:
    """Return a unique job name that begins with its role in the case."""
    return f"{role}-{next(_NUMBERS)}"


def start_pair(
    team: Team, node: Node, *, spread: float = 0.0, queue: int = 0, unhooked: bool = False
) -> Pair:
    """Train a high-priority job, and a low-priority job on its card; see `dial_job`.

    `spread`: of the pauses of the high-priority job.

    A low-priority job without a hook starts only after high was timed alone on the card, because
    high is never alone later.
    """
    high, low = unique_name("high"), unique_name("low")
    team.submit(dial_job(high, HIGH, load_ms=LOAD_MS, steps=ENDLESS, spread=spread))
    team.wait_running(high)
    if unhooked:
        until(
            lambda: any("lossPermille" in sharer for sharer in sharers(team, node)),
            what=f"the agent has timed {high} alone",
            account=team.messages,
        )
    team.submit(dial_job(low, LOW, steps=ENDLESS, queue=queue, unhooked=unhooked))
    team.wait_running(low)
    card = wait_shared_card(team, node, high, low)
    pair = Pair(team, node, card, high, low, before={})
    for name in (high, low):
        pair.wait_for_steps(name)
    return replace(pair, before=counters_of(node, card)[low])


def wait_shared_card(team: Team, node: Node, *jobs: str) -> str:
    """Wait until the pods of these jobs, and no others, share a card; return its UUID."""
    slot = until(
        lambda: shared_gpu_of(team, node, *jobs),
        what=f"a SharedGPU shows {', '.join(jobs)} alone",
        account=team.messages,
    )
    return str(slot["status"]["card"])


def shared_gpu_of(team: Team, node: Node, *jobs: str) -> Object | None:
    """Return the SharedGPU that the pods of these jobs, and no others, share, or None."""
    pods = {f"{name}-master-0" for name in jobs}
    for slot in shared_gpus(team.bed, node.name):
        if {sharer["pod"] for sharer in sharers_of(slot)} == pods:
            return slot
    return None


def sharers_of(slot: Object) -> list[Object]:
    return list(slot["status"].get("sharers", []))


def sharers(team: Team, node: Node) -> list[Object]:
    return [sharer for slot in shared_gpus(team.bed, node.name) for sharer in sharers_of(slot)]


def kernels(node: Node, card: str, name: str) -> int:
    """Return the number of kernels that a job has started on a card."""
    return int(counters_of(node, card).get(name, {"kernels": 0})["kernels"])

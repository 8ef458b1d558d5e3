"""Small builders of nodes and cards for jobs that share GPUs."""

from collections.abc import Iterable

from kfext import names
from kfext.core.ledger import cards
from kfext.core.ledger.cards import CONTEXT, capacity
from kfext.model.gpu import UNITS, CardNeed, reservation_of, resource_of
from kfext.model.node import Node
from kfext.model.pod import Pod
from kfext.model.shared_gpu import SharedGpu
from tests.builders import JobBuilder, job

MEMORY = 16 * 1024
"""MiB of a card."""
USABLE = capacity(0, memory=MEMORY)[cards.slot_resources(0)[cards.MEMORY]]
"""MiB of a card that sharers may use."""


def memory_of(needs: Iterable[CardNeed]) -> float:
    """The MiB of a card that sharers need together, with the overhead of their processes."""
    return sum(
        USABLE * sharer.units / UNITS if sharer.memory is None else sharer.memory + CONTEXT
        for sharer in needs
    )


def plain_node(name: str, *, cards: int = 4, slots: int | None = None) -> Node:
    """A node as Kubernetes shows it: GPUs, and the units of as many slots, or of `slots`."""
    units = {resource_of(slot): UNITS for slot in range(cards if slots is None else slots)}
    amounts = {"cpu": 64_000, "memory": 2**38, "pods": 110, names.NATIVE_GPU: cards}
    return Node(name, {**amounts, **units})


def sharing_node(name: str, *, cards: int = 4, memory: int = MEMORY) -> Node:
    """The same node as in the ledger, with the resources that only kfext counts."""
    plain = plain_node(name, cards=cards)
    more = [capacity(slot, memory=memory) for slot in range(cards)]
    return Node(name, {**plain.allocatable, **{k: n for lines in more for k, n in lines.items()}})


def slot(node: str, number: int = 0, *, card: str = "", **more: object) -> SharedGpu:
    """A slot as the agent reports it; a slot with a card is reserved."""
    name = reservation_of(node, number)
    result = {"reservation": f"uid-{name}" if card else "", "card": card, "memory": MEMORY}
    return SharedGpu(node, number, **{**result, **more})  # type: ignore[arg-type]


def reservation(node: str, number: int = 0, *, phase: str = "Running", uid: str = "") -> Pod:
    """The pod that reserves a GPU for a slot."""
    name = reservation_of(node, number)
    return Pod(
        names.GPU_NAMESPACE,
        name,
        uid or f"uid-{name}",
        node_name=node,
        phase=phase,
        requests={names.NATIVE_GPU: 1, "pods": 1},
        reserves=number,
    )


def sharing(
    share: str = "0.5", *, replicas: int = 1, uid: str = "uid-1", **settings: str
) -> JobBuilder:
    """A job with workers that share GPUs; `settings`: key without `gpu-` -> value."""
    builder = job(uid=uid).worker(replicas, gpus=1).annotated(names.GPU_SHARE, share)
    for key, value in settings.items():
        builder.annotated(f"{names.DOMAIN}/gpu-{key.replace('_', '-')}", value)
    return builder

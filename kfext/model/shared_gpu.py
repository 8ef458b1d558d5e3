"""A SharedGPU: a slot of a node, as reported by the agent of the node, and messages about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.gpu import MAX_SLOTS
from kfext.model.tolerant import mapping, sequence, text

MAX_SHARERS = 100
"""The most sharers of a card: each has at least a hundredth."""
LONGEST_COARSE = 3600.0
"""The longest micro-step to show, in seconds; a longer micro-step is shown as this long."""
EVICTED_AFTER = 3
"""The strikes after which a low-priority sharer is evicted from its card."""
LONGEST_TROUBLE = 256
"""The most characters of `SharedGpu.trouble`."""
HOOK_FAILED = "HookFailed"
OLD_TENSORFLOW = "OldTensorFlow"
CALLBACK_LIST = "CallbackList"
NO_FRAMEWORK = "NoFramework"

UNHOOKED: Mapping[str, str] = {
    HOOK_FAILED: "its hook has failed, as its log says",
    OLD_TENSORFLOW: "TensorFlow is older than 2.6",
    CALLBACK_LIST: "Model.fit is given a CallbackList instead of a list",
    NO_FRAMEWORK: "none of its processes has used the GPU with PyTorch or Keras so far",
}
"""Why the activity of a pod on its card is unknown: a clause for each reason."""
INFEASIBLE_MESSAGE = "its minimum cannot be met within the loss budget of the job beside it"
"""Why a low-priority pod is held back, beside `shut_out_message` and `coarse_message`."""
_LARGEST_MEMORY = 2**32
_PERMILLE = 1000


@dataclass(frozen=True, slots=True)
class CardSharer:
    """A pod, by its uid, with a share of a card. None means that a number is unknown.

    `busy`: the thousandths of the time in which it would use the card if it were alone there.
    `loss`: the thousandths of its speed that it loses.
    `gets`: the thousandths of the time in which it used the card.
    `strikes`: how often it was shut out of the card for losses of the high-priority sharer.
    `evict`: whether it must be evicted.
    `infeasible`: whether it cannot have its minimum within the loss budget of that sharer.
    `unhooked`: why its activity is unknown, a key of `UNHOOKED`; empty if it is known.
    `coarse`: the milliseconds of its longest micro-step, or None for short micro-steps.
    """

    pod: str
    busy: int | None = None
    loss: int | None = None
    gets: int | None = None
    strikes: int = 0
    evict: bool = False
    infeasible: bool = False
    unhooked: str = ""
    coarse: int | None = None


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A slot of a node.

    `reservation`: the uid of the pod that reserves a GPU for it; empty if none does.
    `card`: the UUID of that GPU.
    `memory`: its memory in MiB; without a GPU, the memory of the smallest GPU that it may get.
    `healthy`: whether it may get sharers; `trouble`: why it may not, if the agent reports it.
    `moved`: whether its sharers use a different GPU from the reserved GPU.
    """

    node: str
    slot: int
    reservation: str = ""
    card: str = ""
    memory: int = 0
    healthy: bool = True
    trouble: str = ""
    moved: bool = False
    sharers: tuple[CardSharer, ...] = ()


def parse_shared_gpu(raw: Mapping[str, Any]) -> SharedGpu | None:
    """Return a SharedGPU from its JSON object, or None for an invalid slot. Never raises."""
    spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
    slot = spec.get("slot")
    if type(slot) is not int or not 0 <= slot < MAX_SLOTS:
        return None
    sharers = map(_sharer, map(mapping, sequence(status.get("sharers"))[:MAX_SHARERS]))
    return SharedGpu(
        node=text(spec.get("node")),
        slot=slot,
        reservation=text(status.get("reservation")),
        card=text(status.get("card")),
        memory=_number(status.get("memoryMiB"), most=_LARGEST_MEMORY) or 0,
        healthy=status.get("healthy") is not False,
        trouble=text(status.get("trouble"))[:LONGEST_TROUBLE],
        moved=status.get("moved") is True,
        sharers=tuple(sharers),
    )


def shut_out_message(strikes: int) -> str:
    """Return the clause about a pod that was shut out of its card for losses of another pod."""
    return f"shut out {strikes} of {EVICTED_AFTER} times for losses"


def coarse_message(millis: int) -> str:
    """Return the clause about a pod with micro-steps that are too long."""
    return f"it yields only after micro-steps of up to {millis} ms"


def _sharer(raw: Mapping[str, Any]) -> CardSharer:
    unhooked = text(raw.get("unhooked"))
    return CardSharer(
        pod=text(raw.get("podUID")),
        busy=_number(raw.get("busyPermille"), most=_PERMILLE),
        loss=_number(raw.get("lossPermille"), most=_PERMILLE),
        gets=_number(raw.get("harvestPermille"), most=_PERMILLE),
        strikes=_number(raw.get("strikes"), most=EVICTED_AFTER) or 0,
        evict=raw.get("evict") is True,
        infeasible=raw.get("guaranteeInfeasible") is True,
        unhooked=unhooked if unhooked in UNHOOKED else "",
        coarse=_number(raw.get("coarseMillis"), most=round(LONGEST_COARSE * 1000)),
    )


def _number(value: object, *, most: int) -> int | None:
    return value if type(value) is int and 0 <= value <= most else None

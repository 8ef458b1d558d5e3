"""The slots of this node: the card and the state of each, and the allocations of containers."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kfext.gpu.agent.pod_sockets import SOCKET, PodSockets
from kfext.gpu.agent.report import Pod, SlotState
from kfext.gpu.device.inventory import NOT_SHOWN, Card
from kfext.gpu.device.kubelet import AllocatedDevices, Allocation, RefusedError
from kfext.model.gpu import VISIBLE_DEVICES, folder_of, reservation_of, slot_of, units_of
from kfext.names import GPU_NAMESPACE, NATIVE_GPU

_MIG = "MIG-"
"""The prefix of the id of a MIG device, which is a part of a card."""


def reserved_state(card_id: str, present: Sequence[Card], *, moved: bool) -> SlotState:
    """Return the state of a slot with a card; `present`: the cards that the driver shows."""
    card = _card(card_id, present)
    return SlotState(card.memory, card.trouble, moved)


def empty_state(
    offered: Collection[str], present: Sequence[Card], *, occupied: Collection[str], moved: bool
) -> SlotState:
    """Return the state of a slot without a card.

    `offered`: the ids of the cards that kubelet offers. While they are unknown (empty), any card in
    `present` may be reserved for the slot. `occupied`: the ids of the cards of other slots.
    """
    ids = sorted(offered) or [card.uuid for card in present]
    free = [_card(card_id, present) for card_id in ids if card_id not in occupied]
    healthy = [card.memory for card in free if not card.trouble]
    trouble = free[0].trouble if free and not healthy else ""
    return SlotState(min(healthy, default=0), trouble, moved)


def _card(card_id: str, present: Sequence[Card]) -> Card:
    """Return the card with an id from kubelet; `trouble` says why a card cannot be shared."""
    uuid, replicated, _ = card_id.partition("::")
    if replicated:
        return Card(card_id, 0, "NVIDIA's device plugin allocates it to several pods at once")
    if uuid.startswith(_MIG):
        return Card(card_id, 0, "it is a part of a GPU that is split by MIG")
    by_uuid = {card.uuid: card for card in present}
    return by_uuid.get(uuid, Card(card_id, 0, NOT_SHOWN))


_HOOK, _SOCKETS = "/kfext/hook", "/kfext/socket"
"""Paths in a job's containers: the folder of the hook, and the folder with the agent's socket."""
_CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
"""The kind in the CDI specification of NVIDIA's device plugin, which lists the node's cards by
UUID. Source: k8s-device-plugin, cmd/nvidia-device-plugin."""
_MAX_ABSENT = 5
"""The folder of a pod is removed once this many answers of kubelet in a row do not list the pod. An
answer that was on its way during the allocation does not list the new pod yet."""


class Slots:
    """The card of each slot, and the units of each pod.

    `hook`: the folder with the hook's files. `card_files`: a folder on the node; for each slot with
    sharers it has a file with the UUID of their card. `cdi`: whether kubelet receives the CDI name
    of the card; otherwise the container gets a variable that NVIDIA's runtime reads.
    `cards`: the UUID of the card of each reserved slot. `sharers`: the slot and the pod of each
    folder, by its name. `reservations`: the slot of each reservation pod, by the pod's name.
    """

    def __init__(
        self,
        *,
        node: str,
        count: int,
        sockets: PodSockets,
        hook: Path,
        card_files: Path,
        cdi: bool = False,
    ) -> None:
        self.reservations = {
            (GPU_NAMESPACE, reservation_of(node, slot)): slot for slot in range(count)
        }
        self._slots = {unit: slot for slot in range(count) for unit in units_of(slot)}
        self._sockets = sockets
        self._hook = hook
        self._cdi = cdi
        self._absent = dict.fromkeys(sockets.open_all(), 0)
        self._awaited = set(self._absent)  # folders of pods that no answer has listed yet
        self._card_files = card_files
        card_files.mkdir(parents=True, exist_ok=True)
        self.cards: dict[int, str] = {}
        self.sharers: dict[str, tuple[int, Pod]] = {}

    def slot(self, folder: str) -> int:
        """Return the slot of a folder; the folder is named after a unit of the slot."""
        return self._slots[folder]

    def record(self, devices: Iterable[AllocatedDevices]) -> None:
        """Record the devices of each container; remove folders of pods that are gone."""
        self.sharers = {}
        reserved: dict[int, list[str]] = {}
        for item in devices:
            reservation = self.reservations.get((item.namespace, item.pod))
            if reservation is not None and item.resource == NATIVE_GPU:
                reserved.setdefault(reservation, []).extend(item.devices)
            elif slot_of(item.resource) is not None and item.devices:
                folder = folder_of(item.devices)
                if folder in self._slots:
                    self.sharers[folder] = (self._slots[folder], (item.namespace, item.pod))
        # A reservation has one card; with more cards the slot's card would be ambiguous.
        self.cards = {slot: cards[0] for slot, cards in reserved.items() if len(cards) == 1}
        self._remove_gone()

    def moved(self, slot: int) -> bool:
        """Return whether the sharers of a slot have a card different from the reserved card."""
        recorded, card = self._recorded_card(slot), self.cards.get(slot)
        return bool(recorded) and card is not None and card != recorded

    def allocate(self, slot: int, units: Sequence[str]) -> Allocation:
        """Return the allocation of a container with some units of a slot. Raises RefusedError."""
        card = self.cards.get(slot)
        if card is None:
            raise RefusedError(
                f"no card is reserved for slot {slot} of this node; kfext reserves a card when it "
                f"places a job there, and nothing else may request its units"
            )
        if self.moved(slot):
            raise RefusedError(f"other pods in slot {slot} have another card, which was reserved")
        self._record_card(slot, card)
        name = folder_of(units)
        folder = self._sockets.open(name)
        self._absent[name] = 0
        self._awaited.add(name)
        visible = {} if self._cdi else {VISIBLE_DEVICES: card}
        return Allocation(
            env={**visible, "KFEXT_GPU_SOCKET": f"{_SOCKETS}/{SOCKET}"},
            mounts={str(self._hook): _HOOK, str(folder): _SOCKETS},
            cdi=[f"{_CDI_KIND}={card}"] if self._cdi else [],
        )

    def _remove_gone(self) -> None:
        for folder, absent in tuple(self._absent.items()):
            if folder in self.sharers:
                self._absent[folder] = 0
            elif absent + 1 < _MAX_ABSENT:
                self._absent[folder] = absent + 1
            else:
                del self._absent[folder]
                self._sockets.remove(folder)
        # The card of a slot is forgotten with its last pod, although the folder stays for a while.
        self._awaited = {
            folder for folder in self._awaited if folder in self._absent
        } - self.sharers.keys()
        folders = self._awaited | self.sharers.keys()
        used = {self._slots[folder] for folder in folders if folder in self._slots}
        for slot in {*self._slots.values()} - used:
            (self._card_files / str(slot)).unlink(missing_ok=True)

    def _record_card(self, slot: int, card: str) -> None:
        """Record the card of the sharers of a slot. Raises RefusedError."""
        if self._recorded_card(slot) == card:
            return
        # Replaced in one step: an empty file would hide the sharers' card from the next agent.
        new_file = self._card_files / f"{slot}.new"
        try:
            new_file.write_text(card)
            new_file.replace(self._card_files / str(slot))
        except OSError as error:
            raise RefusedError(f"the card of slot {slot} cannot be recorded: {error}") from error

    def _recorded_card(self, slot: int) -> str:
        try:
            return (self._card_files / str(slot)).read_text()
        except FileNotFoundError:
            return ""

"""The slots of this node as kubelet knows them: whose each unit is, and what comes with it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kfext.agent.doors import SOCKET, Doors
from kfext.gpu.device_plugin import Allocation, Mount, RefusedError
from kfext.gpu.pod_resources import Held
from kfext.model.gpu_slots import folder_of, reservation_of, slot_of
from kfext.names import GPU_NAMESPACE, NATIVE_GPU

_HOOK, _SOCKETS = "/kfext/hook", "/kfext/socket"
"""Where a job's containers see the hook's files and the folder of their socket."""

Sharer = tuple[str, str]
"""The namespace and the name of a pod."""


class Slots:
    """Which card each slot stands for, and which pod has which units.

    `hook` is the folder with the hook's files. `cards`: the UUID of the card of each slot that is
    reserved. `sharers`: slot and pod, by the name of the pod's folder.
    """

    def __init__(self, *, node: str, count: int, doors: Doors, hook: Path) -> None:
        self._reservations = {
            (GPU_NAMESPACE, reservation_of(node, slot)): slot for slot in range(count)
        }
        self._doors = doors
        self._hook = hook
        self._folders = set(doors.open_all())
        self.cards: dict[int, str] = {}
        self.sharers: dict[str, tuple[int, Sharer]] = {}

    def take(self, held: Iterable[Held]) -> None:
        """Take in what kubelet has given to each container; folders of pods that are gone go."""
        self.cards, self.sharers = {}, {}
        for one in held:
            reserved = self._reservations.get((one.namespace, one.pod))
            if reserved is not None and one.resource == NATIVE_GPU:
                (self.cards[reserved],) = one.devices  # it asks for one card
            elif (slot := slot_of(one.resource)) is not None:
                self.sharers[folder_of(one.devices)] = (slot, (one.namespace, one.pod))
        for gone in self._folders - self.sharers.keys():
            self._doors.remove(gone)
        self._folders = set(self.sharers)

    def allocate(self, slot: int, units: Sequence[str]) -> Allocation:
        """Return what a container with some units of a slot gets. Raises RefusedError."""
        card = self.cards.get(slot)
        if card is None:
            raise RefusedError(
                f"no card is reserved for slot {slot} of this node; kfext reserves one when it "
                f"places a job there, and nothing else may ask for its units"
            )
        folder = self._doors.open(folder_of(units))
        return Allocation(
            env={
                "NVIDIA_VISIBLE_DEVICES": card,
                "KFEXT_GPU_SOCKET": f"{_SOCKETS}/{SOCKET}",
            },
            mounts=[Mount(str(self._hook), _HOOK), Mount(str(folder), _SOCKETS)],
        )

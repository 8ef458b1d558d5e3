from collections.abc import AsyncIterator
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import pytest

from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.slots import Slots
from kfext.gpu.device.kubelet import AllocatedDevices, RefusedError
from kfext.model.gpu import reservation_of, units_of

NODE, CARD = "node-a", "GPU-11"
ANSWERS = 5
"""After this many answers of kubelet without a pod, the folder of the pod is removed."""
UNITS = units_of(1)[:30]
RESERVED = AllocatedDevices(
    "kfext-gpu", reservation_of(NODE, 1), "hold", "nvidia.com/gpu", frozenset({CARD})
)
SHARES = AllocatedDevices("team", "train-worker-0", "pytorch", "kfext.dev/gpu-1", frozenset(UNITS))
WHOLE_CARD = AllocatedDevices("team", "whole", "pytorch", "nvidia.com/gpu", frozenset({"GPU-22"}))
OTHER_NODE = AllocatedDevices(
    "kfext-gpu", reservation_of("b", 0), "hold", "nvidia.com/gpu", frozenset({"GPU-33"})
)
NAMESAKE = AllocatedDevices(
    "team", reservation_of(NODE, 0), "hold", "nvidia.com/gpu", frozenset({"GPU-44"})
)


@pytest.fixture
async def sockets(tmp_path: Path) -> AsyncIterator[PodSockets]:
    result = PodSockets(tmp_path / "s", enter=lambda *_: None, leave=lambda *_: None)
    yield result
    result.close_all()


@pytest.fixture
async def slots(sockets: PodSockets, tmp_path: Path) -> Slots:
    return new_slots(sockets, tmp_path)


def new_slots(sockets: PodSockets, root: Path) -> Slots:
    hook = Path("/var/lib/kfext/hook/1")
    return Slots(node=NODE, count=4, sockets=sockets, hook=hook, card_files=root / "cards")


async def test_a_container_gets_the_card_reserved_for_it(slots: Slots, tmp_path: Path) -> None:
    slots.record([RESERVED, WHOLE_CARD])
    result = slots.allocate(1, UNITS)
    assert result.env["NVIDIA_VISIBLE_DEVICES"] == CARD
    assert result.env["KFEXT_GPU_SOCKET"] == "/kfext/socket/agent"
    assert result.mounts == {
        "/var/lib/kfext/hook/1": "/kfext/hook",
        str(tmp_path / "s/1-00"): "/kfext/socket",
    }
    assert (tmp_path / "s/1-00/agent").is_socket()


ONE_CARD = AllocatedDevices(
    "kfext-gpu", reservation_of(NODE, 0), "hold", "nvidia.com/gpu", frozenset({"GPU-5"})
)
TWO_CARDS = replace(ONE_CARD, devices=frozenset({"GPU-5", "GPU-6"}))
TWO_CONTAINERS = [replace(ONE_CARD, container=name) for name in ("a", "b")]
REFUSED: dict[str, list[AllocatedDevices]] = {
    "nothing is reserved": [],
    "the reservation is of another node": [OTHER_NODE],
    "a pod of a user has the name of a reservation": [NAMESAKE],
    "another slot is reserved": [RESERVED],
    "the reservation has two cards": [TWO_CARDS],
    "two containers of the reservation have a card each": TWO_CONTAINERS,
}


@pytest.mark.parametrize("allocated", REFUSED.values(), ids=REFUSED)
async def test_no_container_gets_units_of_a_slot_without_a_reserved_card(
    slots: Slots, allocated: list[AllocatedDevices]
) -> None:
    slots.record(allocated)
    with pytest.raises(RefusedError, match="no card is reserved for slot 0"):
        slots.allocate(0, units_of(0)[:10])


async def test_no_container_gets_units_once_the_reservation_is_gone(slots: Slots) -> None:
    slots.record([RESERVED])
    slots.record([])
    with pytest.raises(RefusedError):
        slots.allocate(1, UNITS)


async def test_a_sharer_is_the_pod_with_units_of_a_slot(slots: Slots) -> None:
    slots.record([RESERVED, SHARES])
    assert slots.sharers == {"1-00": (1, ("team", "train-worker-0"))}


async def test_a_folder_is_removed_some_time_after_its_pod(slots: Slots, tmp_path: Path) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    slots.record([RESERVED])  # kubelet does not list the container yet
    assert (tmp_path / "s/1-00/agent").exists()
    slots.record([RESERVED, SHARES])
    for _ in range(ANSWERS):
        assert (tmp_path / "s/1-00/agent").exists()
        slots.record([RESERVED])
    assert not (tmp_path / "s/1-00").exists()


async def test_a_folder_stays_for_the_next_pod_with_its_units(slots: Slots, tmp_path: Path) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    slots.record([RESERVED, SHARES])
    for _ in range(ANSWERS - 1):
        slots.record([RESERVED])  # the pod is gone
    slots.allocate(1, UNITS)
    slots.record([RESERVED])  # kubelet does not list the new pod yet
    assert (tmp_path / "s/1-00/agent").is_socket()


async def test_the_folder_of_a_pod_never_listed_is_removed(slots: Slots, tmp_path: Path) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    for _ in range(ANSWERS):
        slots.record([RESERVED])
    assert not (tmp_path / "s/1-00").exists()


async def test_the_card_of_a_slot_is_forgotten_with_its_last_pod(slots: Slots) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    other = replace(RESERVED, devices=frozenset({"GPU-99"}))
    slots.record([RESERVED, SHARES])
    slots.record([other])
    assert not slots.moved(1)


async def test_a_card_that_cannot_be_recorded_is_not_allocated_and_the_previous_record_stays(
    slots: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fail)
        slots.record([RESERVED])
        with pytest.raises(RefusedError, match="no space left"):
            slots.allocate(1, UNITS)
    slots.allocate(1, UNITS)
    slots.record([RESERVED, SHARES])
    monkeypatch.setattr(Path, "write_text", fail)
    slots.allocate(1, units_of(1)[50:])  # the same card is recorded already
    slots.record([replace(RESERVED, devices=frozenset({"GPU-99"})), SHARES])
    assert slots.moved(1)


async def test_a_new_agent_opens_the_folders_of_pods_that_run_and_removes_the_others(
    slots: Slots, sockets: PodSockets, tmp_path: Path
) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    slots.allocate(1, units_of(1)[50:])
    new = new_slots(sockets, tmp_path)
    for _ in range(ANSWERS):
        new.record([RESERVED, SHARES])
    assert (tmp_path / "s/1-00/agent").is_socket()
    assert not (tmp_path / "s/1-50").exists()


async def test_a_slot_is_refused_while_its_sharers_have_a_different_card(
    slots: Slots, sockets: PodSockets, tmp_path: Path
) -> None:
    slots.record([RESERVED])
    slots.allocate(1, UNITS)
    other = replace(RESERVED, devices=frozenset({"GPU-99"}))
    slots.record([other, SHARES])
    assert slots.moved(1)
    with pytest.raises(RefusedError, match="another card"):
        slots.allocate(1, units_of(1)[50:])
    new = new_slots(sockets, tmp_path)
    new.record([other, SHARES])
    assert new.moved(1), "a new agent knows it too"
    for _ in range(ANSWERS):
        new.record([other])
    assert not new.moved(1), "the sharers are gone"
    assert new.allocate(1, UNITS).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-99"

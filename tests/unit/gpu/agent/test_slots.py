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
UNITS = units_of(1)[:30]
RESERVED = AllocatedDevices(
    "kfext-gpu", reservation_of(NODE, 1), "hold", "nvidia.com/gpu", frozenset({CARD})
)
SHARES = AllocatedDevices("team", "train-worker-0", "pytorch", "kfext.dev/gpu-1", frozenset(UNITS))
WHOLE = AllocatedDevices("team", "whole", "pytorch", "nvidia.com/gpu", frozenset({"GPU-22"}))
OTHER_NODE = AllocatedDevices(
    "kfext-gpu", reservation_of("b", 0), "hold", "nvidia.com/gpu", frozenset({"GPU-33"})
)
NAMESAKE = AllocatedDevices(
    "team", reservation_of(NODE, 0), "hold", "nvidia.com/gpu", frozenset({"GPU-44"})
)


@pytest.fixture
async def sockets(tmp_path: Path) -> AsyncIterator[PodSockets]:
    made = PodSockets(tmp_path / "s", enter=lambda *_: None, leave=lambda *_: None)
    yield made
    made.close_all()


@pytest.fixture
async def slots(sockets: PodSockets, tmp_path: Path) -> Slots:
    return made(sockets, tmp_path)


def made(sockets: PodSockets, root: Path) -> Slots:
    hook = Path("/var/lib/kfext/hook/1")
    return Slots(node=NODE, count=4, sockets=sockets, hook=hook, card_files=root / "cards")


async def test_a_container_gets_the_card_that_is_reserved_for_its_slot(
    slots: Slots, tmp_path: Path
) -> None:
    slots.take([RESERVED, WHOLE])
    result = slots.allocate(1, UNITS)
    assert result.env["NVIDIA_VISIBLE_DEVICES"] == CARD
    assert result.env["KFEXT_GPU_SOCKET"] == "/kfext/socket/agent"
    assert result.mounts == {
        "/var/lib/kfext/hook/1": "/kfext/hook",
        str(tmp_path / "s/1-00"): "/kfext/socket",
    }
    assert (tmp_path / "s/1-00/agent").is_socket()


ONE = AllocatedDevices(
    "kfext-gpu", reservation_of(NODE, 0), "hold", "nvidia.com/gpu", frozenset({"GPU-5"})
)
TWO_CARDS = replace(ONE, devices=frozenset({"GPU-5", "GPU-6"}))
REFUSED: dict[str, list[AllocatedDevices]] = {
    "nothing is reserved": [],
    "the reservation is of another node": [OTHER_NODE],
    "a pod of a user has the name of a reservation": [NAMESAKE],
    "another slot is reserved": [RESERVED],
    "the reservation has two cards": [TWO_CARDS],
    "two of its containers have one each": [replace(ONE, container=name) for name in ("a", "b")],
}


@pytest.mark.parametrize("held", REFUSED.values(), ids=REFUSED)
async def test_no_container_runs_on_a_card_that_is_not_reserved(
    slots: Slots, held: list[AllocatedDevices]
) -> None:
    slots.take(held)
    with pytest.raises(RefusedError, match="no card is reserved for slot 0"):
        slots.allocate(0, units_of(0)[:10])


async def test_a_reservation_that_is_gone_is_forgotten(slots: Slots) -> None:
    slots.take([RESERVED])
    slots.take([])
    with pytest.raises(RefusedError):
        slots.allocate(1, UNITS)


async def test_the_pod_of_a_folder_is_known_from_kubelet(slots: Slots) -> None:
    slots.take([RESERVED, SHARES])
    assert slots.sharers == {"1-00": (1, ("team", "train-worker-0"))}


async def test_a_folder_is_removed_with_its_pod_only(slots: Slots, tmp_path: Path) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    slots.take([RESERVED])  # kubelet does not list the container yet
    assert (tmp_path / "s/1-00/agent").exists()
    slots.take([RESERVED, SHARES])
    for _ in range(ANSWERS):
        assert (tmp_path / "s/1-00/agent").exists()
        slots.take([RESERVED])
    assert not (tmp_path / "s/1-00").exists()


async def test_a_folder_stays_for_the_next_pod_that_gets_its_units(
    slots: Slots, tmp_path: Path
) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    slots.take([RESERVED, SHARES])
    for _ in range(ANSWERS - 1):
        slots.take([RESERVED])  # the pod is gone
    slots.allocate(1, UNITS)
    slots.take([RESERVED])  # kubelet does not list the new pod yet
    assert (tmp_path / "s/1-00/agent").is_socket()


async def test_an_unlisted_pod_leaves_no_folder(slots: Slots, tmp_path: Path) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    for _ in range(ANSWERS):
        slots.take([RESERVED])
    assert not (tmp_path / "s/1-00").exists()


async def test_the_card_of_a_slot_is_forgotten_with_its_last_pod(slots: Slots) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    other = replace(RESERVED, devices=frozenset({"GPU-99"}))
    slots.take([RESERVED, SHARES])
    slots.take([other])
    assert not slots.moved(1)


async def test_a_card_that_cannot_be_recorded_is_not_allocated_and_the_previous_card_stays_known(
    slots: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fails)
        slots.take([RESERVED])
        with pytest.raises(RefusedError, match="no space left"):
            slots.allocate(1, UNITS)
    slots.allocate(1, UNITS)
    slots.take([RESERVED, SHARES])
    monkeypatch.setattr(Path, "write_text", fails)
    slots.allocate(1, units_of(1)[50:])  # the same card is recorded already
    slots.take([replace(RESERVED, devices=frozenset({"GPU-99"})), SHARES])
    assert slots.moved(1)


async def test_a_new_agent_opens_the_folders_of_pods_that_run_and_removes_the_others(
    slots: Slots, sockets: PodSockets, tmp_path: Path
) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    slots.allocate(1, units_of(1)[50:])
    again = made(sockets, tmp_path)
    for _ in range(ANSWERS):
        again.take([RESERVED, SHARES])
    assert (tmp_path / "s/1-00/agent").is_socket()
    assert not (tmp_path / "s/1-50").exists()


async def test_sharers_stay_with_their_card(
    slots: Slots, sockets: PodSockets, tmp_path: Path
) -> None:
    slots.take([RESERVED])
    slots.allocate(1, UNITS)
    other = replace(RESERVED, devices=frozenset({"GPU-99"}))
    slots.take([other, SHARES])
    assert slots.moved(1)
    with pytest.raises(RefusedError, match="another card"):
        slots.allocate(1, units_of(1)[50:])
    after = made(sockets, tmp_path)
    after.take([other, SHARES])
    assert after.moved(1), "a new agent knows it too"
    for _ in range(ANSWERS):
        after.take([other])
    assert not after.moved(1), "they are gone"
    assert after.allocate(1, UNITS).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-99"

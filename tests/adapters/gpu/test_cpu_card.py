import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from e2e.gpu.cpu_card import KERNEL, MARKER, CpuCard


class ClientsOnCard:
    """A simulated card with its clients; the test sets its clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._card = CpuCard(path)
        self._clients: dict[str, socket.socket] = {}

    def launch(
        self,
        name: str,
        *,
        at: float,
        kernels: int,
        seconds: float = 0.1,
        marked: float | None = None,
    ) -> None:
        """Let a client launch kernels, and then set a marker at the time `marked`, by default `at`.

        `seconds`: the length of each kernel.
        """
        if name not in self._clients:
            self._clients[name] = client(self._path, name)
            self._clients[name].setblocking(False)
            self._card._peers.append(self._card._listening.accept()[0])
        for _ in range(kernels):
            self._clients[name].send(KERNEL.pack(b"k", seconds, at))
        self._clients[name].send(MARKER.pack(b"m", 1, at if marked is None else marked))

    def run_until(self, now: float) -> None:
        """Let the card read all messages, and run until the time `now`."""
        for peer in tuple(self._card._peers):
            self._card._hear(peer)
        self._card._advance(now)

    def reached(self, name: str) -> float | None:
        """Return when a client's marker was reached, or None before that."""
        try:
            return float(MARKER.unpack(self._clients[name].recv(64))[2])
        except BlockingIOError:
            return None

    def counters(self, name: str, *counters: str) -> list[float]:
        """Return some of the card's counters of a client."""
        (result,) = (entry for entry in self._card._clients.values() if entry.name == name)
        return [getattr(result, counter) for counter in counters]

    def names(self) -> list[str]:
        """Return the names of its clients."""
        return list(self._clients)

    def kill(self, name: str) -> None:
        """End the connection of a client."""
        self._clients.pop(name).close()

    def close(self) -> None:
        """End the connections of all clients."""
        for name in tuple(self._clients):
            self.kill(name)


def client(path: Path, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(20)
    peer.connect(str(path))
    peer.send(name.encode())
    return peer


@pytest.fixture
def card(tmp_path: Path) -> Iterator[ClientsOnCard]:
    tested = ClientsOnCard(tmp_path / "card")
    yield tested
    tested.close()


def test_kernels_end_at_the_same_time_however_late_the_card_runs(card: ClientsOnCard) -> None:
    card.launch("only", at=10.0, kernels=20)
    card.run_until(11.95)
    assert card.reached("only") is None
    card.run_until(60.0)
    assert card.reached("only") == pytest.approx(12.0)
    assert card.counters("only", "seconds") == pytest.approx([2.0])


def test_a_marker_is_not_reached_before_it_is_set(card: ClientsOnCard) -> None:
    card.launch("only", at=10.0, kernels=1, marked=15.0)
    card.run_until(20.0)
    assert card.reached("only") == 15.0
    card.launch("only", at=17.0, kernels=0)
    card.run_until(20.0)
    assert card.reached("only") == 17.0


def test_clients_take_turns_kernel_by_kernel(card: ClientsOnCard) -> None:
    card.launch("first", at=10.0, kernels=3)
    card.launch("second", at=10.0, kernels=1)
    card.run_until(20.0)
    assert card.reached("second") == pytest.approx(10.2)
    assert card.reached("first") == pytest.approx(10.4)


def test_the_card_counts_kernels_begun_beside_another_client(card: ClientsOnCard) -> None:
    card.launch("high", at=10.0, kernels=2, seconds=0.04)
    card.launch("low", at=10.001, kernels=3, seconds=0.001)
    card.run_until(20.0)
    # One begins between the two kernels of the other client, and two after them.
    assert card.counters("low", "kernels", "beside") == [3, 1]
    assert card.counters("high", "kernels", "beside") == [2, 1]


@pytest.mark.parametrize(
    ("marked", "launched", "late"),
    [
        pytest.param(9.9, 10.15, 0, id="its marker is before that work, and the CPU delayed it"),
        pytest.param(10.05, 10.15, 2, id="its marker is after the start of that work"),
        pytest.param(10.05, 10.35, 0, id="that work ends before the micro-step"),
        pytest.param(None, 10.15, 2, id="it sets no marker, as a job without a gate"),
    ],
)
def test_a_micro_step_is_late_if_it_did_not_wait_for_the_work_of_the_other_client(
    card: ClientsOnCard, marked: float | None, launched: float, late: int
) -> None:
    card.launch("high", at=10.0, kernels=3, seconds=0.1)
    if marked is not None:
        card.launch("low", at=marked, kernels=0)
    card.launch("low", at=launched, kernels=2, seconds=0.2)
    card.run_until(20.0)
    assert card.counters("low", "kernels", "late") == [2, late]


def test_the_card_counts_the_outstanding_micro_steps_of_a_client(card: ClientsOnCard) -> None:
    for number in range(3):
        card.launch("gated", at=10.0 + 0.4 * number, kernels=4, seconds=0.1)
        card.run_until(
            10.3 + 0.4 * number
        )  # the last kernel of each still runs when the next comes
    card.launch("native", at=11.0, kernels=60)
    for _ in range(3):
        card.launch("unbound", at=11.0, kernels=1)
    card.launch("unbound", at=11.0, kernels=0)
    card.run_until(60.0)
    card.launch("unbound", at=70.0, kernels=1)
    card.run_until(80.0)
    counted = {name: card.counters(name, "outstanding", "micro_steps") for name in card.names()}
    assert counted == {"gated": [2, 0], "native": [1, 0], "unbound": [3, 0]}


def test_a_client_killed_in_a_kernel_does_not_block_other_clients(card: ClientsOnCard) -> None:
    now = monotonic()
    card.launch("killed", at=now, kernels=1, seconds=3600.0)
    card.launch("other", at=now, kernels=1)
    card.run_until(now + 1)
    assert card.reached("other") is None
    card.kill("killed")
    card.run_until(now + 600)
    assert card.reached("other") is not None

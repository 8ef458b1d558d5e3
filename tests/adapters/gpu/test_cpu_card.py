import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from e2e.gpu.cpu_card import KERNEL, MARKER, CpuCard


class Played:
    """A card with its clients; the test sets its clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._card = CpuCard(path)
        self._clients: dict[str, socket.socket] = {}

    def give(
        self,
        name: str,
        *,
        at: float,
        kernels: int,
        seconds: float = 0.1,
        marked: float | None = None,
    ) -> None:
        """Let a client launch kernels on the card, and then set a marker, perhaps later."""
        if name not in self._clients:
            self._clients[name] = client(self._path, name)
            self._clients[name].setblocking(False)
            self._card._peers.append(self._card._listening.accept()[0])
        for _ in range(kernels):
            self._clients[name].send(KERNEL.pack(b"k", seconds, at))
        self._clients[name].send(MARKER.pack(b"m", 1, at if marked is None else marked))

    def until(self, now: float) -> None:
        """Let the card read all messages, and run until then."""
        for peer in tuple(self._card._peers):
            self._card._hear(peer)
        self._card._advance(now)

    def reached(self, name: str) -> float | None:
        """Return when a client's marker was reached, or None before that."""
        try:
            return float(MARKER.unpack(self._clients[name].recv(64))[2])
        except BlockingIOError:
            return None

    def counted(self, name: str, *what: str) -> list[float]:
        """Return the card's count for a client."""
        (result,) = (entry for entry in self._card._clients.values() if entry.name == name)
        return [getattr(result, figure) for figure in what]

    def names(self) -> list[str]:
        """Return the names of its clients."""
        return list(self._clients)

    def kill(self, name: str) -> None:
        """End a client."""
        self._clients.pop(name).close()

    def close(self) -> None:
        """End all of them."""
        for name in tuple(self._clients):
            self.kill(name)


def client(path: Path, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(20)
    peer.connect(str(path))
    peer.send(name.encode())
    return peer


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path / "card")
    yield played
    played.close()


def test_kernels_take_their_time_however_late_the_card_gets_to_run(card: Played) -> None:
    card.give("only", at=10.0, kernels=20)
    card.until(11.95)
    assert card.reached("only") is None
    card.until(60.0)
    assert card.reached("only") == pytest.approx(12.0)
    assert card.counted("only", "seconds") == pytest.approx([2.0])


def test_a_marker_is_not_reached_before_it_is_set(card: Played) -> None:
    card.give("only", at=10.0, kernels=1, marked=15.0)
    card.until(20.0)
    assert card.reached("only") == 15.0
    card.give("only", at=17.0, kernels=0)
    card.until(20.0)
    assert card.reached("only") == 17.0


def test_clients_take_turns_kernel_by_kernel(card: Played) -> None:
    card.give("first", at=10.0, kernels=3)
    card.give("second", at=10.0, kernels=1)
    card.until(20.0)
    assert card.reached("second") == pytest.approx(10.2)
    assert card.reached("first") == pytest.approx(10.4)


def test_the_card_counts_kernels_begun_beside_another_client(card: Played) -> None:
    card.give("high", at=10.0, kernels=2, seconds=0.04)
    card.give("low", at=10.001, kernels=3, seconds=0.001)
    card.until(20.0)
    # One begins between the two of the other client, and two when the other has gone.
    assert card.counted("low", "kernels", "beside") == [3, 1]
    assert card.counted("high", "kernels", "beside") == [2, 1]


@pytest.mark.parametrize(
    ("came", "given", "late"),
    [
        pytest.param(9.9, 10.15, 0, id="it came before the other, and the CPU delayed it"),
        pytest.param(10.05, 10.15, 2, id="the other has had work since before it came"),
        pytest.param(10.05, 10.35, 0, id="the present work has ended meanwhile"),
        pytest.param(None, 10.15, 2, id="it sets no marker, as a job without a gate"),
    ],
)
def test_a_micro_step_is_late_if_it_did_not_wait_for_present_work(
    card: Played, came: float | None, given: float, late: int
) -> None:
    card.give("high", at=10.0, kernels=3, seconds=0.1)
    if came is not None:
        card.give("low", at=came, kernels=0)
    card.give("low", at=given, kernels=2, seconds=0.2)
    card.until(20.0)
    assert card.counted("low", "kernels", "late") == [2, late]


def test_the_card_counts_the_micro_steps_of_a_client_on_it_at_a_time(
    card: Played,
) -> None:
    for number in range(3):
        card.give("gated", at=10.0 + 0.4 * number, kernels=4, seconds=0.1)
        card.until(10.3 + 0.4 * number)  # the last kernel of each still runs when the next comes
    card.give("native", at=11.0, kernels=60)
    for _ in range(3):
        card.give("unbound", at=11.0, kernels=1)
    card.give("unbound", at=11.0, kernels=0)
    card.until(60.0)
    card.give("unbound", at=70.0, kernels=1)
    card.until(80.0)
    counted = {name: card.counted(name, "outstanding", "micro_steps") for name in card.names()}
    assert counted == {"gated": [2, 0], "native": [1, 0], "unbound": [3, 0]}


def test_a_client_killed_within_a_kernel_does_not_block_the_card_for_others(card: Played) -> None:
    now = monotonic()
    card.give("killed", at=now, kernels=1, seconds=3600.0)
    card.give("other", at=now, kernels=1)
    card.until(now + 1)
    assert card.reached("other") is None
    card.kill("killed")
    card.until(now + 600)
    assert card.reached("other") is not None

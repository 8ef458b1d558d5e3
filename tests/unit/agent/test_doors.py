import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kfext.agent.doors import Doors
from kfext.agent.process import Process
from kfext.hook import words
from kfext.hook.link import Link, send
from kfext.hook.page import Page


class House:
    """Doors, and what came and went through them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inside: dict[int, tuple[str, Process]] = {}
        self._changed = asyncio.Event()
        self.doors = Doors(root, enter=self._enter, leave=self._leave)

    def _enter(self, name: str, process: Process) -> None:
        self.inside[process.number] = (name, process)
        self._changed.set()

    def _leave(self, name: str, number: int) -> None:
        came, _ = self.inside.pop(number)
        assert came == name
        self._changed.set()

    async def until(self, condition: Callable[["House"], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path / "s")
    yield made
    for name in ("a", "b"):
        made.doors.remove(name)
    await made.until(lambda one: not one.inside)


def connect(house: House, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(house.root / name / "agent"))
    peer.settimeout(10)
    return peer


def page() -> Page:
    made = Page.make()
    made.words[words.LAYOUT] = words.VERSION
    return made


def greet(peer: socket.socket) -> None:
    own = page()
    assert own.descriptor is not None
    send(peer, {"role": "low", "pid": 1}, [own.descriptor])


async def test_a_process_comes_through_the_folder_of_its_pod_and_goes(house: House) -> None:
    house.doors.open("a")
    house.doors.open("b")
    peer = connect(house, "b")
    greet(peer)
    await house.until(lambda one: len(one.inside) == 1)
    ((name, _),) = house.inside.values()
    assert name == "b"
    peer.close()
    await house.until(lambda one: not one.inside)


async def test_a_hook_finds_the_next_agent_in_the_same_folder(house: House) -> None:
    house.doors.open("a")
    Link(str(house.root / "a/agent"), own=page(), take=lambda *_: None)
    await house.until(lambda one: len(one.inside) == 1)
    house.doors.close("a")
    await house.until(lambda one: not one.inside)
    assert house.doors.open_all() == ["a"]
    await house.until(lambda one: len(one.inside) == 1)


def without_a_page(peer: socket.socket) -> None:
    send(peer, {"role": "low"}, [])


def with_two_pages(peer: socket.socket) -> None:
    reading, writing = os.pipe()
    send(peer, {"role": "low"}, [reading, writing])


def with_no_page(peer: socket.socket) -> None:
    with open(os.devnull, "rb") as file:
        send(peer, {"role": "low"}, [file.fileno()])


def with_a_page_that_could_be_cut_off(peer: socket.socket) -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    send(peer, {"role": "low"}, [descriptor])


def with_noise(peer: socket.socket) -> None:
    peer.send(b"\xff" * 10_000)


GREETINGS = {
    "without a page": without_a_page,
    "with two": with_two_pages,
    "with something else": with_no_page,
    "with a page that could be cut off": with_a_page_that_could_be_cut_off,
    "with noise": with_noise,
}


@pytest.mark.parametrize("how", GREETINGS.values(), ids=GREETINGS)
async def test_whoever_greets_otherwise_is_shown_the_door(
    house: House, how: Callable[[socket.socket], None]
) -> None:
    house.doors.open("a")
    before = len(os.listdir("/proc/self/fd"))
    peer = connect(house, "a")
    how(peer)
    assert await asyncio.to_thread(peer.recv, 8) == b""
    assert not house.inside
    peer.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # what the test itself has opened


async def test_no_pod_has_more_than_sixteen_processes(house: House) -> None:
    house.doors.open("a")
    peers = [connect(house, "a") for _ in range(16)]
    for one in peers:
        greet(one)
    await house.until(lambda one: len(one.inside) == 16)
    extra = connect(house, "a")
    assert await asyncio.to_thread(extra.recv, 8) == b""
    assert len(house.inside) == 16
    for one in peers:
        one.close()
    await house.until(lambda one: not one.inside)


async def test_a_process_that_reads_nothing_is_cut_off_instead_of_waited_for(house: House) -> None:
    house.doors.open("a")
    peer = connect(house, "a")
    greet(peer)
    await house.until(lambda one: len(one.inside) == 1)
    ((_, process),) = house.inside.values()
    for _ in range(100_000):
        process.send_bells([])
        if not house.inside:
            break
        await asyncio.sleep(0)
    await house.until(lambda one: not one.inside)


async def test_the_folder_of_a_pod_that_is_gone_is_removed(house: House) -> None:
    folder = house.doors.open("a")
    house.doors.remove("a")
    assert not folder.exists()

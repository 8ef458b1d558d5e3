import asyncio
import threading

import pytest

from kfext.gpu.agent import doors
from kfext.gpu.hook.agent_connection import Link
from tests.unit.gpu.agent.house import House, connect, greet, page


async def test_a_process_comes_through_the_folder_of_its_pod_and_goes(house: House) -> None:
    house.doors.open("a")
    house.doors.open("b")
    peer = connect(house, "b")
    greet(peer)
    await house.until(lambda watched: len(watched.inside) == 1)
    ((name, _),) = house.inside.values()
    assert name == "b"
    peer.close()
    await house.until(lambda watched: not watched.inside)


async def test_a_hook_finds_the_next_agent_in_the_same_folder(house: House) -> None:
    house.doors.open("a")
    Link(str(house.root / "a/agent"), own=page(), take=lambda *_: None)
    await house.until(lambda watched: len(watched.inside) == 1)
    house.doors.close("a")
    await house.until(lambda watched: not watched.inside)
    assert house.doors.open_all() == ["a"]
    await house.until(lambda watched: len(watched.inside) == 1)


async def test_no_pod_has_more_than_sixteen_processes(house: House) -> None:
    house.doors.open("a")
    peers = [connect(house, "a") for _ in range(16)]
    for peer in peers:
        greet(peer)
    await house.until(lambda watched: len(watched.inside) == 16)
    before = set(house.inside)
    extra = connect(house, "a")
    greet(extra)
    peers.pop().close()
    await house.until(lambda watched: len(watched.inside) == 16 and set(watched.inside) != before)
    assert house.most == 16
    for peer in (*peers, extra):
        peer.close()
    await house.until(lambda watched: not watched.inside)


async def test_a_pod_that_connects_again_and_again_waits_after_sixteen(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_ends = threading.Event()
    monkeypatch.setattr(doors, "sleep", lambda _: pause_ends.wait(60))
    house.doors.open("a")
    for _ in range(20):
        peer = connect(house, "a")
        greet(peer)
        peer.close()
    await house.until(lambda watched: watched.entered == 16 and not watched.inside)
    pause_ends.set()
    await house.until(lambda watched: watched.entered == 20 and not watched.inside)


async def test_a_process_that_reads_nothing_is_cut_off_instead_of_waited_for(house: House) -> None:
    house.doors.open("a")
    peer = connect(house, "a")
    greet(peer)
    await house.until(lambda watched: len(watched.inside) == 1)
    ((_, process),) = house.inside.values()
    for _ in range(100_000):
        process.send_bells([])
        if not house.inside:
            break
        await asyncio.sleep(0)
    await house.until(lambda watched: not watched.inside)


async def test_the_folder_of_a_pod_that_is_gone_is_removed(house: House) -> None:
    folder = house.doors.open("a")
    house.doors.remove("a")
    assert not folder.exists()

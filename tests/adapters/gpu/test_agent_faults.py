"""Faults of the agent and of jobs, with all of them as processes on a card that the CPU plays.

Kernels take a millisecond, so their number shows that a time has passed at least.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.gpu.faulty_node import FaultyNode, until

LEASE_BURSTS = 30
"""For this many bursts the job of high priority needs longer than the agent's orders last."""
MOST_LATE = 0.02
KILLS = 3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FaultyNode]:
    """A node with a job of high priority, and a job of low priority that gives way to it."""
    made = FaultyNode(tmp_path)
    await made.start()
    try:
        for role in ("high", "low"):
            await made.admit(role)
            made.run(role)
            await made.goes_on(role, bursts=1)
        yield made
    finally:
        await made.stop()


async def test_an_agent_that_hangs_leaves_low_priority_at_a_pace_of_its_own(
    node: FaultyNode,
) -> None:
    led = await node.pace()
    node.signal_agent(signal.SIGSTOP)
    await node.goes_on("high", bursts=LEASE_BURSTS)
    alone = await node.pace()
    assert 0 < alone < led
    node.signal_agent(signal.SIGCONT)
    await node.goes_on("high", bursts=2)
    assert await node.pace() > alone
    assert node.late() <= MOST_LATE


async def test_an_agent_that_is_killed_again_and_again_does_not_slow_high_priority(
    node: FaultyNode,
) -> None:
    for _ in range(KILLS):
        node.signal_agent(signal.SIGKILL)
        node.start_agent()
        await node.goes_on("high", bursts=LEASE_BURSTS)
    node.signal_agent(signal.SIGKILL)
    await node.goes_on("high", bursts=LEASE_BURSTS)
    alone = await node.pace()
    node.start_agent()
    await node.goes_on("high", bursts=2 * LEASE_BURSTS)
    assert await node.pace() > alone, "the last agent leads again"
    assert node.late() <= MOST_LATE
    assert len(node.folders()) == 2


async def test_a_job_killed_in_a_micro_step_leaves_nothing_behind(node: FaultyNode) -> None:
    before = node.agent_descriptors()
    for _ in range(KILLS):
        node.kill("low")
        await node.goes_on("high", bursts=1)
        node.run("low")
        await node.goes_on("low", bursts=1)
    await until(lambda: node.agent_descriptors() <= before)
    assert node.late() <= MOST_LATE
    node.kill("low")
    node.end("low")
    await until(lambda: len(node.folders()) == 1)


async def test_a_killed_job_of_high_priority_keeps_no_job_waiting(
    node: FaultyNode,
) -> None:
    node.kill("high")
    await node.goes_on("low")
    node.run("high")
    await node.goes_on("high", bursts=2)  # the agent learns of it during its first burst
    known = node.low_kernels()
    await node.goes_on("high")
    assert node.late(since=known) <= MOST_LATE


async def test_a_restarted_kubelet_does_not_slow_any_job(node: FaultyNode) -> None:
    while not node.kubelet.registered.empty():
        node.kubelet.registered.get_nowait()
    await node.kubelet.stop()
    await node.kubelet.start()
    request = await node.kubelet.registered.get()
    assert request.resource_name == "kfext.dev/gpu-0"
    for role in ("high", "low"):
        await node.goes_on(role)
    assert node.late() <= MOST_LATE

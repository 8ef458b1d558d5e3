"""Faults of the agent and of jobs, all of them real processes, on a card that the CPU simulates.

Kernels take a millisecond each, so their number shows how much time has passed at least.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.gpu.faulty_node import FaultyNode, until

LEASE_BURSTS = 30
"""Bursts of the high-priority job that take longer than the agent's orders are valid: 2.4 s."""
MAX_LATE = 0.02
"""The largest fraction of low-priority kernels that may begin although the other job has work."""
KILLS = 3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FaultyNode]:
    """A node with a high-priority job, and a low-priority job that gives way to it."""
    started = FaultyNode(tmp_path)
    await started.start()
    try:
        for name in ("high", "low"):
            await started.admit(name)
            started.run(name)
            await started.wait_for(name, bursts=1)
        yield started
    finally:
        await started.stop()


async def test_low_priority_paces_itself_while_the_agent_hangs(node: FaultyNode) -> None:
    directed = await node.pace()
    node.signal_agent(signal.SIGSTOP)
    await node.wait_for("high", bursts=LEASE_BURSTS)
    alone = await node.pace()
    assert 0 < alone < directed
    node.signal_agent(signal.SIGCONT)
    await node.wait_for("high", bursts=2)
    assert await node.pace() > alone
    assert node.late() <= MAX_LATE


async def test_a_repeatedly_killed_agent_does_not_slow_high_priority(node: FaultyNode) -> None:
    for _ in range(KILLS):
        node.signal_agent(signal.SIGKILL)
        node.start_agent()
        await node.wait_for("high", bursts=LEASE_BURSTS)
    node.signal_agent(signal.SIGKILL)
    await node.wait_for("high", bursts=LEASE_BURSTS)
    alone = await node.pace()
    node.start_agent()
    await node.wait_for("high", bursts=2 * LEASE_BURSTS)
    assert await node.pace() > alone, "the last agent directs the job again"
    assert node.late() <= MAX_LATE
    assert len(node.folders()) == 2


async def test_a_job_killed_in_a_micro_step_leaves_nothing_in_the_agent(node: FaultyNode) -> None:
    before = node.agent_descriptors()
    for _ in range(KILLS):
        node.kill("low")
        await node.wait_for("high", bursts=1)
        node.run("low")
        await node.wait_for("low", bursts=1)
    await until(lambda: node.agent_descriptors() <= before)
    assert node.late() <= MAX_LATE
    node.kill("low")
    node.end("low")
    await until(lambda: len(node.folders()) == 1)


async def test_the_low_priority_job_works_once_the_other_job_is_killed(node: FaultyNode) -> None:
    node.kill("high")
    await node.wait_for("low")
    node.run("high")
    await node.wait_for("high", bursts=2)  # the agent learns of it during its first burst
    before = node.low_kernels()
    await node.wait_for("high")
    assert node.late(since=before) <= MAX_LATE


async def test_a_restarted_kubelet_does_not_slow_any_job(node: FaultyNode) -> None:
    while not node.kubelet.registered.empty():
        node.kubelet.registered.get_nowait()
    await node.kubelet.stop()
    await node.kubelet.start()
    request = await node.kubelet.registered.get()
    assert request.resource_name == "kfext.dev/gpu-0"
    for name in ("high", "low"):
        await node.wait_for(name)
    assert node.late() <= MAX_LATE

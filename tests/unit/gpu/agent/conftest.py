from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kfext.gpu.agent.card import SharedCard
from tests.unit.gpu.agent.connections import Connections


@pytest.fixture
def card() -> Iterator[SharedCard]:
    shared_card = SharedCard(0)
    shared_card.reserve("GPU-1")
    yield shared_card
    for pod in ("high", "low", "other"):
        shared_card.withdraw(pod)


@pytest.fixture
async def connections(tmp_path: Path) -> AsyncIterator[Connections]:
    result = Connections(tmp_path / "s")
    yield result
    for name in ("a", "b"):
        result.sockets.remove(name)
    await result.until(lambda current: not current.connected)

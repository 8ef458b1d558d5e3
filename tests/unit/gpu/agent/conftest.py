from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kfext.gpu.agent.card import SharedCard
from tests.unit.gpu.agent.house import House


@pytest.fixture
def card() -> Iterator[SharedCard]:
    made = SharedCard(0)
    made.reserve("GPU-1")
    yield made
    for pod in ("high", "low", "other"):
        made.withdraw(pod)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path / "s")
    yield made
    for name in ("a", "b"):
        made.sockets.remove(name)
    await made.until(lambda house: not house.inside)

import pytest

from tests.unit.controller.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()

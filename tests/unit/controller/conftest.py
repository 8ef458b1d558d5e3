import pytest

from tests.unit.controller.test_reconciler import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()

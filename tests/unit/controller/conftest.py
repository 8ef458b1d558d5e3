"""A reconciler that tests of the loop tick by hand."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.controller.test_reconciler import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    for alarm in made.reconciler._alarms.values():
        alarm.cancel()

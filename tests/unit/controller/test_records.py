"""The records in ConfigMaps: when they are read and written, and after faults."""

from typing import Any

import pytest

from kfext.controller import records
from kfext.controller.records import CapacityKeeper, UsageKeeper
from kfext.core.queue.capacity_record import capacity_record
from kfext.core.queue.usage import decode_usage
from kfext.errors import ApiError, Forbidden, NotFound, NotLeading, Unavailable
from kfext.kube.records import CAPACITY, USAGE, Record
from kfext.model.parameters import Fairness, Queueing
from kfext.model.policy import TrainingPolicy
from tests.builders import node
from tests.unit.state.waiting.test_fairness import Teams

MAPS = "/api/v1/namespaces/kfext-system/configmaps"
STORED = '{"at": 1000000, "half_life": 3600, "namespaces": {"b": {"used": 60}}}'


class FakeClient:
    """One ConfigMap. `error`: raised instead of an answer; the write is done if `arrives`."""

    def __init__(self, stored: str | None = None, *, record: Record = USAGE) -> None:
        self.stored, self.record = stored, record
        self.requests: list[str] = []
        self.error: ApiError | None = None
        self.arrives = False

    async def get(self, path: str) -> dict[str, Any]:
        self._ask("get", path)
        self._answer()
        if self.stored is None:
            raise NotFound(status=404, reason="NotFound", message=path)
        return {"data": {self.record.key: self.stored}}

    async def apply(self, path: str, body: dict[str, Any]) -> None:
        self._ask("apply", path)
        assert (body["kind"], body["metadata"]["name"]) == ("ConfigMap", self.record.name)
        if self.arrives or not self.error:
            self.stored = body["data"][self.record.key]
        self._answer()

    def _ask(self, verb: str, path: str) -> None:
        assert path == f"{MAPS}/{self.record.name}"
        self.requests.append(verb)

    def _answer(self) -> None:
        if self.error:
            raise self.error


class Bench:
    """A UsageKeeper over `teams`; `keep` runs it, and returns the verbs of its requests."""

    def __init__(self, stored: str | None = None) -> None:
        self.teams = Teams()
        self.client = FakeClient(stored)
        self.keeper = self.lead()

    def lead(self) -> UsageKeeper:
        return UsageKeeper(self.client, self.teams.planner)  # type: ignore[arg-type]

    async def keep(self, times: int = 1, *, seconds: float = 300.0) -> list[str]:
        for _ in range(times):
            self.teams.sample(seconds)
            await self.keeper.keep()
        self.teams.sample(1)
        requests, self.client.requests = self.client.requests, []
        return requests


async def test_the_record_is_read_once_and_then_written_while_jobs_use_capacity() -> None:
    bench = Bench(STORED)
    bench.teams.runs("job", "a")
    assert await bench.keep(seconds=5) == ["get"]
    assert bench.teams.used("b") == pytest.approx(60.0, rel=0.01)
    assert await bench.keep(3) == ["apply"] * 3
    result = decode_usage(bench.client.stored or "").namespaces
    assert result["a"].used == pytest.approx(bench.teams.used("a"), rel=0.01)
    assert result["b"].used == pytest.approx(bench.teams.used("b"), rel=0.01)


async def test_a_cluster_without_running_jobs_writes_nothing() -> None:
    bench = Bench(STORED)
    assert await bench.keep(5) == ["get"]


async def test_after_the_last_job_has_ended_the_record_is_written_once() -> None:
    bench = Bench()
    builder = bench.teams.runs("job", "a")
    assert await bench.keep(2) == ["get", "apply"]
    bench.teams.planner.cluster.forget_job(builder.raw["metadata"]["uid"])
    assert await bench.keep(3) == ["apply"]


async def test_without_a_policy_nothing_is_read_or_written() -> None:
    bench = Bench(STORED)
    bench.teams.runs("job", "a")
    bench.teams.planner.settings.observe_policy(TrainingPolicy("all"))
    assert await bench.keep(3) == []
    usage = TrainingPolicy("all", queue=Queueing(fairness=Fairness.USAGE))
    bench.teams.planner.settings.observe_policy(usage)
    assert await bench.keep(2) == ["get", "apply"]


ERRORS: dict[str, ApiError] = {
    "no right": Forbidden(status=403, reason="Forbidden", message="no"),
    "no API server": Unavailable(status=0, reason="Unavailable", message="no"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_after_an_error_the_record_is_read_before_it_is_written(error: ApiError) -> None:
    bench = Bench(STORED)
    bench.teams.runs("job", "a")
    bench.client.error = error
    assert await bench.keep(3) == ["get"] * 3
    assert bench.client.stored == STORED
    bench.client.error = None
    assert await bench.keep(2) == ["get", "apply"]
    bench.client.error = error
    assert await bench.keep() == ["apply"]
    bench.client.error = None
    assert await bench.keep() == ["apply"]
    assert decode_usage(bench.client.stored).namespaces.keys() == {"a", "b"}


@pytest.mark.parametrize("stored", [None, "", "{", '{"namespaces": 7}'])
async def test_a_lost_or_garbled_record_is_recreated(stored: str | None) -> None:
    bench = Bench(stored)
    bench.teams.runs("job", "a")
    assert await bench.keep(2) == ["get", "apply"]
    assert decode_usage(bench.client.stored or "").namespaces.keys() == {"a"}


async def test_the_next_leader_continues_with_the_record_of_the_first() -> None:
    first = Bench()
    first.teams.runs("job", "a", since=first.teams.wall)
    await first.keep(4)
    standby = Bench(first.client.stored)
    standby.teams.wall, standby.teams.monotonic = first.teams.wall, 3.0
    standby.teams.runs("job", "a", since=1_000_000.0)
    assert standby.client.requests == []
    assert await standby.keep(seconds=0.0) == ["get"]
    assert standby.teams.used("a") == pytest.approx(first.teams.used("a"), rel=0.01)
    # A leader that lost its Lease may not write, and does not stop over it.
    first.client.error = NotLeading(status=0, reason="NotLeading", message="no")
    assert await first.keep() == ["apply"]


# --- the capacity -------------------------------------------------------------------------------


class Capacity:
    """A controller over teams; `keep` is a look at the capacity."""

    def __init__(self, stored: str | None = None, *, teams: Teams | None = None) -> None:
        self.teams = teams or Teams()
        self.client = FakeClient(stored, record=CAPACITY)
        self.keeper = CapacityKeeper(self.client, self.teams.planner)  # type: ignore[arg-type]
        self.pause = 0.0

    @property
    def now(self) -> str:
        """The record of this moment."""
        return capacity_record(self.teams.planner.cluster.ledger, None)

    async def keep(self, times: int = 1) -> list[str]:
        for _ in range(times):
            self.pause = await self.keeper.keep()
        requests, self.client.requests = self.client.requests, []
        return requests


async def test_the_capacity_is_written_if_it_has_changed_and_an_idle_cluster_writes_nothing() -> (
    None
):
    capacity = Capacity()
    assert await capacity.keep(3) == ["get", "apply"]
    capacity.teams.runs("job", "a")
    assert await capacity.keep(3) == ["apply"]
    capacity.teams.planner.cluster.observe_node(None, node("new", cpu="4"))
    assert await capacity.keep(3) == ["apply"]
    assert capacity.client.stored == capacity.now
    assert capacity.pause == 10.0


async def test_a_change_of_the_ledger_that_the_record_does_not_show_is_not_written() -> None:
    capacity = Capacity()
    await capacity.keep()
    known = capacity.teams.planner.cluster.ledger.gains
    capacity.teams.planner.cluster.observe_node(None, node("n", cpu="10", memory="1Ti", pods=50))
    assert capacity.teams.planner.cluster.ledger.gains > known
    assert await capacity.keep(3) == []


async def test_without_a_change_the_record_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    capacity = Capacity()
    await capacity.keep()
    monkeypatch.setattr(records, "capacity_record", None)
    assert await capacity.keep(3) == []


async def test_the_next_leader_writes_nothing_if_nothing_has_changed() -> None:
    first = Capacity()
    await first.keep()
    second = Capacity(first.client.stored, teams=first.teams)
    assert await second.keep(3) == ["get"]
    second.teams.runs("job", "a")
    assert await second.keep(2) == ["apply"]


@pytest.mark.parametrize("stored", ["", "{", '{"nodes": {}}'])
async def test_a_garbled_capacity_is_overwritten(stored: str) -> None:
    capacity = Capacity(stored)
    assert await capacity.keep(2) == ["get", "apply"]
    assert capacity.client.stored == capacity.now


@pytest.mark.parametrize("arrives", [False, True])
async def test_after_a_write_without_an_answer_the_capacity_is_written_again(arrives: bool) -> None:
    capacity = Capacity()
    await capacity.keep()
    capacity.teams.runs("job", "a")
    capacity.client.error, capacity.client.arrives = ERRORS["no API server"], arrives
    assert await capacity.keep() == ["apply"]
    assert capacity.pause == 10.0
    capacity.client.error = None
    assert await capacity.keep(2) == ["apply"]
    assert capacity.client.stored == capacity.now


async def test_without_permission_the_capacity_is_tried_every_five_minutes() -> None:
    capacity = Capacity()
    capacity.client.error = ERRORS["no right"]
    assert await capacity.keep() == ["get"]
    assert capacity.pause == 300.0
    capacity.client.error = None
    assert await capacity.keep() == ["get", "apply"]

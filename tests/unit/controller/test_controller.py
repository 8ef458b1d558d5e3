"""The record of usage in the cluster: when it is read and written, and what faults leave of it."""

from typing import Any

import pytest

from kfext.controller.controller import UsageKeeper
from kfext.core.queue.usage import decode_usage
from kfext.errors import ApiError, Forbidden, NotFound, NotLeading, Unavailable
from kfext.model.parameters import Fairness, Queueing
from kfext.model.policy import TrainingPolicy
from kfext.names import USAGE_RECORD
from tests.unit.state.waiting.test_fairness import Teams

PATH = f"/api/v1/namespaces/kfext-system/configmaps/{USAGE_RECORD}"
STORED = '{"at": 1000000, "half_life": 3600, "namespaces": {"b": {"used": 60}}}'


class FakeClient:
    """One ConfigMap; `error` is raised instead."""

    def __init__(self, stored: str | None = None) -> None:
        self.stored = stored
        self.requests: list[str] = []
        self.error: ApiError | None = None

    async def get(self, path: str) -> dict[str, Any]:
        self._ask("get", path)
        if self.stored is None:
            raise NotFound(status=404, reason="NotFound", message=path)
        return {"data": {"usage": self.stored}}

    async def apply(self, path: str, body: dict[str, Any]) -> None:
        self._ask("apply", path)
        assert (body["kind"], body["metadata"]["name"]) == ("ConfigMap", USAGE_RECORD)
        self.stored = body["data"]["usage"]

    def _ask(self, verb: str, path: str) -> None:
        assert path == PATH
        self.requests.append(verb)
        if self.error:
            raise self.error


class Bench:
    """A controller over teams; `keep` is a look at the record, after five minutes by default."""

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


async def test_the_record_is_read_once_and_then_written_while_something_is_held() -> None:
    bench = Bench(STORED)
    bench.teams.runs("job", "a")
    assert await bench.keep(seconds=5) == ["get"]
    assert bench.teams.used("b") == pytest.approx(60.0, rel=0.01)
    assert await bench.keep(3) == ["apply"] * 3
    found = decode_usage(bench.client.stored or "").namespaces
    assert found["a"].used == pytest.approx(bench.teams.used("a"), rel=0.01)
    assert found["b"].used == pytest.approx(bench.teams.used("b"), rel=0.01)


async def test_a_cluster_without_running_jobs_writes_nothing() -> None:
    bench = Bench(STORED)
    assert await bench.keep(5) == ["get"]


async def test_after_the_last_job_has_ended_the_record_is_written_once() -> None:
    bench = Bench()
    made = bench.teams.runs("job", "a")
    assert await bench.keep(2) == ["get", "apply"]
    bench.teams.planner.cluster.forget_job(made.raw["metadata"]["uid"])
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
async def test_an_error_ends_nothing_and_never_overwrites_what_was_not_read(
    error: ApiError,
) -> None:
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
async def test_a_lost_or_garbled_record_is_made_again(stored: str | None) -> None:
    bench = Bench(stored)
    bench.teams.runs("job", "a")
    assert await bench.keep(2) == ["get", "apply"]
    assert decode_usage(bench.client.stored or "").namespaces.keys() == {"a"}


async def test_of_two_controllers_the_next_leader_goes_on_with_what_the_first_wrote() -> None:
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

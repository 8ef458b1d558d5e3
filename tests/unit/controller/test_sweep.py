"""What kopf does not report, a list of everything does: what is there, and what is gone."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from kfext.controller.guard import ERRORS
from kfext.controller.sweep import forget_deleted, take_in
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.errors import ApiError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.job import parse_job
from kfext.model.namespace import Namespace
from kfext.names import MANAGED
from kfext.state.planner import Planner
from tests.builders import Raw, job


class FakeClient:
    """Lists collections by path; one that is not there cannot be listed."""

    def __init__(self) -> None:
        self.listed: dict[str, list[Raw]] = {
            paths.policies(): [],
            paths.jobs("pytorchjobs"): [],
            paths.jobs("tfjobs"): [],
        }

    async def list_all(self, path: str) -> list[Raw]:
        if path not in self.listed:
            raise ApiError(status=500, reason="", message="away")
        return self.listed[path]

    async def objects(self, path: str) -> AsyncIterator[Raw]:
        for item in await self.list_all(path):
            yield item

    async def uids(self, path: str) -> set[str]:
        return {item["metadata"]["uid"] async for item in self.objects(path)}


def policy(name: str) -> Raw:
    placement = {"bindTimeout": "7s"}
    return {"metadata": {"name": name, "uid": name}, "spec": {"placement": placement}}


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.listed[paths.policies()] = [policy("team")]
    raws = [job(uid=uid).worker(1, cpu="1").held().raw for uid in ("stays", "goes")]
    made.listed[paths.jobs("pytorchjobs")] = raws
    return made


@pytest.fixture
async def planner(client: FakeClient) -> Planner:
    made = Planner()
    made.settings.observe_namespace(None, Namespace("team", {MANAGED: "true"}))
    await take_in(cast(Client, client), made)
    return made


def bind_timeout(planner: Planner) -> float:
    of = parse_job(job(uid="any").worker(1, cpu="1").raw)
    assert of is not None
    return planner.settings.of(of).settings.placement.bind_timeout


async def forget(client: FakeClient, planner: Planner) -> None:
    writer = TrainingPlanWriter(client=cast(Client, client))
    await forget_deleted(cast(Client, client), planner, writer)


async def test_all_jobs_and_policies_are_taken_in(planner: Planner) -> None:
    assert planner.cluster.jobs.keys() == {"stays", "goes"}
    assert bind_timeout(planner) == 7


async def test_an_error_of_ours_with_one_object_leaves_all_others_taken_in(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Planner()
    observe = made.cluster.observe_job

    def fails(raw: Raw) -> None:
        if raw["metadata"]["uid"] == "stays":
            raise KeyError("a bug")
        observe(raw)

    monkeypatch.setattr(made.cluster, "observe_job", fails)
    before = ERRORS._value.get()
    await take_in(cast(Client, client), made)
    assert made.cluster.jobs.keys() == {"goes"}
    assert ERRORS._value.get() == before + 1


async def test_a_job_that_is_gone_is_forgotten(client: FakeClient, planner: Planner) -> None:
    del client.listed[paths.jobs("pytorchjobs")][1]
    await forget(client, planner)
    assert planner.cluster.jobs.keys() == {"stays"}


async def test_a_policy_that_is_gone_is_forgotten_and_the_queue_is_looked_at(
    client: FakeClient, planner: Planner
) -> None:
    planner.cluster.changed.clear()
    await forget(client, planner)
    assert (bind_timeout(planner), planner.cluster.changed) == (7, set())
    client.listed[paths.policies()] = []
    await forget(client, planner)
    assert bind_timeout(planner) != 7
    assert {one.job.uid for one in planner.queue.begin_round()} == {"stays", "goes"}


async def test_while_one_list_fails_nothing_is_forgotten(
    client: FakeClient, planner: Planner
) -> None:
    client.listed[paths.jobs("pytorchjobs")] = []
    del client.listed[paths.policies()]
    with pytest.raises(ApiError):
        await forget(client, planner)
    assert planner.cluster.jobs.keys() == {"stays", "goes"}
    assert bind_timeout(planner) == 7


async def test_a_job_that_is_created_meanwhile_is_not_forgotten(
    client: FakeClient, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = client.list_all

    async def list_all(path: str) -> list[Raw]:
        items = list(await plain(path))
        planner.cluster.observe_job(job(uid="new").worker(1, cpu="1").held().raw)
        return items

    monkeypatch.setattr(client, "list_all", list_all)
    await forget(client, planner)
    assert "new" in planner.cluster.jobs

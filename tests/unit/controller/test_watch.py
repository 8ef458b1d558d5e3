"""kopf's settings and handlers, and the lists that find deletions that kopf misses."""

from collections.abc import AsyncIterator, Collection
from dataclasses import fields
from itertools import islice
from typing import Any, cast

import pytest

from kfext.controller import watch
from kfext.controller.controller import _STALE_SECONDS
from kfext.controller.metrics import ERRORS
from kfext.controller.progress_reader import ProgressReader
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.controller.watch import forget_deleted, login_with, operator_settings, read_all, registry
from kfext.errors import ApiError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import Access, Token
from kfext.kube.usage import Usage
from kfext.model.job import parse_job
from kfext.model.kinds import registered
from kfext.model.kinds.job_kind import JobKind
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.names import MANAGED
from kfext.state.planner.planner import Planner
from tests.builders import Raw, job

KINDS = tuple(registered.KINDS.values())


def test_a_watch_without_events_is_reopened_before_the_mirror_counts_as_too_old() -> None:
    watching = operator_settings().watching
    assert "inactivity_timeout" in {field.name for field in fields(watching)}, "kopf knows it"
    assert watching.inactivity_timeout + (watching.connect_timeout or 0.0) < _STALE_SECONDS


def test_a_failed_request_is_retried_without_end_after_growing_pauses() -> None:
    backoffs = operator_settings().networking.error_backoffs
    for _ in range(2):  # each request begins with the shortest pause
        pauses = list(islice(backoffs, 100))  # type: ignore[arg-type]
        assert pauses[0] <= 1.0
        assert all(15.0 <= pause <= 30.0 for pause in pauses[10:])


async def test_a_failed_login_is_repeated_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(f"{watch.__name__}.asyncio.sleep", sleep)
    login = login_with(Access("http://127.0.0.1:1", tls=None, token=Token(lambda: "")))
    for _ in range(9):
        session = await login()
        await session.aiohttp_session.close()
    assert len(slept) == 8, "the first login at once"
    assert slept[-1] > 10 * slept[0]
    monkeypatch.setattr(watch, "_LOGIN_SECONDS", 0.0)
    await (await login()).aiohttp_session.close()
    assert len(slept) == 8


async def _login(**_: Any) -> None:
    """Do nothing: these tests make no request."""


def handlers_of(planner: Planner, writer: TrainingPlanWriter, kinds: Collection[JobKind]) -> Any:
    client = cast(Client, None)
    reader = ProgressReader(
        client,
        usage=Usage(client, labels=set()),
        planner=planner,
        show=lambda tracked: None,
        now=lambda: Moment(0.0, 0.0),
    )
    return registry(
        planner=planner, plan_writer=writer, progress_reader=reader, login=_login, kinds=kinds
    )


async def handle_job_event(planner: Planner, event: Raw) -> None:
    writer = TrainingPlanWriter(client=cast(Client, None))
    handlers = handlers_of(planner, writer, KINDS)
    on_job = handlers._watching._handlers[0].fn
    await on_job(event=event)


async def test_a_job_is_registered_and_its_spec_is_removed_from_the_event() -> None:
    planner = Planner()
    event: Raw = {"type": None, "object": job().worker(3, cpu="1").held().raw}
    await handle_job_event(planner, event)
    assert planner.cluster.jobs["uid-1"].job.pods == 3
    assert "spec" not in event["object"]


async def test_a_deleted_job_is_forgotten() -> None:
    planner = Planner()
    await handle_job_event(planner, {"type": "ADDED", "object": job().worker(3).raw})
    await handle_job_event(planner, {"type": "DELETED", "object": job().worker(3).raw})
    assert planner.cluster.jobs == {}


def test_a_page_of_the_largest_jobs_fits_into_the_memory_of_the_controller() -> None:
    assert (operator_settings().watching.chunk_size or 0) * 40 <= 200, "of 512 MiB"


class FakeClient:
    """Lists collections. `listed`: the objects by path; a list of any other path fails."""

    def __init__(self) -> None:
        self.listed: dict[str, list[Raw]] = {
            paths.policies(): [],
            **{paths.jobs(kind): [] for kind in KINDS},
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
    result = FakeClient()
    result.listed[paths.policies()] = [policy("team")]
    raws = [job(uid=uid).worker(1, cpu="1").held().raw for uid in ("stays", "goes")]
    result.listed[paths.jobs(registered.KINDS["PyTorchJob"])] = raws
    return result


@pytest.fixture
async def planner(client: FakeClient) -> Planner:
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("team", {MANAGED: "true"}))
    await read_all(cast(Client, client), planner, KINDS)
    return planner


def bind_timeout(planner: Planner) -> float:
    training_job = parse_job(job(uid="any").worker(1, cpu="1").raw)
    assert training_job is not None
    return planner.settings.resolve(training_job)[0].placement.bind_timeout


async def forget(client: FakeClient, planner: Planner) -> None:
    writer = TrainingPlanWriter(client=cast(Client, client))
    await forget_deleted(cast(Client, client), planner, writer, kinds=KINDS)


async def test_all_jobs_and_policies_are_registered(planner: Planner) -> None:
    assert planner.cluster.jobs.keys() == {"stays", "goes"}
    assert bind_timeout(planner) == 7


async def test_a_kind_that_the_cluster_does_not_serve_is_neither_watched_nor_listed(
    client: FakeClient, planner: Planner
) -> None:
    absent, *served = reversed(KINDS)
    del client.listed[paths.jobs(absent)]
    writer = TrainingPlanWriter(client=cast(Client, client))
    other = Planner()
    await read_all(cast(Client, client), other, served)
    await forget_deleted(cast(Client, client), other, writer, kinds=served)
    assert other.cluster.jobs.keys() == {"stays", "goes"}
    handlers = handlers_of(other, writer, served)
    watched = {handler.selector.any_name for handler in handlers._watching._handlers}
    assert watched == {kind.plural for kind in served} | {"trainingpolicies"}


async def test_after_an_error_of_kfext_about_one_object_the_others_are_registered(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner()
    original = planner.cluster.observe_job

    def observe_job(raw: Raw) -> None:
        if raw["metadata"]["uid"] == "stays":
            raise KeyError("a bug")
        original(raw)

    monkeypatch.setattr(planner.cluster, "observe_job", observe_job)
    before = ERRORS._value.get()
    await read_all(cast(Client, client), planner, KINDS)
    assert planner.cluster.jobs.keys() == {"goes"}
    assert ERRORS._value.get() == before + 1


async def test_a_missed_deletion_is_found_by_a_list(client: FakeClient, planner: Planner) -> None:
    del client.listed[paths.jobs(registered.KINDS["PyTorchJob"])][1]
    await forget(client, planner)
    assert planner.cluster.jobs.keys() == {"stays"}


async def test_a_deleted_policy_changes_the_queue(client: FakeClient, planner: Planner) -> None:
    planner.cluster.changed.clear()
    await forget(client, planner)
    assert (bind_timeout(planner), planner.cluster.changed) == (7, set())
    client.listed[paths.policies()] = []
    await forget(client, planner)
    assert bind_timeout(planner) != 7
    assert {tracked.job.uid for tracked in planner.queue.begin_round()} == {"stays", "goes"}


async def test_if_one_list_fails_nothing_is_forgotten(client: FakeClient, planner: Planner) -> None:
    client.listed[paths.jobs(registered.KINDS["PyTorchJob"])] = []
    del client.listed[paths.policies()]
    with pytest.raises(ApiError):
        await forget(client, planner)
    assert planner.cluster.jobs.keys() == {"stays", "goes"}
    assert bind_timeout(planner) == 7


async def test_a_job_that_is_created_during_the_lists_is_not_forgotten(
    client: FakeClient, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = client.list_all

    async def list_all(path: str) -> list[Raw]:
        items = list(await original(path))
        planner.cluster.observe_job(job(uid="new").worker(1, cpu="1").held().raw)
        return items

    monkeypatch.setattr(client, "list_all", list_all)
    await forget(client, planner)
    assert "new" in planner.cluster.jobs

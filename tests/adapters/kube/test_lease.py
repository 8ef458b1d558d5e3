"""Leader election on a true API server, and whether a webhook counts the Lease as fresh."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.errors import LeaseLost
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.lease import LeaseHolder, LeaseWatch, Timing, decode_lease

from .conftest import until
from .faulty_server import FaultyServer, Refuse

QUICK = Timing(duration=1, deadline=0.6, retry=0.05)


class Contest:
    """Replicas that compete for a Lease in a namespace of its own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.unhealthy: set[str] = set()

    def enter(self, identity: str, timing: Timing = QUICK) -> LeaseHolder:
        holder = LeaseHolder(
            self.client,
            identity=identity,
            healthy=lambda: identity not in self.unhealthy,
            namespace=self.namespace,
            timing=timing,
        )
        self.tasks[identity] = asyncio.create_task(holder.run())
        return holder

    async def lease(self) -> dict[str, object]:
        content = await self.client.get(paths.leases(self.namespace, "kfext-controller"))
        spec: dict[str, object] = content["spec"]
        return spec

    async def stop(self, identity: str) -> None:
        self.tasks[identity].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[identity]


@pytest.fixture
async def contest(client: Client, namespace: str) -> AsyncIterator[Contest]:
    result = Contest(client, namespace)
    yield result
    for task in result.tasks.values():
        task.cancel()
    await asyncio.gather(*result.tasks.values(), return_exceptions=True)


async def test_the_lease_names_suspect_nodes_until_they_are_cleared(
    client: Client, namespace: str
) -> None:
    suspects = {f"node-{number}": "3 jobs failed here" for number in range(200)}
    holder = LeaseHolder(
        client,
        identity="one",
        healthy=lambda: True,
        suspects=lambda: suspects,
        namespace=namespace,
        timing=QUICK,
    )

    async def listed() -> dict[str, str]:
        content = await client.get(paths.leases(namespace, names.LEASE))
        result: dict[str, str] = json.loads(content["metadata"]["annotations"][names.SUSPECTS])
        return result

    task = asyncio.create_task(holder.run())
    try:
        await holder.held.wait()
        assert await listed() == dict(islice(suspects.items(), 100))
        suspects.clear()
        await asyncio.sleep(10 * QUICK.retry)
        assert await listed() == {}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_of_many_candidates_holds_the_lease(contest: Contest) -> None:
    holders = [contest.enter(f"c{i}", Timing(retry=0.05)) for i in range(5)]

    await until(lambda: any(h.held.is_set() for h in holders), what="a holder")
    await asyncio.sleep(0.5)  # ten attempts of each candidate

    assert sum(h.held.is_set() for h in holders) == 1
    assert (await contest.lease())["leaseDurationSeconds"] == 15


async def test_a_released_lease_goes_to_the_next_candidate_at_once(contest: Contest) -> None:
    first = contest.enter("first", Timing(retry=0.05))
    await until(first.held.is_set, what="the first holds it")
    second = contest.enter("second", Timing(retry=0.05))

    await contest.stop("first")
    released = await contest.lease()
    await until(second.held.is_set, what="the second holds it")

    assert not first.held.is_set()
    assert released["holderIdentity"] in {"", "second"}
    spec = await contest.lease()
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)


async def test_a_lease_is_released_although_a_renewal_was_still_on_its_way(
    contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = contest.enter("first", Timing())
    await until(first.held.is_set, what="the first holds it")
    get, renewals = contest.client.get, [{"spec": {"leaseDurationSeconds": 14}}]

    async def get_and_renew(path: str) -> dict[str, Any]:
        lease = await get(path)
        if renewals:
            await contest.client.merge_patch(path, renewals.pop())
        return lease

    monkeypatch.setattr(contest.client, "get", get_and_renew)
    await contest.stop("first")

    assert not renewals
    assert (await contest.lease())["holderIdentity"] == ""


async def test_an_unhealthy_leader_loses_the_lease_to_a_healthy_candidate(contest: Contest) -> None:
    first = contest.enter("first", Timing(duration=5, deadline=0.6, retry=0.05))
    await until(first.held.is_set, what="the first holds it")
    second = contest.enter("second")

    contest.unhealthy.add("first")
    with pytest.raises(LeaseLost, match="healthy: False"):
        await asyncio.wait_for(contest.tasks["first"], 30)
    assert (await contest.lease())["holderIdentity"] == "first", (
        "it was released while its holder might still act"
    )
    await until(second.held.is_set, what="the second holds it")

    assert (await contest.lease())["holderIdentity"] == "second"


async def test_an_unhealthy_candidate_does_not_acquire(contest: Contest) -> None:
    contest.unhealthy.add("first")
    first = contest.enter("first")
    await asyncio.sleep(0.3)
    assert not first.held.is_set()

    contest.unhealthy.clear()
    await until(first.held.is_set, what="the first holds it")


async def test_a_lease_that_another_candidate_acquired_is_lost(contest: Contest) -> None:
    first = contest.enter("first", Timing(retry=0.05))
    await until(first.held.is_set, what="the first holds it")

    patch = {"spec": {"holderIdentity": "rival"}}
    await contest.client.merge_patch(paths.leases(contest.namespace, "kfext-controller"), patch)

    with pytest.raises(LeaseLost, match="held by rival"):
        await asyncio.wait_for(contest.tasks["first"], 30)


async def test_a_deleted_lease_is_recreated(contest: Contest) -> None:
    first = contest.enter("first", Timing(retry=0.05))
    await until(first.held.is_set, what="the first holds it")

    path = paths.leases(contest.namespace, "kfext-controller")
    before = await contest.client.get(path)
    await contest.client.delete(path)
    async with asyncio.timeout(30):
        while True:
            result = await contest.client.list_all(paths.leases(contest.namespace))
            if result and result[0]["metadata"]["uid"] != before["metadata"]["uid"]:
                break
            await asyncio.sleep(0.02)

    assert first.held.is_set()


async def test_a_renewal_is_one_request(testbed: Testbed, namespace: str) -> None:
    verbs: list[str] = []
    observed = await Client.connect(testbed.kubeconfig, observe=lambda verb, *_: verbs.append(verb))
    async with observed:
        contest = Contest(observed, namespace)
        holder = contest.enter("one", Timing(retry=0.02))
        await until(holder.held.is_set, what="it holds the lease")
        verbs.clear()
        await until(lambda: len(verbs) > 5, what="renewals")
        assert set(verbs) == {"patch"}
        await contest.stop("one")


async def test_a_lease_that_cannot_be_renewed_is_lost(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    lease = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}
    faulty.reads += [json.dumps(lease).encode()] * 4 + [Refuse(500)] * 1000
    holder = LeaseHolder(faulty_client, identity="me", healthy=lambda: True, timing=QUICK)

    with pytest.raises(LeaseLost, match="not renewed"):
        await asyncio.wait_for(holder.run(), 30)

    assert not holder.held.is_set()
    assert len(faulty.read_queries) > 5, "it gave up at the first failure"


async def test_after_a_renewal_without_an_answer_there_is_time_for_another_renewal(
    contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = contest.enter("me", Timing(duration=5, deadline=4.0, retry=0.05))
    await until(holder.held.is_set, what="it holds the lease")
    try_acquire, hangs = holder._try_acquire, asyncio.Event()

    async def hang_once() -> bool:
        if not hangs.is_set():
            hangs.set()
            await asyncio.sleep(3600)
        return await try_acquire()

    monkeypatch.setattr(holder, "_try_acquire", hang_once)
    await until(hangs.is_set, what="a renewal hangs")
    before = holder._renewed_at
    await until(lambda: holder._renewed_at > before, what="the next renewal is answered")
    assert holder.held.is_set()


async def test_a_holder_that_was_suspended_for_too_long_may_no_longer_act(
    client: Client, namespace: str
) -> None:
    now = 1000.0
    timing = Timing(retry=0.05)
    holder = LeaseHolder(
        client,
        identity="me",
        healthy=lambda: True,
        namespace=namespace,
        timing=timing,
        monotonic=lambda: now,
    )
    assert not holder.may_act()
    task = asyncio.create_task(holder.run())
    await until(holder.held.is_set, what="it holds the lease")
    assert holder.may_act()

    now += timing.deadline  # the event loop has not run `holder.run` since
    assert not holder.may_act()
    with pytest.raises(LeaseLost, match=r"not renewed for 10\.0 s"):
        await asyncio.wait_for(task, 30)
    assert not holder.may_act()


async def test_whether_another_holder_is_alive_is_judged_by_the_local_clock(
    client: Client, namespace: str
) -> None:
    spec = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "renewTime": "2001-01-01T00:00:00.000000Z",
    }
    body = {"metadata": {"name": "kfext-controller"}, "spec": spec}
    await client.create(paths.leases(namespace), body)
    now = 1000.0
    holder = LeaseHolder(
        client,
        identity="me",
        healthy=lambda: True,
        namespace=namespace,
        timing=Timing(retry=0.02),
        monotonic=lambda: now,
    )
    task = asyncio.create_task(holder.run())

    await asyncio.sleep(0.5)
    assert not holder.held.is_set(), "it compared with the wall clock of another machine"
    now = 1014.9
    await asyncio.sleep(0.5)
    assert not holder.held.is_set()
    now = 1015.1
    await until(holder.held.is_set, what="it holds the expired lease")

    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# Observations by a webhook: (renewTime, wall clock, monotonic clock). Then the monotonic clock at
# the check, and whether the Lease is fresh, as it is for 30 s after a renewal.
OBSERVATIONS: dict[str, tuple[list[tuple[float | None, float, float]], float, bool]] = {
    "no Lease was ever observed": ([], 5, False),
    "there is no Lease": ([(None, 1000, 5)], 5, False),
    "first observed just after a renewal": ([(1000, 1001, 5)], 5, True),
    "first observed 31 s after a renewal": ([(1000, 1031, 5)], 5, False),
    "first observed 20 s after a renewal, 10.1 s ago": ([(1000, 1020, 5)], 15.1, False),
    "first observed 20 s after a renewal, 9.9 s ago": ([(1000, 1020, 5)], 14.9, True),
    "the local wall clock is behind": ([(1000, 900, 5)], 34.9, True),
    "the local wall clock is behind, and 30 s have passed": ([(1000, 900, 5)], 35.1, False),
    "the local wall clock is ahead, but a renewal was observed": (
        [(1000, 9000, 5), (1002, 9002, 7)],
        36.9,
        True,
    ),
    "the same renewTime again is no renewal": ([(1000, 1000, 5), (1000, 1030, 35)], 35.1, False),
    "it was deleted": ([(1000, 1000, 5), (None, 1001, 6)], 6, False),
    "it was deleted, and an old Lease was restored": (
        [(1000, 1000, 5), (None, 1001, 6), (900, 1002, 7)],
        7,
        False,
    ),
}


@pytest.mark.parametrize(("observations", "at", "want"), OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_whether_a_lease_is_fresh(
    observations: list[tuple[float | None, float, float]], *, at: float, want: bool
) -> None:
    watch = LeaseWatch()
    for renewed, wall, monotonic in observations:
        watch.observe(renewed, wall=wall, monotonic=monotonic)

    assert watch.fresh(monotonic=at) is want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (b'{"spec":{"renewTime":"1970-01-01T00:01:00.500000Z"}}', 60.5),
        (b'{"spec":{"renewTime":"soon"}}', 0.0),
        (b'{"spec":null}', 0.0),
        (b"[]", 0.0),
    ],
)
def test_the_renew_time_of_a_lease(raw: bytes, want: float) -> None:
    assert decode_lease(raw).renewed == want

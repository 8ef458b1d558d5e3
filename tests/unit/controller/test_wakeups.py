"""A job that can start is decided on soon, and a waiting job is not decided on again and again."""

from typing import Any

import pytest

from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Clocks, Situation
from kfext.core.lifecycle.steps import Wait
from kfext.core.queue.reservation import reserve
from kfext.errors import Invalid
from kfext.model.job_state import JobState
from kfext.model.node import Node
from kfext.model.pod import parse_pod
from kfext.model.quota import LimitRange, Quota, parse_quota
from kfext.names import REASON_NO_ROOM, REASON_TOO_BIG
from kfext.state.mirror.cluster import Cluster
from kfext.state.waiting import reservations
from tests.builders import ledger, node, pod, raw_pod
from tests.unit.controller.bench import Bench, gang, last_verdict, queue_of, refusing, running

DENIED = Invalid(status=422, reason="Invalid", message="denied")
LATE = 1000.0
"""A time at which the jobs have waited longer than reserveAfter."""


def quota(used: int, **hard: str) -> Quota:
    """A quota of `hard`, by default 8 pods, with `used` pods."""
    hard = hard or {"pods": "8"}
    status = {"hard": hard, "used": {"pods": str(used)}}
    return parse_quota({"metadata": {"namespace": "team", "name": "q"}, "status": status})


def foreign(uid: str, node_name: str, cpu: str) -> Any:
    spec = {"nodeName": node_name, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return parse_pod({"metadata": {"namespace": "x", "name": uid, "uid": uid}, "spec": spec})


async def test_a_step_that_is_refused_is_not_tried_again_before_its_time(bench: Bench) -> None:
    bench.writer.answer = refusing(DENIED)
    bench.submit(gang("one"))
    for _ in range(10):
        await bench.tick()
    assert len(bench.writer.steps) == 1
    assert "one" in bench.planner.alarms


async def test_a_new_version_of_a_job_is_decided_on_at_once_after_a_refusal(bench: Bench) -> None:
    bench.writer.answer = refusing(DENIED)
    bench.submit(gang("one"))
    await bench.tick()
    bench.submit(gang("one").version(2))
    await bench.tick()
    assert len(bench.writer.steps) == 2


async def test_a_job_starts_although_a_running_gang_has_lost_its_pods(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("big", cpu="2000"))
    builder = running("lost", "big", cpu="1", workers=600)
    bench.submit(builder)
    for index in range(600):
        raw = raw_pod(builder.build(), "worker", index, bound="big")
        if index:
            raw["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z"
        bench.cluster.observe_pod(None, parse_pod(raw))
    bench.submit(gang("one"))
    await bench.tick()
    assert bench.started() == ["one"]


async def test_a_job_starts_once_pods_no_longer_count_twice_in_its_quota(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="8"))
    quotas = queue_of(bench).quotas
    quotas.observe_quota(None, quota(0))
    first = running("first", "b", cpu="1", workers=4)
    bench.submit(first)
    await bench.tick()
    quotas.observe_quota(quota(0), quota(1))  # the quota's event comes before the pod's
    bench.submit(gang("second", workers=4, created=1))
    await bench.tick()
    assert bench.started() == []
    for index in range(4):
        bench.cluster.observe_pod(None, pod(first.build(), "worker", index, bound="b"))
        quotas.observe_quota(quota(index), quota(index + 1))
        await bench.tick()
    assert set(bench.started()) == {"second"}


async def test_a_job_starts_once_a_limit_range_is_created(bench: Bench) -> None:
    quotas = queue_of(bench).quotas
    quotas.observe_quota(None, quota(0, **{"limits.memory": "100Gi"}))
    bench.submit(gang("one"))
    await bench.tick()
    assert bench.started() == []
    quotas.observe_limit_range(None, LimitRange("team"))
    await bench.tick()
    assert bench.started() == ["one"]


def test_a_job_is_decided_on_again_at_the_end_of_an_exclusion_and_not_released_before() -> None:
    held = gang("one").build()
    state = JobState(excluded={"a": 400.0})
    step = next_step(
        Situation(held, (), None, state, 100.0, clocks=Clocks(never_fits=90.0)), ledger(node("a"))
    )
    assert isinstance(step, Wait)
    assert step.again is not None
    assert step.again <= 300


async def test_the_next_job_gets_a_reservation_if_the_head_of_the_queue_can_have_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def count_searches(uid: str, *more: Any, **named: Any) -> Any:
        searched.append(uid)
        return reserve(uid, *more, **named)

    monkeypatch.setattr(reservations, "reserve", count_searches)
    bench.cluster.observe_node(None, node("b", cpu="4"))
    bench.cluster.observe_pod(None, foreign("svc", "a", "2"))
    bench.cluster.observe_pod(None, foreign("svc2", "b", "1"))
    bench.submit(running("runs", "b", cpu="2"))
    bench.submit(gang("head", cpu="4", workers=1))
    for number in range(20):
        bench.submit(gang(f"next-{number:02}", cpu="3", workers=1, created=1 + number))
    bench.now = LATE
    await bench.tick()
    assert queue_of(bench).reservations.current is not None
    assert queue_of(bench).reservations.current.job == "next-00"  # type: ignore[union-attr]
    assert len(searched) <= 3


async def test_a_reservation_moves_off_a_removed_node(bench: Bench) -> None:
    for name in "bc":
        bench.cluster.observe_node(None, node(name, cpu="4"))
    for name in "abc":
        bench.submit(running(f"on-{name}", name, cpu="3"))
    bench.submit(gang("head", cpu="4", workers=1))
    bench.now = LATE
    await bench.tick()
    (reserved,) = queue_of(bench).reservations.current.nodes  # type: ignore[union-attr]
    bench.cluster.observe_node(bench.cluster.ledger.node(reserved), None)
    await bench.tick()
    assert reserved not in queue_of(bench).reservations.current.nodes  # type: ignore[union-attr]


async def test_the_reason_changes_when_a_node_is_removed(bench: Bench) -> None:
    big: Node = node("big", cpu="16")
    bench.cluster.observe_node(None, big)
    bench.submit(running("runs", "big", cpu="9"))
    bench.submit(gang("one", cpu="8", workers=1))
    await bench.tick()
    assert last_verdict(bench, "one")[0] == REASON_NO_ROOM
    bench.cluster.observe_node(big, None)
    await bench.tick()
    assert last_verdict(bench, "one")[0] == REASON_TOO_BIG


async def test_a_job_that_waited_for_the_operator_goes_before_a_later_job(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("big", cpu="5000"))
    huge = running("huge", "big", cpu="1", workers=600)
    bench.submit(huge)
    bench.submit(gang("old", workers=2, created=1))
    await bench.tick()
    for index in range(150):
        bench.cluster.observe_pod(None, pod(huge.build(), "worker", index))
    await bench.tick()
    bench.submit(gang("new", workers=2, created=100))
    await bench.tick()
    assert bench.started() == []


async def test_the_head_keeps_its_reservation_while_the_operator_is_busy(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", workers=4))
    bench.now = LATE
    await bench.tick()
    bench.cluster.backlog.crowded = True
    bench.cluster.mark_queue()
    await bench.tick()
    bench.cluster.backlog.crowded = False
    bench.submit(gang("young", workers=1, created=500))
    await bench.tick()
    assert bench.started() == []


async def test_a_reservation_follows_an_edit_of_its_holder(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="8"))
    bench.submit(running("on-a", "a", cpu="4"))
    bench.submit(running("on-b", "b", cpu="8"))
    bench.submit(gang("head", cpu="3", workers=1))
    bench.now = LATE
    await bench.tick()
    assert queue_of(bench).reservations.current.nodes == ("a",)  # type: ignore[union-attr]
    edited = gang("head", cpu="3", workers=1)
    specs = edited.raw["spec"]["pytorchReplicaSpecs"]
    specs["Worker"]["template"]["spec"]["nodeSelector"] = {"name": "b"}
    bench.submit(edited.version(2))
    await bench.tick()
    assert queue_of(bench).reservations.current.nodes == ("b",)  # type: ignore[union-attr]


async def test_a_reservation_ends_at_the_deadline_of_a_job_once_that_is_known(bench: Bench) -> None:
    runs = running("runs", "a", cpu="3", deadline=2000)
    status = runs.raw.pop("status")
    bench.submit(runs)
    bench.submit(gang("head", workers=4))
    bench.now = LATE
    await bench.tick()
    runs.raw["status"] = status
    bench.submit(runs.version(2))
    await bench.tick()
    assert queue_of(bench).reservations.current.until == 2001  # type: ignore[union-attr]


def test_a_standby_keeps_nothing_of_deleted_jobs() -> None:
    cluster = Cluster()
    cluster.observe_node(None, node("a"))
    for number in range(50):
        builder = running(f"job-{number}", "a", cpu="1")
        cluster.observe_job(builder.raw)
        worker = pod(builder.build(), "worker", 0, bound="a")
        cluster.observe_pod(None, worker)
        cluster.observe_pod(worker, None)
        cluster.forget_job(f"job-{number}")
    cluster.stand_by(0.0)
    assert (len(cluster.changed), len(cluster._stale_claims)) == (0, 0)

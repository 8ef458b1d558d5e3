"""The queue over many ticks: order, reserved capacity, shared verdicts, and messages."""

from itertools import pairwise
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle import capacity
from kfext.core.lifecycle.steps import Release, Unsuspend
from kfext.core.placement.place import place
from kfext.core.queue.reservation import reserve
from kfext.model.namespace import Namespace
from kfext.model.pod import parse_pod
from kfext.model.policy import TrainingPolicy, parse_policy
from kfext.model.priority import PriorityClass
from kfext.model.quota import parse_quota
from kfext.names import REASON_NO_ROOM, REASON_QUOTA, REASON_RESERVED, REASON_WAITING_FOR_OPERATOR
from kfext.state.waiting import reservations
from kfext.state.waiting.reservations import MAX_SEARCHES, RESERVED_SECONDS
from tests.builders import JobBuilder, node
from tests.unit.controller.bench import Bench, gang, last_verdict, queue_of, running

RESERVE_AFTER = 300.0


async def test_D5_a_younger_job_does_not_take_reserved_capacity(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="1"))
    bench.submit(running("runs", "a", cpu="3"))  # one of four CPUs of node a is free
    bench.submit(
        gang("head", cpu="1", workers=4, created=10).annotated("kfext.dev/colocation", "required")
    )
    bench.now = 10.0
    await bench.tick()
    assert last_verdict(bench, "head")[0] == REASON_NO_ROOM
    assert queue_of(bench).reservations.current is None
    bench.now = 10.0 + RESERVE_AFTER
    bench.cluster.mark("head")
    bench.submit(gang("young", cpu="1", workers=1, created=20))
    bench.submit(gang("second", cpu="1", workers=1, created=30))
    await bench.tick()
    reservation = queue_of(bench).reservations.current
    assert reservation is not None
    assert (reservation.job, reservation.nodes, reservation.waits_for) == (
        "head",
        ("a",),
        ("runs",),
    )
    assert bench.started() == ["young"]  # on node b, beside the reservation
    reason, message = last_verdict(bench, "second")
    assert reason == REASON_RESERVED
    assert "reserved for PyTorchJob team/head, which waits for PyTorchJob team/runs" in message
    reason, message = last_verdict(bench, "head")
    assert "it is first in the queue; a is reserved for it until PyTorchJob team/runs" in message


async def test_only_a_job_that_is_not_first_shows_why_it_has_its_place(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="4"))
    for number, name in enumerate(("first", "second")):
        bench.submit(gang(name, created=10.0 * number))
    await bench.tick()
    assert "its place" not in last_verdict(bench, "first")[1]
    assert last_verdict(bench, "second")[1].endswith(
        "; its place follows from priority 0, its age and the usual length of jobs"
    )


def in_namespace(builder: JobBuilder, namespace: str) -> JobBuilder:
    builder.raw["metadata"]["namespace"] = namespace
    return builder


async def test_capacity_of_a_pool_is_reserved_for_a_job_that_fits_only_there(bench: Bench) -> None:
    small, large = (
        node("a", cpu="1"),
        node("b", cpu="4", taints=[{"key": "dedicated", "effect": "NoSchedule"}]),
    )
    bench.cluster.observe_node(None, small)
    bench.cluster.observe_node(None, large)
    bench.submit(running("runs", "b", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4, created=10))
    bench.now = 10.0
    await bench.tick()
    assert last_verdict(bench, "head")[0] == REASON_NO_ROOM
    bench.now = 10.0 + RESERVE_AFTER
    bench.cluster.mark("head")
    await bench.tick()
    reservation = queue_of(bench).reservations.current
    assert reservation is not None
    assert (reservation.job, reservation.nodes, reservation.waits_for) == (
        "head",
        ("b",),
        ("runs",),
    )


async def test_jobs_of_other_namespaces_are_counted_and_not_named(bench: Bench) -> None:
    bench.planner.settings.observe_namespace(None, Namespace("secret", {names.MANAGED: "true"}))
    bench.submit(running("runs", "a", cpu="2"))
    bench.submit(in_namespace(running("other", "a", cpu="1"), "secret"))
    bench.submit(
        in_namespace(gang("head", cpu="1", workers=4), "secret").annotated(
            "kfext.dev/colocation", "required"
        )
    )
    bench.now = RESERVE_AFTER
    await bench.tick()
    bench.submit(gang("young", cpu="1", workers=1, created=20))
    bench.submit(in_namespace(gang("there", cpu="1", workers=1, created=30), "secret"))
    await bench.tick()
    message = last_verdict(bench, "young")[1]
    assert "secret" not in message
    assert "for 1 job of another namespace, which waits for PyTorchJob team/runs and 1" in message
    # A job of the same shape in the other namespace is shown the names there.
    message = last_verdict(bench, "there")[1]
    assert "for PyTorchJob secret/head, which waits for PyTorchJob secret/other and 1" in message
    assert (
        "until PyTorchJob secret/other and 1 job of another namespace have ended"
        in (last_verdict(bench, "head")[1])
    )


async def test_a_job_that_ends_before_the_reservation_starts_in_it(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3", deadline=999))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    late, early = gang("late", workers=1, created=50), gang("early", workers=1, created=60)
    late.raw["spec"]["runPolicy"]["activeDeadlineSeconds"] = 701
    early.raw["spec"]["runPolicy"]["activeDeadlineSeconds"] = 700
    bench.submit(late)
    bench.submit(early)
    await bench.tick()
    assert bench.started() == ["early"]
    assert "until 00:16:40 UTC at the latest" in last_verdict(bench, "late")[1]
    assert "activeDeadlineSeconds or its last runs end it before" in last_verdict(bench, "late")[1]


async def test_the_head_starts_in_its_reservation_and_ends_it(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    assert queue_of(bench).reservations.current is not None
    bench.cluster.forget_job("runs")
    await bench.tick()
    assert bench.started() == ["head"]
    assert queue_of(bench).reservations.current is None
    assert len(bench.cluster.ledger) == 0  # the fake writer writes nothing


async def test_a_reservation_does_not_exclude_a_job_of_higher_priority(bench: Bench) -> None:
    queue_of(bench).observe_class(None, PriorityClass("high", 100, preempts=False))
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    urgent = gang("urgent", workers=1, created=200)
    urgent.prioritized("high")
    bench.submit(urgent)
    await bench.tick()
    assert bench.started() == ["urgent"]


async def test_a_new_controller_reserves_the_same_capacity(bench: Bench) -> None:
    other = Bench()
    for replica in (bench, other):
        replica.cluster.observe_node(None, node("b", cpu="4"))
        replica.now = RESERVE_AFTER
    jobs = [
        running("x", "a", cpu="3"),
        running("y", "b", cpu="2"),
        gang("head", cpu="1", workers=4).annotated("kfext.dev/colocation", "required"),
        gang("young", cpu="1", workers=1, created=5),
    ]
    for builder in jobs:
        bench.submit(builder)
    for builder in reversed(jobs):
        other.submit(builder)
    await bench.tick()
    await other.tick()
    assert queue_of(bench).reservations.current == queue_of(other).reservations.current
    assert queue_of(bench).reservations.current is not None
    assert bench.started() == other.started() == ["young"]


async def test_a_job_without_quota_loses_its_reservation(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    assert queue_of(bench).reservations.current is not None
    status = {"hard": {"pods": "2"}, "used": {"pods": "0"}}
    quota = {"metadata": {"namespace": "team", "name": "q"}, "status": status}
    queue_of(bench).quotas.observe_quota(None, parse_quota(quota))
    bench.submit(gang("young", cpu="1", workers=1, created=5))
    bench.cluster.mark_queue()
    await bench.tick()
    assert last_verdict(bench, "head")[0] == REASON_QUOTA
    assert queue_of(bench).reservations.current is None
    assert bench.started() == ["young"]


async def test_a_job_that_is_edited_to_need_more_waits_again_for_a_reservation(
    bench: Bench,
) -> None:
    bench.cluster.observe_node(None, node("b", cpu="8"))
    bench.submit(running("on-a", "a", cpu="4"))
    bench.submit(running("on-b", "b", cpu="2"))
    bench.submit(gang("head", cpu="7", workers=1))
    bench.now = RESERVE_AFTER
    await bench.tick()
    bench.submit(gang("head", cpu="8", workers=1).version(2))
    bench.now += 10
    await bench.tick()
    assert queue_of(bench).reservations.current is None
    bench.submit(gang("young", cpu="6", workers=1, created=5))
    await bench.tick()
    assert bench.started() == ["young"]
    bench.now += RESERVE_AFTER - 1
    await bench.tick()
    assert queue_of(bench).reservations.current is None
    assert bench.planner.next_alarm() == bench.now + 1
    bench.now += 1
    await bench.tick()
    assert queue_of(bench).reservations.current.nodes == ("b",)  # type: ignore[union-attr]


async def test_capacity_is_reserved_for_a_time_and_then_others_follow(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="1"))
    bench.submit(gang("first", cpu="4", workers=1))
    bench.submit(gang("second", cpu="4", workers=1, created=1))
    bench.now = RESERVE_AFTER + 1
    await bench.tick()
    holders = [queue_of(bench).reservations.current.job]  # type: ignore[union-attr]
    began = bench.now
    bench.now = began + RESERVED_SECONDS - 1
    bench.submit(gang("young", cpu="1", workers=1, created=5))
    await bench.tick()
    assert bench.started() == []
    for _ in range(3):
        bench.now = began = began + RESERVED_SECONDS
        await bench.tick()
        holders.append(queue_of(bench).reservations.current.job)  # type: ignore[union-attr]
    assert set(bench.started()) == {"young"}
    assert holders == ["first", "second", "first", "second"]


async def test_a_job_that_had_a_reservation_starts_despite_many_new_jobs(bench: Bench) -> None:
    runs = [f"runs-{number}" for number in range(4)]
    for name in runs:
        bench.submit(running(name, "a", cpu="1"))
    bench.submit(gang("large", cpu="4", workers=1))
    small = [f"small-{number}" for number in range(60)]
    for name in small[:3]:
        bench.submit(gang(name, cpu="1", workers=1, created=1))
    bench.now = RESERVE_AFTER + 1
    await bench.tick()
    assert queue_of(bench).reservations.current.job == "large"  # type: ignore[union-attr]
    bench.now += RESERVED_SECONDS
    await bench.tick()
    begun: set[str] = set()
    for name in small[3:]:  # every ten minutes a job ends and a job is created
        bench.now += 600
        bench.cluster.forget_job(runs.pop(0))
        bench.submit(gang(name, cpu="1", workers=1, created=bench.now))
        for _ in range(3):
            bench.cluster.mark_queue()
            await bench.tick()
            for uid in set(bench.started()) - begun:
                begun.add(uid)
                bench.cluster.forget_job(uid)
                if uid != "large":
                    bench.submit(running(f"run-{uid}", "a", cpu="1"))
                    runs.append(f"run-{uid}")
        if "large" in begun:
            break
    assert "large" in begun
    assert len(begun) < 15, "some jobs start before it, while its capacity is not free yet"


async def test_every_job_is_decided_on_between_two_reservations(bench: Bench) -> None:
    """Large jobs do not reserve capacity forever by passing it from one to the next."""
    bench.submit(running("runs", "a", cpu="1"))
    for number in range(3):
        bench.submit(gang(f"large-{number}", cpu="4", workers=1, created=number))
    bench.submit(gang("small", cpu="3", workers=1, created=9))
    bench.now = RESERVE_AFTER + 5
    await bench.tick()
    assert queue_of(bench).reservations.current.job == "large-0"  # type: ignore[union-attr]
    assert bench.started() == []
    bench.cluster.forget_job("large-0")
    await bench.tick()
    assert bench.started() == ["small"]


async def test_an_error_in_the_search_for_a_reservation_keeps_no_other_job_from_starting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def broken(uid: str, *more: Any, **named: Any) -> None:
        searched.append(uid)
        raise ArithmeticError("an amount that was not foreseen")

    monkeypatch.setattr(reservations, "reserve", broken)
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.submit(gang("young", cpu="1", workers=1, created=5))
    bench.now = RESERVE_AFTER
    tick = bench.planner.tick(bench.reconciler.now())
    assert [tracked.job.uid for tracked, _ in tick.failures] == ["head"]
    assert [tracked.job.uid for tracked, _ in tick.steps] == ["young"]
    assert bench.planner.tick(bench.reconciler.now()).failures == ()
    assert searched == ["head"]


def test_reservations_are_searched_for_a_few_jobs_in_each_tick_until_all_are_searched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def counted(uid: str, *more: Any, **named: Any) -> Any:
        searched.append(uid)
        return reserve(uid, *more, **named)

    monkeypatch.setattr(reservations, "reserve", counted)
    stays = {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "3"}}}]}
    metadata = {"namespace": "x", "name": "stays", "uid": "stays"}
    bench.cluster.observe_pod(None, parse_pod({"metadata": metadata, "spec": stays}))
    for number in range(10):  # no job fits beside the foreign pod, whatever ends
        bench.submit(gang(f"job-{number}", cpu=f"{2000 + number}m", workers=1))
    bench.planner.tick(bench.reconciler.now())
    bench.now = RESERVE_AFTER
    bench.cluster.mark_queue()
    results: list[int] = []
    while not results or bench.planner.tick(bench.reconciler.now()).remainder:
        results.append(len(searched))
    assert len(set(searched)) == len(searched) == 10
    assert max(now - before for before, now in pairwise(results)) <= MAX_SEARCHES


async def test_jobs_of_equal_shape_share_one_verdict_until_capacity_is_freed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def count_searches(members: Any, *more: Any, **named: Any) -> Any:
        sizes.append(len(members))
        return place(members, *more, **named)

    monkeypatch.setattr(capacity, "place", count_searches)
    for number in range(50):
        bench.submit(gang(f"five-{number}", workers=5, created=number))
        bench.submit(gang(f"six-{number}", workers=6, created=number))
    await _tick_all(bench)
    assert sorted(sizes) == [5, 6]
    assert last_verdict(bench, "five-7")[0] == last_verdict(bench, "six-7")[0]
    bench.cluster.mark_queue()
    await _tick_all(bench)
    assert sorted(sizes) == [5, 6]
    bench.cluster.observe_node(None, node("b", cpu="1"))
    await _tick_all(bench)
    assert sorted(sizes)[-1] == 6
    assert len(sizes) > 2  # there is more capacity now, so they were checked again


async def _tick_all(bench: Bench) -> None:
    """Tick until each of up to 128 jobs has been decided on."""
    for _ in range(3):
        await bench.tick()


async def test_no_job_is_planned_while_the_operator_has_many_pods_to_create(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="2000"))
    bench.submit(running("big", "b", cpu="1", workers=500))
    bench.submit(gang("small", workers=1, created=5))
    await bench.tick()
    assert bench.started() == []
    assert last_verdict(bench, "small")[0] == REASON_WAITING_FOR_OPERATOR
    bench.cluster.forget_job("big")
    await bench.tick()
    assert bench.started() == ["small"]


async def test_after_a_start_no_other_waiting_job_is_decided_on(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="20000", pods=20000))
    bench.submit(running("first", "b", cpu="1", workers=500))
    for number in range(20):
        bench.submit(gang(f"job-{number:02}", workers=500, created=5 + number))
    await bench.tick()
    assert last_verdict(bench, "job-19")[0] == REASON_WAITING_FOR_OPERATOR

    bench.cluster.forget_job("first")
    assert bench.planner.tick(bench.reconciler.now()).decided == 1
    bench.cluster.mark("job-19")
    assert bench.planner.tick(bench.reconciler.now()).decided == 1, "it may have changed"


async def test_a_new_policy_applies_to_jobs_that_wait_for_the_operator(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="2000"))
    bench.submit(running("big", "b", cpu="1", workers=500))
    bench.submit(gang("small", workers=1, created=5))
    await bench.tick()
    bench.planner.settings.observe_policy(TrainingPolicy("p", settings={names.COLOCATION: "off"}))
    bench.cluster.mark_queue()
    decided = bench.planner.tick(bench.reconciler.now())
    assert [tracked.job.uid for tracked, _ in decided.steps] == ["small"]


async def test_two_gangs_do_not_both_start_under_one_quota(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="8"))
    raw = {
        "metadata": {"namespace": "team", "name": "q"},
        "spec": {"hard": {"pods": "4"}},
        "status": {"hard": {"pods": "4"}, "used": {"pods": "0"}},
    }
    queue_of(bench).quotas.observe_quota(None, parse_quota(raw))
    started = running("first", "b", cpu="1", workers=3)
    bench.submit(started)  # its pods do not exist yet, so the quota does not know of them
    bench.submit(gang("second", workers=3, created=1))
    await bench.tick()
    assert bench.started() == []
    assert last_verdict(bench, "second")[0] == REASON_QUOTA


async def test_positions_in_the_queue_are_exact_at_its_head(bench: Bench) -> None:
    for number in range(30):
        bench.submit(gang(f"job-{number}", workers=5, created=number))
    await bench.tick()
    assert "it is first in the queue" in last_verdict(bench, "job-0")[1]
    assert "3 jobs are ahead" in last_verdict(bench, "job-3")[1]
    assert "; 19 jobs are ahead" in last_verdict(bench, "job-19")[1]
    assert "about 20 jobs are ahead" in last_verdict(bench, "job-22")[1]
    assert "about 25 jobs are ahead" in last_verdict(bench, "job-24")[1]
    bench.reports.clear()
    bench.cluster.forget_job("job-0")
    await bench.tick()
    assert bench.reports == []  # positions are shown once a second at most
    assert bench.planner.next_alarm() == bench.now + 1
    bench.now += 1
    await bench.tick()
    assert "2 jobs are ahead" in last_verdict(bench, "job-3")[1]
    assert "job-29" not in {uid for uid, _, _ in bench.reports}  # its rounded position is the same


async def test_far_back_in_the_queue_positions_are_rounded_to_a_tenth(bench: Bench) -> None:
    for number in range(200):
        bench.submit(gang(f"job-{number}", workers=5, created=number))
    for gone in range(0, 60, 3):
        bench.cluster.forget_job(f"job-{gone}")
        bench.now += 1
        await bench.tick()
    queue = bench.planner.queue
    shown = [queue.ahead(tracked) or 0 for tracked in queue.queued()]
    assert shown[:20] == [*range(20)]
    assert all(number % (10 if number >= 100 else 5) == 0 for number in shown[20:])
    assert all(abs(number - ahead) <= ahead / 10 for ahead, number in enumerate(shown))


SHORTEST = parse_policy({"metadata": {"name": "p"}, "spec": {"queue": {"order": "shortest"}}})


async def test_a_new_order_of_the_queue_changes_the_positions_that_are_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"first": 99.0, "second": 1.0}
    monkeypatch.setattr(queue_of(bench).durations, "known", lambda job: known[job.uid])

    async def shown() -> list[int | None]:
        bench.now += 1
        await bench.tick()
        return [queue_of(bench).ahead(bench.cluster.jobs[uid]) for uid in ("first", "second")]

    for number, uid in enumerate(("first", "second")):
        bench.submit(gang(uid, workers=6, created=number))
    assert await shown() == [0, 1]
    bench.planner.settings.observe_policy(SHORTEST)
    bench.cluster.mark_queue()
    assert await shown() == [1, 0]


async def test_a_job_preempts_pods_of_lower_priority_after_a_minute(bench: Bench) -> None:
    queue_of(bench).observe_class(None, PriorityClass("high", 100))
    low = {
        "metadata": {"namespace": "x", "name": "low", "uid": "low"},
        "spec": {
            "nodeName": "a",
            "priority": 5,
            "containers": [{"resources": {"requests": {"cpu": "4"}}}],
        },
    }
    bench.cluster.observe_pod(None, parse_pod(low))
    urgent = gang("urgent", workers=2)
    urgent.prioritized("high")
    bench.submit(urgent)
    bench.submit(gang("usual", workers=2))
    await bench.tick()
    assert (
        "pods of lower priority are preempted for it after 60 s" in last_verdict(bench, "urgent")[1]
    )
    assert "preempted" not in last_verdict(bench, "usual")[1]
    bench.now = 61.0
    bench.cluster.mark_queue()
    await bench.tick()
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Unsuspend)] == ["urgent"]
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Release)] == []


async def test_with_an_autoscaler_a_waiting_job_is_released_after_a_minute(bench: Bench) -> None:
    queue_of(bench).observe_autoscaler(present=True)
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("wants", workers=2))
    await bench.tick()
    assert "an autoscaler may add nodes" in last_verdict(bench, "wants")[1]
    bench.now = 61.0
    bench.cluster.mark_queue()
    await bench.tick()
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Release)] == ["wants"]


def test_reserve_after_is_five_minutes_unless_a_policy_says_otherwise() -> None:
    assert parse_policy({}).placement.reserve_after == RESERVE_AFTER
    spec = {"spec": {"placement": {"reserveAfter": "90s"}}}
    assert parse_policy(spec).placement.reserve_after == 90.0

"""The queue as the loop sees it: order, reserved capacity, shared verdicts, and messages."""

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
from kfext.names import (
    REASON_NO_ROOM,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_WAITING_FOR_OPERATOR,
)
from kfext.state.waiting import reservations
from kfext.state.waiting.reservations import MOST_SEARCHES, RESERVED_SECONDS
from tests.builders import JobBuilder, node
from tests.unit.controller.bench import Bench, gang, line, running, told

RESERVE_AFTER = 300.0


async def test_D5_a_younger_job_does_not_take_reserved_capacity(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="1"))
    bench.submit(running("runs", "a", cpu="3"))  # one of four CPUs of node a is free
    bench.submit(
        gang("head", cpu="1", workers=4, created=10).annotated("kfext.dev/colocation", "required")
    )
    bench.now = 10.0
    await bench.tick()
    assert told(bench, "head")[0] == REASON_NO_ROOM
    assert line(bench).reservations.current is None
    bench.now = 10.0 + RESERVE_AFTER
    bench.cluster.mark("head")
    bench.submit(gang("young", cpu="1", workers=1, created=20))
    bench.submit(gang("second", cpu="1", workers=1, created=30))
    await bench.tick()
    kept = line(bench).reservations.current
    assert kept is not None
    assert (kept.job, kept.nodes, kept.waits_for) == ("head", ("a",), ("runs",))
    assert bench.started() == ["young"]  # on node b, beside the reservation
    reason, sentence = told(bench, "second")
    assert reason == REASON_RESERVED
    assert "reserved for PyTorchJob team/head, which waits for PyTorchJob team/runs" in sentence
    reason, sentence = told(bench, "head")
    assert "it is first in the queue; a is reserved for it until PyTorchJob team/runs" in sentence


async def test_a_job_that_is_not_first_shows_what_decides_its_place(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="4"))
    for number, name in enumerate(("first", "second")):
        bench.submit(gang(name, created=10.0 * number))
    await bench.tick()
    assert "its place" not in told(bench, "first")[1]
    assert told(bench, "second")[1].endswith(
        "; its place follows from priority 0, its age and the usual length of jobs"
    )


def elsewhere(builder: JobBuilder, namespace: str) -> JobBuilder:
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
    assert told(bench, "head")[0] == REASON_NO_ROOM
    bench.now = 10.0 + RESERVE_AFTER
    bench.cluster.mark("head")
    await bench.tick()
    kept = line(bench).reservations.current
    assert kept is not None
    assert (kept.job, kept.nodes, kept.waits_for) == ("head", ("b",), ("runs",))


async def test_jobs_of_other_namespaces_are_counted_and_not_named(bench: Bench) -> None:
    bench.planner.settings.observe_namespace(None, Namespace("secret", {names.MANAGED: "true"}))
    bench.submit(running("runs", "a", cpu="2"))
    bench.submit(elsewhere(running("other", "a", cpu="1"), "secret"))
    bench.submit(
        elsewhere(gang("head", cpu="1", workers=4), "secret").annotated(
            "kfext.dev/colocation", "required"
        )
    )
    bench.now = RESERVE_AFTER
    await bench.tick()
    bench.submit(gang("young", cpu="1", workers=1, created=20))
    bench.submit(elsewhere(gang("there", cpu="1", workers=1, created=30), "secret"))
    await bench.tick()
    sentence = told(bench, "young")[1]
    assert "secret" not in sentence
    assert "for 1 job of another namespace, which waits for PyTorchJob team/runs and 1" in sentence
    # A job of the same shape in another namespace is shown its own names.
    sentence = told(bench, "there")[1]
    assert "for PyTorchJob secret/head, which waits for PyTorchJob secret/other and 1" in sentence
    assert (
        "until PyTorchJob secret/other and 1 job of another namespace have ended"
        in (told(bench, "head")[1])
    )


async def test_a_job_known_to_end_in_time_starts_in_reserved_capacity(bench: Bench) -> None:
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
    assert "until 00:16:40 UTC at the latest" in told(bench, "late")[1]
    assert "activeDeadlineSeconds or its last runs end it before" in told(bench, "late")[1]


async def test_the_head_starts_in_its_reservation_and_ends_it(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    assert line(bench).reservations.current is not None
    bench.cluster.forget_job("runs")
    await bench.tick()
    assert bench.started() == ["head"]
    assert line(bench).reservations.current is None
    assert len(bench.cluster.ledger) == 0  # the writer of this test only says that it wrote


async def test_a_reservation_does_not_exclude_a_job_of_higher_priority(bench: Bench) -> None:
    line(bench).observe_class(None, PriorityClass("high", 100, preempts=False))
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
    for made in jobs:
        bench.submit(made)
    for made in reversed(jobs):
        other.submit(made)
    await bench.tick()
    await other.tick()
    assert line(bench).reservations.current == line(other).reservations.current
    assert line(bench).reservations.current is not None
    assert bench.started() == other.started() == ["young"]


async def test_a_job_that_its_quota_stops_reserves_no_capacity(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("head", cpu="1", workers=4))
    bench.now = RESERVE_AFTER
    await bench.tick()
    assert line(bench).reservations.current is not None
    status = {"hard": {"pods": "2"}, "used": {"pods": "0"}}
    of_team = {"metadata": {"namespace": "team", "name": "q"}, "status": status}
    line(bench).quotas.observe_quota(None, parse_quota(of_team))
    bench.submit(gang("young", cpu="1", workers=1, created=5))
    bench.cluster.mark_queue()
    await bench.tick()
    assert told(bench, "head")[0] == REASON_QUOTA
    assert line(bench).reservations.current is None
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
    assert line(bench).reservations.current is None
    bench.submit(gang("young", cpu="6", workers=1, created=5))
    await bench.tick()
    assert bench.started() == ["young"]
    bench.now += RESERVE_AFTER - 1
    await bench.tick()
    assert line(bench).reservations.current is None
    assert bench.planner.next_alarm() == bench.now + 1
    bench.now += 1
    await bench.tick()
    assert line(bench).reservations.current.nodes == ("b",)  # type: ignore[union-attr]


async def test_capacity_is_reserved_for_a_time_and_then_others_follow(bench: Bench) -> None:
    bench.submit(running("runs", "a", cpu="1"))
    bench.submit(gang("first", cpu="4", workers=1))
    bench.submit(gang("second", cpu="4", workers=1, created=1))
    bench.now = RESERVE_AFTER + 1
    await bench.tick()
    holders = [line(bench).reservations.current.job]  # type: ignore[union-attr]
    began = bench.now
    bench.now = began + RESERVED_SECONDS - 1
    bench.submit(gang("young", cpu="1", workers=1, created=5))
    await bench.tick()
    assert bench.started() == []
    for _ in range(3):
        bench.now = began = began + RESERVED_SECONDS
        await bench.tick()
        holders.append(line(bench).reservations.current.job)  # type: ignore[union-attr]
    assert set(bench.started()) == {"young"}
    assert holders == ["first", "second", "first", "second"]


async def test_a_stream_of_new_jobs_takes_no_turn_from_a_job_that_had_a_reservation(
    bench: Bench,
) -> None:
    runs = [f"runs-{number}" for number in range(4)]
    for name in runs:
        bench.submit(running(name, "a", cpu="1"))
    bench.submit(gang("large", cpu="4", workers=1))
    small = [f"small-{number}" for number in range(60)]
    for name in small[:3]:
        bench.submit(gang(name, cpu="1", workers=1, created=1))
    bench.now = RESERVE_AFTER + 1
    await bench.tick()
    assert line(bench).reservations.current.job == "large"  # type: ignore[union-attr]
    bench.now += RESERVED_SECONDS
    await bench.tick()
    begun: set[str] = set()
    for name in small[3:]:  # a job ends every ten minutes, and as often a job comes
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
    assert len(begun) < 15, "after the jobs that were due before, and some while room is collected"


async def test_every_job_is_decided_on_between_two_reservations(bench: Bench) -> None:
    """Large jobs do not reserve capacity forever by passing it from one to the next."""
    bench.submit(running("runs", "a", cpu="1"))
    for number in range(3):
        bench.submit(gang(f"large-{number}", cpu="4", workers=1, created=number))
    bench.submit(gang("small", cpu="3", workers=1, created=9))
    bench.now = RESERVE_AFTER + 5
    await bench.tick()
    assert line(bench).reservations.current.job == "large-0"  # type: ignore[union-attr]
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


def test_few_reservations_are_searched_in_one_tick_and_all_in_the_next_ones(
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
    for number in range(10):  # none fits beside what stays, whatever ends
        bench.submit(gang(f"job-{number}", cpu=f"{2000 + number}m", workers=1))
    bench.planner.tick(bench.reconciler.now())
    bench.now = RESERVE_AFTER
    bench.cluster.mark_queue()
    results: list[int] = []
    while not results or bench.planner.tick(bench.reconciler.now()).remainder:
        results.append(len(searched))
    assert len(set(searched)) == len(searched) == 10
    assert max(now - before for before, now in pairwise(results)) <= MOST_SEARCHES


async def test_jobs_of_equal_shape_share_one_verdict_until_capacity_is_freed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counting(members: Any, *more: Any, **named: Any) -> Any:
        asked.append(len(members))
        return place(members, *more, **named)

    monkeypatch.setattr(capacity, "place", counting)
    for number in range(50):
        bench.submit(gang(f"five-{number}", workers=5, created=number))
        bench.submit(gang(f"six-{number}", workers=6, created=number))
    await _through(bench)
    assert sorted(asked) == [5, 6]
    assert told(bench, "five-7")[0] == told(bench, "six-7")[0]
    bench.cluster.mark_queue()
    await _through(bench)
    assert sorted(asked) == [5, 6]
    bench.cluster.observe_node(None, node("b", cpu="1"))
    await _through(bench)
    assert sorted(asked)[-1] == 6
    assert len(asked) > 2  # there is more capacity now, so they were checked again


async def _through(bench: Bench) -> None:
    """Turns of the loop in which each of up to 128 jobs is decided on."""
    for _ in range(3):
        await bench.tick()


async def test_no_job_is_planned_while_the_operator_has_many_pods_to_create(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="2000"))
    bench.submit(running("big", "b", cpu="1", workers=500))
    bench.submit(gang("small", workers=1, created=5))
    await bench.tick()
    assert bench.started() == []
    assert told(bench, "small")[0] == REASON_WAITING_FOR_OPERATOR
    bench.cluster.forget_job("big")
    await bench.tick()
    assert bench.started() == ["small"]


async def test_jobs_that_wait_for_the_operator_again_are_not_decided_on_again(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("b", cpu="20000", pods=20000))
    bench.submit(running("first", "b", cpu="1", workers=500))
    for number in range(20):
        bench.submit(gang(f"job-{number:02}", workers=500, created=5 + number))
    await bench.tick()
    assert told(bench, "job-19")[0] == REASON_WAITING_FOR_OPERATOR

    bench.cluster.forget_job("first")
    assert bench.planner.tick(bench.reconciler.now()).decided == 1
    bench.cluster.mark("job-19")
    assert bench.planner.tick(bench.reconciler.now()).decided == 1, "it may have changed"


async def test_a_policy_reaches_jobs_that_wait_for_the_operator(bench: Bench) -> None:
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
    line(bench).quotas.observe_quota(None, parse_quota(raw))
    started = running("first", "b", cpu="1", workers=3)
    bench.submit(started)  # its pods do not exist yet, so the quota does not know of them
    bench.submit(gang("second", workers=3, created=1))
    await bench.tick()
    assert bench.started() == []
    assert told(bench, "second")[0] == REASON_QUOTA


async def test_positions_in_the_queue_are_exact_at_its_head(bench: Bench) -> None:
    for number in range(30):
        bench.submit(gang(f"job-{number}", workers=5, created=number))
    await bench.tick()
    assert "it is first in the queue" in told(bench, "job-0")[1]
    assert "3 jobs are ahead" in told(bench, "job-3")[1]
    assert "; 19 jobs are ahead" in told(bench, "job-19")[1]
    assert "about 20 jobs are ahead" in told(bench, "job-22")[1]
    assert "about 25 jobs are ahead" in told(bench, "job-24")[1]
    bench.reports.clear()
    bench.cluster.forget_job("job-0")
    await bench.tick()
    assert bench.reports == []  # positions are shown once a second at most
    assert bench.planner.next_alarm() == bench.now + 1
    bench.now += 1
    await bench.tick()
    assert "2 jobs are ahead" in told(bench, "job-3")[1]
    assert [of for of, _, _ in bench.reports if of == "job-29"] == []  # near enough


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
    assert all(told % 5 == 0 and told % (10 if told >= 100 else 5) == 0 for told in shown[20:])
    assert all(abs(told - ahead) <= ahead / 10 for ahead, told in enumerate(shown))


SHORTEST = parse_policy({"metadata": {"name": "p"}, "spec": {"queue": {"order": "shortest"}}})


async def test_a_new_order_moves_the_positions_that_are_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"first": 99.0, "second": 1.0}
    monkeypatch.setattr(line(bench).durations, "known", lambda job: known[job.uid])

    async def shown() -> list[int | None]:
        bench.now += 1
        await bench.tick()
        return [line(bench).ahead(bench.cluster.jobs[uid]) for uid in ("first", "second")]

    for number, uid in enumerate(("first", "second")):
        bench.submit(gang(uid, workers=6, created=number))
    assert await shown() == [0, 1]
    bench.planner.settings.observe_policy(SHORTEST)
    bench.cluster.mark_queue()
    assert await shown() == [1, 0]


async def test_a_job_preempts_pods_of_lower_priority_outside_gangs_after_a_minute(
    bench: Bench,
) -> None:
    line(bench).observe_class(None, PriorityClass("high", 100))
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
    assert "pods of lower priority are preempted for it after 60 s" in told(bench, "urgent")[1]
    assert "preempted" not in told(bench, "usual")[1]
    bench.now = 61.0
    bench.cluster.mark_queue()
    await bench.tick()
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Unsuspend)] == ["urgent"]
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Release)] == []


async def test_with_an_autoscaler_a_job_without_capacity_is_released_after_a_minute(
    bench: Bench,
) -> None:
    line(bench).observe_autoscaler(present=True)
    bench.submit(running("runs", "a", cpu="3"))
    bench.submit(gang("wants", workers=2))
    await bench.tick()
    assert "an autoscaler may add nodes" in told(bench, "wants")[1]
    bench.now = 61.0
    bench.cluster.mark_queue()
    await bench.tick()
    assert [uid for uid, step in bench.writer.steps if isinstance(step, Release)] == ["wants"]


def test_reserve_after_is_five_minutes_unless_a_policy_says_otherwise() -> None:
    assert parse_policy({}).placement.reserve_after == RESERVE_AFTER
    spec = {"spec": {"placement": {"reserveAfter": "90s"}}}
    assert parse_policy(spec).placement.reserve_after == 90.0

"""Jobs that are moved: when a move pays, and the effect of faults and people."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.steps import RequestCheckpoint, Suspend
from kfext.core.placement.gang import members_of
from kfext.model.job_state import state_of
from kfext.model.plan import NO_SLOTS, Places
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.quota import Quota
from kfext.model.scale_state import MoveState
from kfext.model.timestamps import timestamp
from kfext.names import REASON_MOVING
from kfext.sim.cluster import Cluster, World
from kfext.sim.jobs import JobSpec, Pace, Saving, Style
from kfext.sim.training import Doing
from kfext.sim.worlds import random_world
from kfext.state.mirror.holds import HOLD_SECONDS
from kfext.state.running.move.executor import MoveExecutor
from tests.builders import executor_of
from tests.unit.sim.bed import MASTER, Bed, refuse
from tests.unit.sim.rules import Rules

SPREAD = JobSpec(
    "train", "PyTorchJob", Style.GANG, 5.0, 3, Pace(1.0, 0.0, 0.0, spread=0.6), 6000,
    leaders=1, saving=Saving.ON_REQUEST, migrate="checkpointed",
)  # fmt: skip
STAYING = replace(MASTER, workers=1, name="staying", steps=6000, arrives=1.0)
LEAVING = replace(STAYING, name="leaving", steps=300, arrives=2.0)
ENDS = 170.0
"""The second at which LEAVING has ended and SPREAD fits on one node."""
LATER = 900.0


def spread_bed(
    spec: JobSpec = SPREAD, *others: JobSpec, policy: TrainingPolicy | None = None
) -> Bed:
    """A job with pods that had to go to two nodes, until another job ends."""
    return Bed(STAYING, LEAVING, spec, *others, policy=policy, a=4000, b=4000)


def nodes_of(of: Bed, name: str = "train") -> list[str]:
    return sorted({live.pod.node_name for live in of.job(name).pods.values()})


def stops(of: Bed) -> int:
    """How often the job was suspended for a move."""
    steps = [
        write.step for write in of.driver.written if write.job == "train" and not write.refused
    ]
    return sum(isinstance(step, Suspend) and step.state.reason == REASON_MOVING for step in steps)


def shown(of: Bed) -> str:
    status = of.driver.shown["train", names.MOVED]
    return status.verdict.reason if status else ""


def is_stopped(of: Bed) -> bool:
    return stops(of) > 0


def is_off(of: Bed) -> bool:
    """Whether the pods of the stopped job are deleted."""
    return is_stopped(of) and not of.job().pods


def is_started(of: Bed) -> bool:
    """Whether the job has pods again, which do not run yet."""
    return is_stopped(of) and not of.job().job.suspend and bool(of.job().pods)


def until(of: Bed, when: Callable[[Bed], bool]) -> Bed:
    while not when(of):
        of.after(1)
        assert of.clock.now < LATER
    return of


def check(of: Bed, *, lost: float = 10.0) -> None:
    """Both holds are released, and only the seconds since the last checkpoint were lost."""
    holds = of.planner.cluster.holds
    assert (holds.claims_of("uid-train"), holds.holders()) == ((), ())
    assert of.job().training.lost * SPREAD.pace.seconds(4) <= lost
    assert not of.operator.failed


# --- when -----------------------------------------------------------------------------------------


def test_S4_a_spread_job_continues_from_a_checkpoint_on_one_node_once_it_fits() -> None:
    of = spread_bed().at(ENDS)
    assert (nodes_of(of), shown(of)) == (["a", "b"], names.REASON_STAYS)
    of.at(300)
    assert (nodes_of(of), stops(of), shown(of)) == (["b"], 1, names.REASON_TOGETHER)
    assert of.job().training.doing is Doing.TRAINS
    moved = of.driver.shown["train", names.MOVED]
    assert moved is not None
    assert (moved.holds, moved.verdict.reason) == (True, names.REASON_TOGETHER)
    what, at = moved.verdict.message.split(" at ")
    assert what == "its pods are on 1 node, after a move from 2 nodes"
    assert ENDS <= timestamp(at) - (of.clock.wall - of.clock.now) <= 300
    check(of)
    of.run()
    assert stops(of) == 1


STAYS: dict[str, tuple[dict[str, Any], str]] = {
    "without the annotation": ({"migrate": ""}, ""),
    "without a checkpoint": ({"saving": Saving.NEVER}, names.REASON_NO_CHECKPOINT),
    "with an unknown end": ({"shows_end": False}, names.REASON_STAYS),
    "near its end": ({"steps": 700}, names.REASON_STAYS),
}


@pytest.mark.parametrize(("changes", "reason"), STAYS.values(), ids=STAYS)
def test_a_job_stays(changes: dict[str, Any], reason: str) -> None:
    of = spread_bed(replace(SPREAD, **changes)).at(270)
    assert (stops(of), nodes_of(of)) == (0, ["a", "b"])
    assert (
        of.driver.shown.get(("train", names.MOVED)) is None if not reason else shown(of) == reason
    )


def test_S3_no_job_is_moved_twice_in_10_minutes() -> None:
    of = spread_bed(replace(SPREAD, steps=20_000)).at(100)
    moved = replace(state_of(of.job().job), move=MoveState(before=3, at=of.clock.wall))
    of.annotate(names.STATE, moved.encode(job_uid="uid-train"))
    of.at(690)
    assert (nodes_of(of), stops(of)) == (["a", "b"], 0)
    assert (nodes_of(of.at(800)), stops(of)) == (["b"], 1)


def test_S3_moves_in_the_cluster_are_30_s_apart() -> None:
    of = spread_bed().at(ENDS - 10)
    executor_of(of.planner, MoveExecutor)._began = later = of.driver.moment.monotonic + 60
    while not stops(of):
        of.after(1)
    assert of.driver.moment.monotonic >= later + 30


def test_S3_no_job_goes_to_a_node_that_does_not_fit() -> None:
    taker = replace(STAYING, name="taker", arrives=ENDS - 20, steps=20_000)
    of = spread_bed(SPREAD, taker).at(600)
    assert (nodes_of(of), stops(of), shown(of)) == (["a", "b"], 0, names.REASON_STAYS)


MODES = {Mode.OBSERVE: names.REASON_WOULD_MIGRATE, Mode.OFF: ""}


@pytest.mark.parametrize("mode", MODES)
def test_an_administrator_keeps_jobs_where_they_are(mode: Mode) -> None:
    policy = TrainingPolicy("p", companion={"migrate": PolicyChoice(mode)})
    of = spread_bed(policy=policy).at(300)
    assert (stops(of), nodes_of(of)) == (0, ["a", "b"])
    assert (shown(of) if MODES[mode] else "") == MODES[mode]


def test_a_waiting_job_gets_the_capacity_first() -> None:
    wide = replace(STAYING, name="wide", workers=3, arrives=60.0, steps=4000)
    of = spread_bed(SPREAD, wide).at(400)
    assert stops(of) == 0


def test_a_job_that_waits_for_an_autoscaler_gets_the_capacity_first() -> None:
    wide = replace(STAYING, name="wide", workers=3, arrives=155.0, steps=4000)
    of = spread_bed(SPREAD, wide)
    of.planner.queue.observe_autoscaler(present=True)
    of.at(210)  # then kfext releases the waiting job
    assert stops(of) == 0


def test_a_job_that_saves_nothing_in_time_is_not_moved() -> None:
    of = spread_bed(replace(SPREAD, answers=10_000.0)).at(400)
    assert (stops(of), shown(of)) == (0, names.REASON_AWAITS_CHECKPOINT)
    requests = [write for write in of.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert len(requests) == 1
    check(of)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_the_controller_dies_during_a_move(when: Callable[[Bed], bool]) -> None:
    of = until(spread_bed().at(ENDS), when)
    of.restart()
    of.after(2)
    assert when is is_started or of.planner.cluster.holds.claims_of("uid-train")
    of.at(320)
    assert (nodes_of(of), stops(of)) == (["b"], 1)
    assert of.job().training.doing is Doing.TRAINS
    of.after(HOLD_SECONDS)
    check(of)


def is_asked(of: Bed) -> bool:
    return shown(of) == names.REASON_AWAITS_CHECKPOINT


@pytest.mark.parametrize("when", [is_asked, is_off, is_started])
def test_the_controller_dies_with_its_next_write(when: Callable[[Bed], bool]) -> None:
    of = until(spread_bed().at(ENDS), when)
    of.faults.dies = True
    of.at(320)
    assert (nodes_of(of), of.job().training.doing) == (["b"], Doing.TRAINS)
    of.after(HOLD_SECONDS)
    check(of)


def test_a_refused_stop_changes_nothing_and_is_tried_again() -> None:
    of = spread_bed().at(ENDS)
    refuse(of, lambda uid, change: uid == "uid-train")
    of.at(330)
    assert (nodes_of(of), stops(of)) == (["b"], 1)
    check(of)


def three_nodes(when: Callable[[Bed], bool]) -> Bed:
    """A job on half of a and b, on its way to c, which another job has left."""
    filling = replace(STAYING, name="filling", arrives=2.0)
    leaving = replace(LEAVING, workers=3, arrives=3.0, steps=700)
    of = Bed(STAYING, filling, leaving, SPREAD, policy=None, a=4000, b=4000, c=4000)
    of.at(150)
    assert nodes_of(of) == ["a", "b"]
    return until(of, when)


def submit_late(of: Bed, *, number: int = 2) -> None:
    """Submit jobs that would take the capacity that the job left."""
    for at in range(number):
        of.submit(replace(STAYING, name=f"late-{at}", arrives=of.clock.now, steps=200))


@pytest.mark.parametrize("when", [is_stopped, is_off], ids=["while it ends", "once it is deleted"])
def test_S4_a_job_goes_back_if_its_target_is_lost(
    when: Callable[[Bed], bool],
) -> None:
    of = three_nodes(when)
    of.lose("c")
    submit_late(of)
    of.after(60)
    assert (nodes_of(of), stops(of)) == (["a", "b"], 1)
    assert of.job().training.doing is Doing.TRAINS
    check(of)


def test_S4_a_job_goes_back_if_its_capacity_is_stolen() -> None:
    of = three_nodes(is_off)
    of.faults.closed.add("c")  # kube-scheduler binds no pod there, and kfext cannot see why
    submit_late(of)
    of.after(120)
    assert (nodes_of(of), stops(of)) == (["a", "b"], 1)
    assert of.job().training.doing is Doing.TRAINS
    check(of)


def test_a_job_keeps_both_holds_if_its_start_is_refused_once() -> None:
    of = three_nodes(is_off)
    refuse(of, lambda uid, _change: uid == "uid-train")
    submit_late(of)
    until(of, is_started).after(1)
    of.lose("c")
    of.after(100)
    assert (nodes_of(of), stops(of)) == (["a", "b"], 1)


def test_a_job_that_has_lost_both_holds_waits_and_starts_first() -> None:
    of = three_nodes(is_off)
    for node in ("b", "c"):
        of.lose(node)
    submit_late(of)
    of.after(60)
    assert of.job().job.in_queue
    of.regain("c")
    of.after(60)
    assert nodes_of(of) == ["c"]
    check(of)


def test_no_other_job_gets_either_hold_while_a_job_moves() -> None:
    of = until(spread_bed().at(ENDS), is_stopped)
    for number in range(4):
        of.submit(
            replace(STAYING, name=f"late-{number}", workers=1, arrives=of.clock.now, steps=200)
        )
    until(of, lambda of: of.job().training.doing is Doing.TRAINS and not of.job().job.suspend)
    assert nodes_of(of) == ["b"]
    check(of)


def test_a_job_that_a_person_suspends_stays_suspended() -> None:
    of = until(spread_bed().at(ENDS), is_off)
    of.api.patch_job(
        "uid-train", [{"op": "remove", "path": "/metadata/annotations/kfext.dev~1held"}]
    )
    of.after(60)
    assert of.job().job.suspend
    check(of)


@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_a_job_edited_during_its_move_continues(when: Callable[[Bed], bool]) -> None:
    of = until(spread_bed().at(ENDS), when)
    of.scale(2)
    of.after(HOLD_SECONDS)
    assert of.job().training.workers == 3
    check(of)


@pytest.mark.parametrize("end", ["fails", "is deleted"])
@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_a_job_that_ends_during_its_move_releases_both_holds(
    when: Callable[[Bed], bool], end: str
) -> None:
    of = until(spread_bed().at(ENDS), when)
    if end == "fails":
        of.api.set_condition(of.job(), "Failed", "True")
    else:
        of.write("train", "metadata", "deletionTimestamp", value="2026-01-01T00:00:00Z")
    of.after(10)
    check(of)


def test_a_job_that_opts_out_during_its_move_arrives() -> None:
    of = until(spread_bed().at(ENDS), is_off)
    of.annotate(names.MIGRATE, "never")
    of.at(300)
    assert nodes_of(of) == ["b"]
    check(of)


@pytest.mark.histories
@pytest.mark.parametrize("block", [1, 2])
def test_the_rules_hold_where_all_jobs_may_move(block: int) -> None:
    moves = 0
    for seed in range(10 * block, 10 * block + 10):
        world = random_world(seed)
        jobs = tuple(
            replace(job, migrate="checkpointed", steps=3 * job.steps) for job in world.jobs
        )
        rules = Rules(Cluster(World(world.nodes, jobs), seed))
        rules.cluster.run()
        assert rules.ended() == []
        written = rules.cluster.driver.written
        moves += sum(
            isinstance(write.step, Suspend) and write.step.state.reason == REASON_MOVING
            for write in written
        )
        holds = rules.cluster.planner.cluster.holds
        assert [
            holds.claims_of(live.uid) for live in rules.cluster.jobs if holds.claims_of(live.uid)
        ] == []
    assert moves > 0


# --- capacity for other jobs meanwhile ------------------------------------------------------------


def late_jobs(of: Bed) -> None:
    """Submit three jobs that would fit where the job comes from and where it goes."""
    for number in range(3):
        late = replace(STAYING, name=f"late-{number}", arrives=of.clock.now, steps=3000)
        of.submit(replace(late, leaders=1))


@pytest.mark.parametrize("when", [is_stopped, is_off])
def test_a_new_controller_keeps_both_holds_from_its_first_decision_on(
    when: Callable[[Bed], bool],
) -> None:
    of = until(spread_bed().at(ENDS), when)
    late_jobs(of)
    of.restart()
    of.after(60)
    assert (nodes_of(of), of.job().training.doing) == (["b"], Doing.TRAINS)


def test_a_stop_without_an_answer_keeps_both_holds() -> None:
    of = spread_bed().at(ENDS)
    of.faults.loses = lambda _uid, _change: of.job().job.suspend
    while not of.job().job.suspend:
        of.after(1)
    of.faults.loses = lambda _uid, _change: False
    late_jobs(of)
    of.after(60)
    assert (nodes_of(of), of.job().training.doing) == (["b"], Doing.TRAINS)


def test_a_stop_that_never_arrived_keeps_its_holds_for_30_s() -> None:
    of = spread_bed().at(ENDS)
    refuse(of, lambda uid, _: uid == "uid-train")
    while not of.planner.cluster.holds.holders():
        of.after(1)
    assert not of.job().job.suspend
    refused = of.clock.now
    while of.planner.cluster.holds.holders():
        of.after(1)
        assert of.clock.now <= refused + 31
    assert not of.job().job.suspend


def limited(of: Bed, *, pods: int) -> Callable[[int], None]:
    """Give the namespace a quota that is charged as pods come and go; return a setter of it."""
    found: list[Quota] = []
    most = [pods]

    def charge(*_: Any) -> None:
        used = sum(not live.pod.finished for job in of.jobs for live in job.pods.values())
        quota = Quota("team", "pods", hard={"pods": most[0]}, used={"pods": used})
        of.planner.queue.quotas.observe_quota(found[-1] if found else None, quota)
        found.append(quota)

    def allow(pods: int) -> None:
        most[0] = pods
        charge()

    of.api.on_pod.append(charge)
    of.api.on_gone.append(charge)
    charge()
    return allow


def test_a_job_stays_if_a_quota_would_not_let_it_start_again() -> None:
    of = spread_bed()
    allow = limited(of, pods=20)
    of.at(120)
    allow(5)
    of.at(300)
    assert (stops(of), nodes_of(of), shown(of)) == (0, ["a", "b"], names.REASON_STAYS)


def test_a_move_that_has_ended_keeps_no_later_promise() -> None:
    of = three_nodes(is_off)
    for node in ("b", "c"):
        of.lose(node)
    of.after(HOLD_SECONDS + 10)
    holds, tracked = of.planner.cluster.holds, of.planner.cluster.jobs["uid-train"]
    assert (holds.holders(), bool(tracked.state.move.source)) == ((), True)
    of.regain("c")
    members = members_of(tracked.job)
    there = Places({found.key: "c" for found in members}, NO_SLOTS)
    holds.hold(HoldKind.RESCUE, "uid-train", members, there)
    while of.job().job.suspend:
        of.after(1)
    assert holds.holders() == ()


def test_a_job_that_is_stopped_keeps_its_part_of_the_quota() -> None:
    waits = replace(
        STAYING, name="waits", workers=3, leaders=1, cpu=500, uses=500, arrives=60.0, steps=8000
    )
    of = Bed(STAYING, LEAVING, SPREAD, waits, policy=None, a=4000, b=4000, c=2000)
    limited(of, pods=8)
    of.at(250)
    assert (stops(of), nodes_of(of), nodes_of(of, "waits")) == (1, ["b"], [])


def test_a_job_that_stayed_spread_is_moved_again_after_an_hour() -> None:
    filling = replace(STAYING, name="filling", arrives=2.0, steps=100_000)
    leaving = replace(LEAVING, workers=3, arrives=3.0, steps=700)
    of = Bed(
        replace(STAYING, steps=100_000), filling, leaving, replace(SPREAD, steps=60_000),
        policy=None, a=4000, b=4000, c=4000,
    )  # fmt: skip
    of.at(150)
    of.faults.closed.add("c")
    of.at(3600)
    assert (stops(of), nodes_of(of)) == (1, ["a", "b"])


def test_a_job_with_an_earlier_answer_is_asked_once() -> None:
    of = spread_bed(replace(SPREAD, steps=9000, answers=30.0)).at(60)
    of.job().training.request(1)
    until(of, is_stopped)
    asked = [write for write in of.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert [write.job for write in asked] == ["train"]


def test_a_job_that_Kueue_takes_over_during_its_move_releases_both_holds() -> None:
    of = until(spread_bed().at(ENDS), is_off)
    of.write("train", "metadata", "labels", value={names.KUEUE_QUEUE: "queue"})
    of.after(2)
    assert of.planner.cluster.holds.holders() == ()

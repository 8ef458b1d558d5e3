"""Jobs that are moved: when a move pays, and what faults and users do to it."""

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


def nodes_of(bed: Bed, name: str = "train") -> list[str]:
    return sorted({live.pod.node_name for live in bed.job(name).pods.values()})


def stops(bed: Bed) -> int:
    """How often the job was suspended for a move."""
    steps = [
        write.step for write in bed.driver.written if write.job == "train" and not write.refused
    ]
    return sum(isinstance(step, Suspend) and step.state.reason == REASON_MOVING for step in steps)


def shown(bed: Bed) -> str:
    status = bed.driver.shown["train", names.MOVED]
    return status.verdict.reason if status else ""


def is_stopped(bed: Bed) -> bool:
    return stops(bed) > 0


def is_off(bed: Bed) -> bool:
    """Whether the pods of the stopped job are deleted."""
    return is_stopped(bed) and not bed.job().pods


def is_started(bed: Bed) -> bool:
    """Whether the job has pods again, which do not run yet."""
    return is_stopped(bed) and not bed.job().job.suspend and bool(bed.job().pods)


def until(bed: Bed, when: Callable[[Bed], bool]) -> Bed:
    while not when(bed):
        bed.after(1)
        assert bed.clock.now < LATER
    return bed


def check(bed: Bed, *, lost: float = 10.0) -> None:
    """Check that both holds are released and at most `lost` seconds of work were lost."""
    holds = bed.planner.cluster.holds
    assert (holds.claims_of("uid-train"), holds.holders()) == ((), ())
    assert bed.job().training.lost * SPREAD.pace.seconds(4) <= lost
    assert not bed.operator.failed


# --- when -----------------------------------------------------------------------------------------


def test_S4_a_spread_job_continues_from_a_checkpoint_on_one_node_once_it_fits() -> None:
    bed = spread_bed().at(ENDS)
    assert (nodes_of(bed), shown(bed)) == (["a", "b"], names.REASON_STAYS)
    bed.at(300)
    assert (nodes_of(bed), stops(bed), shown(bed)) == (["b"], 1, names.REASON_TOGETHER)
    assert bed.job().training.doing is Doing.TRAINS
    moved = bed.driver.shown["train", names.MOVED]
    assert moved is not None
    assert (moved.holds, moved.verdict.reason) == (True, names.REASON_TOGETHER)
    what, at = moved.verdict.message.split(" at ")
    assert what == "its pods are on 1 node, after a move from 2 nodes"
    assert ENDS <= timestamp(at) - (bed.clock.wall - bed.clock.now) <= 300
    check(bed)
    bed.run()
    assert stops(bed) == 1


STAYS: dict[str, tuple[dict[str, Any], str]] = {
    "without the annotation": ({"migrate": ""}, ""),
    "without a checkpoint": ({"saving": Saving.NEVER}, names.REASON_NO_CHECKPOINT),
    "with an unknown end": ({"shows_end": False}, names.REASON_STAYS),
    "near its end": ({"steps": 700}, names.REASON_STAYS),
}


@pytest.mark.parametrize(("changes", "reason"), STAYS.values(), ids=STAYS)
def test_a_job_stays(changes: dict[str, Any], reason: str) -> None:
    bed = spread_bed(replace(SPREAD, **changes)).at(270)
    assert (stops(bed), nodes_of(bed)) == (0, ["a", "b"])
    assert (
        bed.driver.shown.get(("train", names.MOVED)) is None if not reason else shown(bed) == reason
    )


def test_S3_no_job_is_moved_twice_in_10_minutes() -> None:
    bed = spread_bed(replace(SPREAD, steps=20_000)).at(100)
    moved = replace(state_of(bed.job().job), move=MoveState(before=3, at=bed.clock.wall))
    bed.annotate(names.STATE, moved.encode(job_uid="uid-train"))
    bed.at(690)
    assert (nodes_of(bed), stops(bed)) == (["a", "b"], 0)
    assert (nodes_of(bed.at(800)), stops(bed)) == (["b"], 1)


def test_S3_moves_in_the_cluster_are_30_s_apart() -> None:
    bed = spread_bed().at(ENDS - 10)
    executor_of(bed.planner, MoveExecutor)._last_move_at = later = bed.driver.moment.monotonic + 60
    while not stops(bed):
        bed.after(1)
    assert bed.driver.moment.monotonic >= later + 30


def test_S3_no_job_goes_to_a_node_that_does_not_fit() -> None:
    taker = replace(STAYING, name="taker", arrives=ENDS - 20, steps=20_000)
    bed = spread_bed(SPREAD, taker).at(600)
    assert (nodes_of(bed), stops(bed), shown(bed)) == (["a", "b"], 0, names.REASON_STAYS)


MODES = {Mode.OBSERVE: names.REASON_WOULD_MIGRATE, Mode.OFF: ""}


@pytest.mark.parametrize("mode", MODES)
def test_no_job_moves_unless_the_policy_acts(mode: Mode) -> None:
    policy = TrainingPolicy("p", companion={"migrate": PolicyChoice(mode)})
    bed = spread_bed(policy=policy).at(300)
    assert (stops(bed), nodes_of(bed)) == (0, ["a", "b"])
    assert (shown(bed) if MODES[mode] else "") == MODES[mode]


def test_a_waiting_job_gets_the_capacity_first() -> None:
    wide = replace(STAYING, name="wide", workers=3, arrives=60.0, steps=4000)
    bed = spread_bed(SPREAD, wide).at(400)
    assert stops(bed) == 0


def test_a_job_that_waits_for_an_autoscaler_gets_the_capacity_first() -> None:
    wide = replace(STAYING, name="wide", workers=3, arrives=155.0, steps=4000)
    bed = spread_bed(SPREAD, wide)
    bed.planner.queue.observe_autoscaler(present=True)
    bed.at(210)  # then kfext releases the waiting job
    assert stops(bed) == 0


def test_a_job_that_does_not_answer_in_time_is_not_moved() -> None:
    bed = spread_bed(replace(SPREAD, answers=10_000.0)).at(400)
    assert (stops(bed), shown(bed)) == (0, names.REASON_AWAITS_CHECKPOINT)
    requests = [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert len(requests) == 1
    check(bed)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_the_controller_dies_during_a_move(when: Callable[[Bed], bool]) -> None:
    bed = until(spread_bed().at(ENDS), when)
    bed.restart()
    bed.after(2)
    assert when is is_started or bed.planner.cluster.holds.claims_of("uid-train")
    bed.at(320)
    assert (nodes_of(bed), stops(bed)) == (["b"], 1)
    assert bed.job().training.doing is Doing.TRAINS
    bed.after(HOLD_SECONDS)
    check(bed)


def is_asked(bed: Bed) -> bool:
    return shown(bed) == names.REASON_AWAITS_CHECKPOINT


@pytest.mark.parametrize("when", [is_asked, is_off, is_started])
def test_the_controller_dies_with_its_next_write(when: Callable[[Bed], bool]) -> None:
    bed = until(spread_bed().at(ENDS), when)
    bed.faults.dies = True
    bed.at(320)
    assert (nodes_of(bed), bed.job().training.doing) == (["b"], Doing.TRAINS)
    bed.after(HOLD_SECONDS)
    check(bed)


def test_a_refused_stop_changes_nothing_and_is_tried_again() -> None:
    bed = spread_bed().at(ENDS)
    refuse(bed, lambda uid, change: uid == "uid-train")
    bed.at(330)
    assert (nodes_of(bed), stops(bed)) == (["b"], 1)
    check(bed)


def three_nodes(when: Callable[[Bed], bool]) -> Bed:
    """A job on half of each of a and b, on its way to c, which another job has left."""
    filling = replace(STAYING, name="filling", arrives=2.0)
    leaving = replace(LEAVING, workers=3, arrives=3.0, steps=700)
    bed = Bed(STAYING, filling, leaving, SPREAD, policy=None, a=4000, b=4000, c=4000)
    bed.at(150)
    assert nodes_of(bed) == ["a", "b"]
    return until(bed, when)


def submit_late(bed: Bed, *, number: int = 2) -> None:
    """Submit jobs that would take the capacity that the job left."""
    for at in range(number):
        bed.submit(replace(STAYING, name=f"late-{at}", arrives=bed.clock.now, steps=200))


@pytest.mark.parametrize("when", [is_stopped, is_off], ids=["while it ends", "once it is deleted"])
def test_S4_a_job_goes_back_if_its_target_is_lost(
    when: Callable[[Bed], bool],
) -> None:
    bed = three_nodes(when)
    bed.lose("c")
    submit_late(bed)
    bed.after(60)
    assert (nodes_of(bed), stops(bed)) == (["a", "b"], 1)
    assert bed.job().training.doing is Doing.TRAINS
    check(bed)


def test_S4_a_job_goes_back_if_its_capacity_is_stolen() -> None:
    bed = three_nodes(is_off)
    bed.faults.closed.add("c")  # kube-scheduler binds no pod there, and kfext cannot see why
    submit_late(bed)
    bed.after(120)
    assert (nodes_of(bed), stops(bed)) == (["a", "b"], 1)
    assert bed.job().training.doing is Doing.TRAINS
    check(bed)


def test_a_job_keeps_both_holds_if_its_start_is_refused_once() -> None:
    bed = three_nodes(is_off)
    refuse(bed, lambda uid, _change: uid == "uid-train")
    submit_late(bed)
    until(bed, is_started).after(1)
    bed.lose("c")
    bed.after(100)
    assert (nodes_of(bed), stops(bed)) == (["a", "b"], 1)


def test_a_job_that_has_lost_both_holds_waits_and_starts_first() -> None:
    bed = three_nodes(is_off)
    for node in ("b", "c"):
        bed.lose(node)
    submit_late(bed)
    bed.after(60)
    assert bed.job().job.in_queue
    bed.regain("c")
    bed.after(60)
    assert nodes_of(bed) == ["c"]
    check(bed)


def test_no_other_job_gets_either_hold_while_a_job_moves() -> None:
    bed = until(spread_bed().at(ENDS), is_stopped)
    for number in range(4):
        bed.submit(
            replace(STAYING, name=f"late-{number}", workers=1, arrives=bed.clock.now, steps=200)
        )
    until(bed, lambda bed: bed.job().training.doing is Doing.TRAINS and not bed.job().job.suspend)
    assert nodes_of(bed) == ["b"]
    check(bed)


def test_a_job_that_a_person_suspends_stays_suspended() -> None:
    bed = until(spread_bed().at(ENDS), is_off)
    bed.api.patch_job(
        "uid-train", [{"op": "remove", "path": "/metadata/annotations/kfext.dev~1held"}]
    )
    bed.after(60)
    assert bed.job().job.suspend
    check(bed)


@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_a_job_edited_during_its_move_continues(when: Callable[[Bed], bool]) -> None:
    bed = until(spread_bed().at(ENDS), when)
    bed.scale(2)
    bed.after(HOLD_SECONDS)
    assert bed.job().training.workers == 3
    check(bed)


@pytest.mark.parametrize("end", ["fails", "is deleted"])
@pytest.mark.parametrize("when", [is_stopped, is_off, is_started])
def test_a_job_that_ends_during_its_move_releases_both_holds(
    when: Callable[[Bed], bool], end: str
) -> None:
    bed = until(spread_bed().at(ENDS), when)
    if end == "fails":
        bed.api.set_condition(bed.job(), "Failed", "True")
    else:
        bed.write("train", "metadata", "deletionTimestamp", value="2026-01-01T00:00:00Z")
    bed.after(10)
    check(bed)


def test_a_job_that_opts_out_during_its_move_arrives() -> None:
    bed = until(spread_bed().at(ENDS), is_off)
    bed.annotate(names.MIGRATE, "never")
    bed.at(300)
    assert nodes_of(bed) == ["b"]
    check(bed)


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


def late_jobs(bed: Bed) -> None:
    """Submit three jobs that would fit where the job comes from and where it goes."""
    for number in range(3):
        late = replace(STAYING, name=f"late-{number}", arrives=bed.clock.now, steps=3000)
        bed.submit(replace(late, leaders=1))


@pytest.mark.parametrize("when", [is_stopped, is_off])
def test_a_new_controller_keeps_both_holds_from_its_first_decision_on(
    when: Callable[[Bed], bool],
) -> None:
    bed = until(spread_bed().at(ENDS), when)
    late_jobs(bed)
    bed.restart()
    bed.after(60)
    assert (nodes_of(bed), bed.job().training.doing) == (["b"], Doing.TRAINS)


def test_a_stop_without_an_answer_keeps_both_holds() -> None:
    bed = spread_bed().at(ENDS)
    bed.faults.loses = lambda _uid, _change: bed.job().job.suspend
    while not bed.job().job.suspend:
        bed.after(1)
    bed.faults.loses = lambda _uid, _change: False
    late_jobs(bed)
    bed.after(60)
    assert (nodes_of(bed), bed.job().training.doing) == (["b"], Doing.TRAINS)


def test_a_stop_that_never_arrived_keeps_its_holds_for_30_s() -> None:
    bed = spread_bed().at(ENDS)
    refuse(bed, lambda uid, _: uid == "uid-train")
    while not bed.planner.cluster.holds.holders():
        bed.after(1)
    assert not bed.job().job.suspend
    refused = bed.clock.now
    while bed.planner.cluster.holds.holders():
        bed.after(1)
        assert bed.clock.now <= refused + 31
    assert not bed.job().job.suspend


def limited(bed: Bed, *, pods: int) -> Callable[[int], None]:
    """Give the namespace a quota of pods, charged as pods come and go; return its setter."""
    observed: list[Quota] = []
    most = [pods]

    def charge(*_: Any) -> None:
        used = sum(not live.pod.finished for job in bed.jobs for live in job.pods.values())
        quota = Quota("team", "pods", hard={"pods": most[0]}, used={"pods": used})
        bed.planner.queue.quotas.observe_quota(observed[-1] if observed else None, quota)
        observed.append(quota)

    def allow(pods: int) -> None:
        most[0] = pods
        charge()

    bed.api.on_pod.append(charge)
    bed.api.on_gone.append(charge)
    charge()
    return allow


def test_a_job_stays_if_a_quota_would_not_let_it_start_again() -> None:
    bed = spread_bed()
    allow = limited(bed, pods=20)
    bed.at(120)
    allow(5)
    bed.at(300)
    assert (stops(bed), nodes_of(bed), shown(bed)) == (0, ["a", "b"], names.REASON_STAYS)


def test_after_a_move_another_hold_is_released_at_the_start() -> None:
    bed = three_nodes(is_off)
    for node in ("b", "c"):
        bed.lose(node)
    bed.after(HOLD_SECONDS + 10)
    holds, tracked = bed.planner.cluster.holds, bed.planner.cluster.jobs["uid-train"]
    assert (holds.holders(), bool(tracked.state.move.source)) == ((), True)
    bed.regain("c")
    members = members_of(tracked.job)
    there = Places({result.key: "c" for result in members}, NO_SLOTS)
    holds.hold(HoldKind.RESCUE, "uid-train", members, there)
    while bed.job().job.suspend:
        bed.after(1)
    assert holds.holders() == ()


def test_a_job_that_is_stopped_keeps_its_share_of_the_quota() -> None:
    waits = replace(
        STAYING, name="waits", workers=3, leaders=1, cpu=500, uses=500, arrives=60.0, steps=8000
    )
    bed = Bed(STAYING, LEAVING, SPREAD, waits, policy=None, a=4000, b=4000, c=2000)
    limited(bed, pods=8)
    bed.at(250)
    assert (stops(bed), nodes_of(bed), nodes_of(bed, "waits")) == (1, ["b"], [])


def test_a_job_that_stayed_spread_is_moved_again_after_an_hour() -> None:
    filling = replace(STAYING, name="filling", arrives=2.0, steps=100_000)
    leaving = replace(LEAVING, workers=3, arrives=3.0, steps=700)
    bed = Bed(
        replace(STAYING, steps=100_000), filling, leaving, replace(SPREAD, steps=60_000),
        policy=None, a=4000, b=4000, c=4000,
    )  # fmt: skip
    bed.at(150)
    bed.faults.closed.add("c")
    bed.at(3600)
    assert (stops(bed), nodes_of(bed)) == (1, ["a", "b"])


def test_an_earlier_answer_causes_no_second_request() -> None:
    bed = spread_bed(replace(SPREAD, steps=9000, answers=30.0)).at(60)
    bed.job().training.request(1)
    until(bed, is_stopped)
    requests = [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert [write.job for write in requests] == ["train"]


def test_a_job_that_Kueue_takes_over_during_its_move_releases_both_holds() -> None:
    bed = until(spread_bed().at(ENDS), is_off)
    bed.write("train", "metadata", "labels", value={names.KUEUE_QUEUE: "queue"})
    bed.after(2)
    assert bed.planner.cluster.holds.holders() == ()

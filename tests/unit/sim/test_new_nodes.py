"""A gang that lacks nodes asks the autoscaler once, and starts whole or not at all."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from kfext.core.patches.placeholder import node_terms
from kfext.core.placement.gang import limits_of
from kfext.core.settings.table import Settings
from kfext.model.constraints import Constraints, Requirement, Term, VolumeConstraints
from kfext.model.parameters import NewNodes, Placement
from kfext.model.policy import TrainingPolicy
from kfext.names import (
    COLOCATION,
    REASON_NO_NEW_NODES,
    REASON_NO_ROOM,
    REASON_WAITING_FOR_NODES,
    RELEASED,
)
from kfext.sim.cluster import URGENT
from kfext.sim.jobs import JobSpec, Pace, Style
from kfext.sim.nodes import NodeSize
from kfext.state.mirror.placeholders import Ask, Placeholders
from tests.unit.sim.new_nodes import DELAY, GrowingBed, Market

GANG = JobSpec(
    "train", "PyTorchJob", Style.GANG, 0.0, 8, Pace(1.0, 0.0, 0.0), 100, cpu=4000, uses=4000
)
NODE = NodeSize(8000)
WITHOUT = TrainingPolicy("calm")


SMALL = {"small": 1000}
ANYWHERE = limits_of(Settings(), excluded=())


def bed(
    *jobs: JobSpec, nodes: int = 0, most: int = 100, delays: Sequence[float] = ()
) -> GrowingBed:
    """A cluster, perhaps of one node that is too small, with new nodes for two pods each."""
    sizes = {f"old{number}": 8000 for number in range(nodes)} or SMALL
    return GrowingBed(*jobs, market=Market(NODE, most, [*delays]), nodes=sizes)


KINDS = {
    "a PyTorchJob": GANG,
    "a TFJob": replace(GANG, kind="TFJob"),
    "a TrainJob": replace(GANG, kind="TrainJob", style=Style.TORCHRUN),
}


@pytest.mark.parametrize("spec", KINDS.values(), ids=KINDS)
def test_no_pod_exists_before_there_are_nodes_for_all(spec: JobSpec) -> None:
    cluster = bed(spec).at(DELAY)
    assert cluster.reason() == REASON_WAITING_FOR_NODES
    assert not cluster.job().pods
    cluster.run()
    assert len(cluster.added) == 4
    assert cluster.job().job.finished
    assert cluster.asks == 8
    assert not cluster.placeholders


def test_a_gang_uses_the_free_capacity_and_asks_for_the_missing_nodes() -> None:
    cluster = bed(GANG, nodes=2).run()
    assert len(cluster.added) == 2


def test_nothing_is_left_after_an_ask_without_success() -> None:
    cluster = bed(GANG, most=3).at(DELAY + 10)
    assert cluster.bound() == 0
    assert "6 of 8 pods have capacity on 3 nodes" in cluster.message()
    cluster.at(DELAY + 400)
    assert cluster.reason() == REASON_NO_NEW_NODES
    assert not cluster.placeholders
    assert not cluster.job().pods
    assert not any(name in cluster.kubelets.nodes for name in cluster.added)


def test_a_machine_that_never_joins_is_waited_for_20_minutes() -> None:
    cluster = bed(GANG, delays=[math.inf] * 4, most=4).at(1190)
    assert cluster.reason() == REASON_WAITING_FOR_NODES
    assert cluster.at(1230).reason() == REASON_NO_NEW_NODES


def test_the_next_ask_waits_twice_as_long_each_time() -> None:
    cluster = bed(GANG, most=3)
    asks = []
    for _ in range(4):
        before = cluster.asks
        while cluster.asks == before:
            cluster.after(1)
        asks.append(cluster.clock.now)
        while cluster.placeholders:
            cluster.after(1)
    waits = [later - earlier for earlier, later in pairwise(asks)]
    assert [round(wait / 60) for wait in waits] == [10, 15, 25]


def test_the_first_of_two_gangs_takes_the_nodes_of_both() -> None:
    second = replace(GANG, name="second", arrives=1.0)
    cluster = bed(GANG, second, most=6)
    while not cluster.bound():
        cluster.after(1)
    cluster.after(10)
    assert cluster.bound() == 8
    assert cluster.bound("second") == 0
    cluster.run()
    assert cluster.job("second").job.finished


def test_a_job_that_is_deleted_leaves_no_placeholder() -> None:
    cluster = bed(GANG).at(15)
    assert cluster.placeholders
    cluster.api.delete_job(cluster.job())
    cluster.after(5)
    assert not cluster.placeholders


def test_a_job_that_its_user_suspends_asks_for_nothing() -> None:
    cluster = bed(GANG).at(15)
    path = "/metadata/annotations/kfext.dev~1held"
    cluster.api.patch_job(cluster.job().uid, [{"op": "remove", "path": path}])
    cluster.after(5)
    assert not cluster.placeholders


def test_a_controller_that_dies_at_any_second_continues_the_ask() -> None:
    for second in range(9, 40, 3):
        cluster = bed(GANG).at(second)
        cluster.restart()
        cluster.run()
        assert len(cluster.added) == 4, second
        assert not cluster.placeholders, second
        assert cluster.asks == 8, second


def test_members_that_lost_their_node_ask_while_the_rest_of_the_gang_stays() -> None:
    cluster = bed(replace(GANG, steps=2000))
    while cluster.bound() < 8:
        cluster.after(1)
    cluster.after(30)
    cluster.remove(cluster.added[0])
    cluster.after(15)
    assert cluster.reason() == REASON_WAITING_FOR_NODES
    assert cluster.bound() == 6
    cluster.after(DELAY + 20)
    assert cluster.bound() == 8
    assert len(cluster.added) == 5
    assert not cluster.placeholders


def test_a_lost_member_of_a_required_gang_asks_for_nothing_while_the_others_run() -> None:
    bed = GrowingBed(replace(GANG, steps=2000), market=Market(NodeSize(32000)), nodes=SMALL).at(1)
    bed.annotate(COLOCATION, "required")
    while bed.bound() < 8:
        bed.after(1)
    asks = bed.asks
    bed.api.remove_pod(next(iter(bed.job().pods.values())))
    bed.bind_rival(bed.added[0], cpu=4000)
    bed.after(60)
    assert bed.reason() == REASON_NO_ROOM
    assert (bed.bound(), bed.asks, len(bed.added)) == (7, asks, 1)


def test_a_small_job_behind_the_gang_does_not_take_its_nodes() -> None:
    small = replace(GANG, name="small", arrives=2.0, workers=1)
    cluster = bed(GANG, small, delays=[20.0, 20.0, 20.0, 60.0])
    while cluster.bound() < 8:
        cluster.after(1)
    assert cluster.clock.now < 90


def test_an_ask_blocks_no_older_node_for_smaller_jobs() -> None:
    small = replace(GANG, name="small", arrives=15.0, workers=2)
    cluster = bed(GANG, small, nodes=1, most=1).at(40)
    assert cluster.bound("small") == 2


CHOICES = {
    "release: it is released after a minute": (NewNodes.RELEASE, True, True),
    "wait: it waits": (NewNodes.WAIT, True, False),
    "ask without the component new-nodes: it is released": (NewNodes.ASK, False, True),
    "ask: it is never released": (NewNodes.ASK, True, False),
}


@pytest.mark.parametrize(("choice", "possible", "released"), CHOICES.values(), ids=CHOICES)
def test_the_policy_decides_about_a_job_without_nodes(
    choice: NewNodes, possible: bool, released: bool
) -> None:
    policy = TrainingPolicy("nodes", placement=Placement(new_nodes=choice))
    market = Market(NODE, most=0)
    bed = GrowingBed(GANG, market=market, policy=policy, possible=possible, nodes=SMALL).at(90)
    assert (RELEASED in bed.job().job.annotations) is released
    assert bool(bed.asks) is (choice is NewNodes.ASK and possible)


def test_placeholders_leave_for_a_gang_that_never_preempts() -> None:
    assert not URGENT.preempts
    cluster = bed(replace(GANG, priority="urgent"))
    cluster.run()
    assert cluster.job().job.finished
    assert not cluster.placeholders


def test_a_job_with_capacity_asks_for_nothing() -> None:
    cluster = bed(replace(GANG, workers=4), nodes=2).run()
    assert not cluster.asks
    assert not cluster.added


@pytest.mark.parametrize(
    "ends",
    [{"steps": 400}, {"steps": 9000, "shows_end": False, "deadline": 230}],
    ids=["by its progress", "by its deadline"],
)
def test_a_job_that_soon_gets_the_nodes_of_another_waits_a_minute(ends: dict[str, Any]) -> None:
    first = replace(GANG, name="first", workers=4, **ends)
    second = replace(GANG, workers=4, arrives=60.0, steps=100)
    cluster = bed(first, second, nodes=2).at(110)
    assert cluster.reason() == REASON_NO_ROOM
    assert not cluster.asks


def test_an_edit_asks_for_the_new_shape() -> None:
    cluster = bed(GANG).at(15)
    cluster.scale(4)
    cluster.after(3)
    assert len(cluster.placeholders) == 4
    cluster.run()
    assert cluster.job().job.finished
    assert not cluster.placeholders


RIVAL = {"before the gang starts": ([20.0, 20.0, 20.0, 40.0], 30.0), "as it starts": ([], 23.0)}


@pytest.mark.parametrize(("delays", "second"), RIVAL.values(), ids=RIVAL)
def test_a_rival_that_takes_a_new_node_costs_a_node_and_leaves_no_half_gang(
    delays: list[float], second: float
) -> None:
    cluster = bed(GANG, delays=delays).at(second)
    cluster.bind_rival(cluster.added[0], cpu=8000)
    cluster.after(10)
    assert cluster.bound() == 0
    while not cluster.bound():
        cluster.after(1)
    assert cluster.after(3).bound() == 8
    assert len(cluster.added) == 5


def test_a_node_that_dies_before_the_start_is_replaced() -> None:
    cluster = bed(GANG, delays=[20.0, 20.0, 20.0, 40.0]).at(30)
    assert not cluster.bound()
    cluster.remove(cluster.added[0])
    cluster.run()
    assert cluster.job().job.finished
    assert len(cluster.added) == 5


def placeholder_counts(cluster: GrowingBed) -> dict[str, int]:
    """Return the number of placeholders by job."""
    return Counter(pod.placeholder_of for pod in cluster.placeholders.values())


def test_new_nodes_are_matched_with_the_asks_once_for_all_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = (replace(GANG, name=f"job-{n}", workers=20, arrives=float(n)) for n in range(12))
    cluster = bed(*jobs, most=6, delays=[30.0] * 6).at(60)
    matched: list[str] = []
    match = Placeholders.new_candidates

    def counted(of: Placeholders, uid: str, *, skip: Collection[str]) -> Iterator[str]:
        matched.append(uid)
        return match(of, uid, skip=skip)

    monkeypatch.setattr(Placeholders, "new_candidates", counted)
    cluster.planner.queue.asks.begin_tick()
    for tracked in cluster.planner.cluster.jobs.values():
        cluster.planner.queue.asks.view(tracked)
    assert sorted(matched) == sorted(cluster.planner.placeholders.open_asks)
    assert len(matched) == 12


def test_jobs_ask_in_the_order_of_the_queue_up_to_the_limit_of_placeholders() -> None:
    cluster = bed(*(replace(GANG, name=f"job-{n}", workers=150) for n in range(4)), most=0)
    cluster.at(200)
    assert placeholder_counts(cluster) == {"uid-job-0": 150, "uid-job-1": 150}
    assert "once jobs before it" in cluster.message("job-3")
    cluster.at(1250)
    assert placeholder_counts(cluster) == {"uid-job-2": 150, "uid-job-3": 150}


def test_a_job_that_asked_in_vain_asks_after_the_others() -> None:
    old = [replace(GANG, name=f"old-{n}", workers=200, cpu=9000) for n in range(4)]
    cluster = bed(*old, replace(GANG, arrives=60.0), most=4)
    while not cluster.bound():
        cluster.after(5)
    assert cluster.clock.now < 1400


def test_nothing_is_due_once_an_ask_has_ended() -> None:
    cluster = bed(GANG).at(15)
    cluster.api.delete_job(cluster.job())
    cluster.after(600)
    cluster.planner.placeholder_steps(cluster.driver.moment.monotonic)
    assert cluster.planner.next_alarm() > cluster.driver.moment.monotonic


def test_slow_machines_are_waited_for_although_an_old_node_has_capacity() -> None:
    cluster = bed(GANG, nodes=1, delays=[310.0, 370.0, 430.0])
    while not cluster.bound():
        cluster.after(5)
    assert cluster.after(20).bound() == 8
    assert len(cluster.added) == 3


def test_a_job_of_another_shape_may_use_a_node_that_does_not_help_the_gang() -> None:
    big = replace(GANG, name="big", workers=1, cpu=9000)
    cluster = bed(big, replace(GANG, workers=1, arrives=60.0), delays=[math.inf])
    cluster.at(100)
    assert cluster.bound() == 1


def test_an_edit_that_kfext_cannot_model_ends_the_ask() -> None:
    cluster = bed(GANG).at(1)
    cluster.annotate(COLOCATION, "required")
    cluster.at(15)
    assert cluster.placeholders
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    specs = cluster.job().job.kind.replica_specs
    path = ("spec", specs, "Worker", "template", "spec", "topologySpreadConstraints")
    cluster.write("train", *path, value=spread)
    cluster.after(10)
    assert not cluster.placeholders


def test_a_cordoned_node_holds_no_capacity_for_the_gang() -> None:
    cluster = bed(GANG, delays=[20.0, 20.0, 20.0, 60.0]).at(30)
    name = cluster.added[0]
    before = cluster.planner.cluster.ledger.node(name)
    assert before is not None
    cluster.faults.closed.add(name)
    cluster.planner.cluster.observe_node(before, replace(before, unschedulable=True))
    cluster.after(60)
    assert cluster.bound() == 8
    assert len(cluster.added) == 5


def test_a_refusal_of_the_api_server_ends_the_ask_with_its_words() -> None:
    cluster = bed(GANG).at(5)
    placeholders, at = cluster.planner.placeholders, cluster.driver.moment.monotonic
    name, member = next(iter(placeholders.open_asks["uid-train"].missing.items()))
    ask = Ask(name, "uid-train", member, ANYWHERE)
    placeholders.finish(ask, at, accepted=False, final="spec.tolerations[0].key: Invalid value")
    cluster.after(5)
    assert cluster.reason() == REASON_NO_NEW_NODES
    assert "Invalid value" in cluster.message()


VOLUMES = {
    "volumes of the same zones add no terms": (["ab"] * 12, 2),
    "each other volume multiplies them": (["ab", "cd", "ef"], 8),
}


@pytest.mark.parametrize(("zones", "want"), VOLUMES.values(), ids=VOLUMES)
def test_the_affinity_to_nodes_of_a_placeholder_is_bounded(zones: list[str], want: int) -> None:
    lists = tuple(
        tuple(Term((Requirement("zone", "In", (zone,)),)) for zone in group) for group in zones
    )
    assert node_terms(Constraints(volumes=VolumeConstraints(terms=lists))) == want


def test_a_gang_of_more_pods_than_placeholders_waits_with_the_reason() -> None:
    cluster = bed(replace(GANG, workers=501), most=0).at(90)
    assert cluster.reason() == REASON_NO_NEW_NODES
    assert "501 pods are more than kfext asks an autoscaler for (500)" in cluster.message()
    assert not cluster.asks


def test_a_required_job_asks_for_one_node_and_is_never_released() -> None:
    market = Market(NodeSize(32000))
    bed = GrowingBed(GANG, market=market, nodes=SMALL).at(1)
    bed.annotate(COLOCATION, "required")
    bed.at(DELAY + 30)
    assert bed.bound() == 8
    assert len(bed.added) == 1


def test_a_required_job_asks_for_one_node_though_an_old_node_would_hold_a_part_of_it() -> None:
    bed = GrowingBed(GANG, market=Market(NodeSize(32000)), nodes={"old": 16000}).at(1)
    bed.annotate(COLOCATION, "required")
    bed.at(DELAY - 1)
    assert "0 of 8 pods have capacity" in bed.message()
    bed.at(DELAY + 30)
    assert bed.bound() == 8
    assert len(bed.added) == 1
    assert bed.asks == 1


@given_settings(max_examples=60, deadline=None)
@given(
    gangs=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 90)), min_size=1, max_size=4),
    most=st.integers(0, 6),
    delays=st.lists(st.sampled_from([5.0, 20.0, 120.0, math.inf]), max_size=4),
    dies=st.none() | st.integers(5, 200),
)
def test_random_asks_start_whole_gangs_and_leave_nothing(
    gangs: list[tuple[int, int]], most: int, delays: list[float], dies: int | None
) -> None:
    jobs = [
        replace(GANG, name=f"job-{n}", workers=workers, arrives=float(arrives), steps=30)
        for n, (workers, arrives) in enumerate(gangs)
    ]
    cluster, halves = bed(*jobs, most=most, delays=delays), Counter[str]()
    for second in range(0, 3000, 5):
        cluster.at(second)
        if dies is not None and second - 5 < dies <= second:
            cluster.restart()
        for job in cluster.jobs:
            half = 0 < cluster.bound(job.spec.name) < job.spec.workers and not job.job.finished
            halves[job.uid] = halves[job.uid] + 1 if half else 0
            assert halves[job.uid] < 4
    if all(job.job.finished for job in cluster.jobs):
        assert not cluster.placeholders
    for job in cluster.jobs:
        fits = job.spec.workers <= 2 * most and math.inf not in delays
        assert job.job.finished or not fits

"""When policies look, one order for their proposals, and one operation in flight per job."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.reported import GrowthState
from kfext.model.policy import Mode, PolicyChoice
from kfext.state.running.arbitration import Cadence, arbitrate, neighbourhoods
from kfext.state.running.proposal import Proposal, Rank
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod, proposal, signals

NEW, COMPLETING = GrowthState.NEW, GrowthState.COMPLETING
TICK = 10.0


def on(uid: str, *nodes: str, state: GrowthState = NEW) -> JobSignal:
    return job(uid, *(pod(f"{uid}-{node}", node=node) for node in nodes), state=state)


ALONE = on("a", "n1", state=COMPLETING)


def run(cadence: Cadence, jobs: list[JobSignal], *, begin: float, end: float) -> list[float]:
    """Return when the jobs are due, checked in every tick."""
    due = []
    now = begin
    while now < end:
        if cadence.due(jobs, interval=lambda _: 30.0, now=now):
            due.append(now)
        now += TICK
    return due


def test_F4_jobs_are_due_at_once_for_one_interval_and_then_at_the_interval() -> None:
    assert run(Cadence(), [on("a", "n1")], begin=0, end=100) == [0, 10, 20, 30, 60, 90]


def test_F4_while_all_are_completing_the_interval_doubles_up_to_eightfold() -> None:
    jobs = [on("a", "n1", state=COMPLETING), on("b", "n1", state=COMPLETING)]
    due = run(Cadence(), jobs, begin=0, end=1200)
    assert due[:3] == [0, 10, 20]
    apart = [later - earlier for earlier, later in pairwise([0, *due[3:]])]
    assert apart == [60, 120, 240, 240, 240, 240]


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(replace(ALONE, in_flight=True), id="in flight"),
        pytest.param(replace(ALONE, settling=True), id="settling"),
    ],
)
def test_F4_while_an_operation_is_under_way_neighbours_stay_due(busy: JobSignal) -> None:
    cadence, other = Cadence(), on("b", "n1", state=COMPLETING)
    assert run(cadence, [busy, other], begin=0, end=30) == [0, 10, 20]
    ready = [on("a", "n1", state=COMPLETING), other]
    assert run(cadence, ready, begin=30, end=100) == [30, 90]


def test_there_is_no_back_off_while_it_matters_which_job_ends_first() -> None:
    ordered = [replace(on(uid, "n1", state=COMPLETING), left=9.0) for uid in ("a", "b")]
    assert run(Cadence(), ordered, begin=0, end=100) == [0, 10, 20, 30, 60, 90]


def test_F4_a_job_that_comes_or_goes_wakes_its_neighbours_in_the_same_tick() -> None:
    cadence = Cadence()
    pair = [on("a", "n1", state=COMPLETING), on("b", "n1", state=COMPLETING)]
    run(cadence, pair, begin=0, end=500)
    assert run(cadence, pair, begin=500, end=510) == []
    due = run(cadence, [*pair, on("c", "n1")], begin=510, end=580)
    assert due == [510, 520, 530, 540, 570]
    assert run(cadence, pair, begin=580, end=650) == [580, 590, 600, 640]


def test_F4_one_that_grows_again_ends_the_back_off() -> None:
    cadence = Cadence()
    run(cadence, [on("a", "n1", state=COMPLETING)], begin=0, end=500)
    assert run(cadence, [on("a", "n1")], begin=500, end=570) == [500, 530, 560]


def test_a_job_elsewhere_wakes_nobody() -> None:
    cadence, far = Cadence(), on("far", "n2")
    run(cadence, [on("a", "n1", state=COMPLETING)], begin=0, end=40)
    due = cadence.due([on("a", "n1", state=COMPLETING), far], interval=lambda _: 30.0, now=40)
    assert due == [far]


def test_the_shortest_interval_of_neighbours_counts() -> None:
    jobs = [on("a", "n1"), on("b", "n1")]
    cadence = Cadence()

    def interval(signal: JobSignal) -> float:
        return {"a": 30.0, "b": 90.0}[signal.uid]

    assert cadence.due(jobs, interval=interval, now=0) == jobs
    assert cadence.due(jobs, interval=interval, now=30) == jobs


JOBS = st.lists(st.frozensets(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1), max_size=7)


@given(JOBS, st.randoms(use_true_random=False))
def test_neighbours_are_the_jobs_that_share_nodes(
    nodes: list[frozenset[str]], random: object
) -> None:
    jobs = [on(f"j{at}", *sorted(of)) for at, of in enumerate(nodes)]
    groups = neighbourhoods(jobs)
    assert sorted(signal.uid for group in groups for signal in group) == [
        signal.uid for signal in jobs
    ]
    where = [{node for signal in group for node in signal.nodes} for group in groups]
    assert sum(map(len, where)) == len(set().union(*where))
    for group in groups:  # none could be divided further
        assert len(_reached(group)) == len(group)
    shuffled = list(jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert {frozenset(g) for g in map(_uids, neighbourhoods(shuffled))} == set(map(_uids, groups))


def _uids(group: tuple[JobSignal, ...]) -> frozenset[str]:
    return frozenset(signal.uid for signal in group)


def _reached(group: tuple[JobSignal, ...]) -> set[str]:
    """Return the jobs that are reached from the first one over shared nodes."""
    found = {group[0].uid}
    for _ in group:
        nodes = {node for signal in group if signal.uid in found for node in signal.nodes}
        found |= {signal.uid for signal in group if nodes & set(signal.nodes)}
    return found


BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
EACH = {rank: proposal(f"{rank.name}", rank=rank) for rank in Rank}


def test_X2_what_hurts_is_undone_before_anything_is_resized() -> None:
    seen = signals(*(job(each.job) for each in EACH.values()))
    chosen = arbitrate(reversed(EACH.values()), seen)
    assert [picked.rank.name for picked in chosen.act] == [
        "RESTORE",
        "RESCUE",
        "SCALE",
        "MOVE",
        "RESIZE",
    ]


def test_X2_a_job_gets_the_first_in_the_order_and_no_other() -> None:
    resize, back = proposal("j"), proposal("j", rank=Rank.RESTORE)
    assert arbitrate([resize, back], signals(job("j"))).act == (back,)


def test_X2_of_one_rank_what_writes_fewer_pods_comes_first() -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    dear, cheap = proposal("a", pods=3), proposal("b", pods=1)
    assert arbitrate([dear, cheap], seen).act == (cheap, dear)
    resize, shift = proposal("a", pods=3), proposal("a", pods=2, policy="shift")
    assert arbitrate([resize, shift], seen).act == (shift,)


def test_a_job_that_has_gone_gets_none() -> None:
    assert arbitrate([proposal("gone")], signals(job("j"))).act == ()


def test_what_is_only_shown_keeps_nothing_from_acting() -> None:
    policies = {"resize": PolicyChoice(Mode.OBSERVE), "shift": PolicyChoice(Mode.ACT)}
    resize, shift = proposal("j", pods=1), proposal("j", pods=2, policy="shift")
    chosen = arbitrate([resize, shift], signals(job("j", policies=policies)))
    assert chosen.act == (shift,)
    assert chosen.observe == (resize,)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(job("j", mode=Mode.OFF), id="switched off"),
        pytest.param(job("j", policy="shift"), id="not opted in"),
        pytest.param(job("j", rests=frozenset(["resize"])), id="the policy rests"),
        pytest.param(job("j", mode=Mode.OBSERVE), id="only shown"),
    ],
)
def test_a_policy_that_may_not_act_can_only_give_back(of: object) -> None:
    seen = signals(of)  # type: ignore[arg-type]
    back = proposal("j", rank=Rank.RESTORE)
    assert arbitrate([proposal("j")], seen).act == ()
    assert arbitrate([proposal("j"), back], seen).act == (back,)


PROPOSALS = st.lists(
    st.builds(
        proposal,
        st.sampled_from("abcd"),
        pods=st.integers(1, 4),
        rank=st.sampled_from(Rank),
        policy=st.sampled_from(["resize", "shift"]),
    )
)


@given(PROPOSALS, st.randoms(use_true_random=False))
def test_X2_no_job_has_two_operations_in_whatever_order_they_are_proposed(
    proposals: list[Proposal], random: object
) -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "abcd"))
    act = arbitrate(proposals, seen).act
    assert [picked.job for picked in act].count("a") <= 1
    assert {picked.job for picked in act} == {picked.job for picked in proposals}
    for picked in act:
        assert picked.rank == min(other.rank for other in proposals if other.job == picked.job)
    shuffled = list(proposals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(map(_class, arbitrate(shuffled, seen).act)) == sorted(map(_class, act))


def _class(picked: Proposal) -> tuple[str, Rank, int, str]:
    """What decides, whatever was proposed first."""
    return (picked.job, picked.rank, picked.cost, picked.policy)


def test_proposals_alike_are_carried_out_as_the_policy_made_them() -> None:
    seen = signals(*(job(uid, policies=BOTH) for uid in "ab"))
    alike = [proposal(uid, pods=1, rank=Rank.SCALE, policy="resize") for uid in "ba"]
    assert [picked.job for picked in arbitrate(alike, seen).act] == ["b", "a"]

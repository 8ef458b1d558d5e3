"""Converged jobs leave CPU to jobs that grow, within their floors and their budget."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.policy import Advice
from kfext.core.companion.proposal import Measure, Proposal, Rank
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.signals import Budget, JobSignal, NodeSignal, Signals
from kfext.core.progress.reported import GrowthState
from kfext.model.qos import QoS
from tests.unit.core.companion.jobs import job, pod, signals

NEW, WATCHING, COMPLETING = GrowthState.NEW, GrowthState.WATCHING, GrowthState.COMPLETING
OF_JOB = ("rate", "left", "peak", "budget", "parameters")


def one(uid: str, state: GrowthState, growth: float | None, **fields: Any) -> JobSignal:
    of_job = {key: fields.pop(key) for key in OF_JOB if key in fields}
    return job(uid, pod(f"{uid}-0", **{"use": 467, **fields}), state=state, growth=growth, **of_job)


def grower(**fields: Any) -> JobSignal:
    return one("grower", NEW, 0.3, **fields)


def done(uid: str = "done", **fields: Any) -> JobSignal:
    return one(uid, COMPLETING, 0.0, **fields)


def advice(*jobs: JobSignal, **fields: Any) -> Advice:
    return RESIZE.propose(signals(*jobs, **fields))


def limits(found: Advice) -> dict[str, int]:
    return {
        size.pod: size.limit
        for proposal in found.proposals
        for stage in proposal.stages
        for size in stage
    }


def only(found: Advice) -> Proposal:
    (proposal,) = found.proposals
    return proposal


def test_F3_converged_jobs_are_capped_at_one_part_of_one_more_than_there_are() -> None:
    found = advice(grower(), done("a"), done("b"))
    assert limits(found) == {"a-0": 350, "b-0": 350}


def test_each_proposal_names_whom_it_serves_and_by_what_measure() -> None:
    shrink = only(advice(grower(use=700), done(use=700)))
    assert (shrink.job, shrink.serves, shrink.measure) == ("done", "grower", Measure.USE)
    assert only(advice(grower(use=700, rate=3.0), done(use=700))).measure is Measure.RATE
    assert "0% of the growth efficiency of the 2 jobs" in shrink.reason
    assert "grower" not in shrink.reason


@pytest.mark.parametrize(
    ("served", "want"),
    [
        pytest.param({"use": 700, "rate": 3.0}, 3.0, id="with equal shares already"),
        pytest.param({"use": 600, "rate": 3.0}, 3.5, id="with less than an equal share"),
        pytest.param({"use": 600}, 700.0, id="by its use, as it reports no steps"),
    ],
)
def test_what_the_served_job_would_show_with_equal_shares_is_expected(
    served: dict[str, float], want: float
) -> None:
    assert only(advice(grower(**served), done(use=800))).expected == want


def test_of_two_that_grow_the_slower_one_leaves_cpu_to_the_faster_one() -> None:
    found = only(advice(one("fast", NEW, 0.9, use=700), one("slow", NEW, 0.1, use=700)))
    assert (found.job, found.serves) == ("slow", "fast")
    assert limits(advice(one("fast", NEW, 0.9, use=700), one("slow", NEW, 0.1, use=700))) == {
        "slow-0": 466
    }


def test_of_several_that_gain_the_one_with_the_highest_growth_efficiency_is_served() -> None:
    found = advice(one("fast", NEW, 0.6), one("second", NEW, 0.5), done())
    assert [(proposal.job, proposal.serves) for proposal in found.proposals] == [("done", "fast")]


NOTHING: dict[str, list[JobSignal]] = {
    "a job that grows alone": [grower(use=1400)],
    "no job grows": [done("a", use=700), done("b", use=700)],
    "the job that grows has what it wants": [grower(use=200), done(use=1200)],
    "the node has something left": [grower(use=500), done(use=500)],
    "the cap would take nothing that is used": [grower(use=1350), done(use=50)],
    "the growth of the job that grows is not known": [one("g", NEW, None, use=700), done(use=700)],
    "its use is not known": [grower(use=None), done(use=1400)],
    "a job that is watched stays as it is": [grower(use=700), one("w", WATCHING, 0.001, use=700)],
    "a change below a tenth": [
        grower(use=675),
        done("a", limit=345, use=345),
        done("b", limit=380, use=380),
    ],
    "a cap that stays is not split anew": [
        grower(use=1067),
        job(
            "done",
            pod("a", limit=233, use=100),
            pod("b", limit=233, use=233),
            state=COMPLETING,
            growth=0.0,
        ),
    ],
    "it is not known when, but when the other job ends": [
        grower(use=700),
        done(left=80.0, use=700),
    ],
    "it would have no more itself": [
        one("fast", NEW, 0.3, limit=700, user_limit=700, use=700),
        done(use=700),
    ],
}


@pytest.mark.parametrize("jobs", NOTHING.values(), ids=NOTHING)
def test_nothing_is_written_that_serves_nobody(jobs: list[JobSignal]) -> None:
    assert advice(*jobs) == Advice()


GIVEN_BACK: dict[str, tuple[list[JobSignal], dict[str, int]]] = {
    "all are completing": (
        [done("a", limit=350, use=350), done("b", limit=350, use=350)],
        {"a-0": 1400, "b-0": 1400},
    ),
    "all are completing, and the user set a limit": (
        [done("a", limit=350, user_limit=600, use=350), done("b", use=350)],
        {"a-0": 600},
    ),
    "it now ends before the job that grows": (
        [grower(use=1050, left=90.0), done("a", limit=350, use=350, left=80.0)],
        {"a-0": 1400},
    ),
    "a job that grows again": (
        [one("again", NEW, 0.3, limit=350, use=350), done("a", use=700)],
        {"again-0": 1400},
    ),
}


@pytest.mark.parametrize(("jobs", "want"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_what_was_taken_is_given_back(jobs: list[JobSignal], want: dict[str, int]) -> None:
    found = limits(advice(*jobs))
    assert {uid: found.get(uid) for uid in want} == want


def test_a_job_gives_cpu_to_one_that_ends_first_if_it_may_go_on_for_ever() -> None:
    found = only(advice(grower(use=700, left=90.0), done(use=700)))
    assert (found.job, found.serves) == ("done", "grower")


def ordered(*lefts: float, **fields: Any) -> list[JobSignal]:
    """Jobs that have converged and show how far they are, alike but for that."""
    use = 1000 // len(lefts)
    return [done(f"j{at}", **{"left": left, "use": use, **fields}) for at, left in enumerate(lefts)]


def shared(*jobs: JobSignal) -> Advice:
    """What is done on a node that each of them can fill."""
    return advice(*jobs, allocatable=1000)


def test_where_all_show_how_far_they_are_the_others_lend_to_the_one_that_ends_first() -> None:
    found = shared(*ordered(90.0, 50.0, math.inf))
    assert {proposal.job: proposal.serves for proposal in found.proposals} == {
        "j0": "j1",
        "j2": "j1",
    }
    assert limits(found) == {"j0-0": 250, "j2-0": 250}
    assert "ends before it" in found.proposals[0].reason


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param(ordered(math.inf, math.inf), id="it is not known of any when it ends"),
        pytest.param(ordered(50.0), id="one alone"),
    ],
)
def test_nothing_is_lent_if(jobs: list[JobSignal]) -> None:
    assert shared(*jobs) == Advice()


def test_what_a_job_lent_before_counts_as_done() -> None:
    lender = Budget(used=100.0, lent=45.0)
    found = shared(*ordered(50.0), done("lender", left=90.0, use=500, budget=lender))
    assert [proposal.job for proposal in found.proposals] == ["j0"]


CAPPED = {"limit": 250, "use": 250, "budget": Budget(used=10.0)}


@pytest.mark.parametrize(
    ("other", "served"),
    [
        pytest.param(95.0, [], id="a little shorter"),
        pytest.param(80.0, ["served"], id="much shorter"),
    ],
)
def test_the_one_that_is_served_changes_only_for_a_clearly_shorter_one(
    other: float, served: list[str]
) -> None:
    jobs = [done("served", left=100.0, use=500), done("a", left=other, **CAPPED)]
    found = shared(*jobs, done("b", left=300.0, **CAPPED))
    assert [proposal.job for proposal in found.proposals if proposal.measure is not None] == served


LENDERS: dict[str, tuple[dict[str, Any], bool]] = {
    "a job that was seen to fill the node": ({"peak": 1390}, True),
    "a job without that knowledge, to a much shorter job": ({"left": 200.0}, True),
    "not to a job that is not much shorter": ({"left": 150.0}, False),
    "not if it has lent a tenth of all that it takes": (
        {"left": 200.0, "budget": Budget(used=100.0, lent=31.0)},
        False,
    ),
}


@pytest.mark.parametrize(("fields", "lends"), LENDERS.values(), ids=LENDERS)
def test_on_a_node_that_one_thread_does_not_fill_a_job_lends(
    fields: dict[str, Any], lends: bool
) -> None:
    lender = done("lender", **{"left": 110.0, "use": 700, **fields})
    found = advice(done("short", left=100.0, use=700), lender)
    assert [proposal.job for proposal in found.proposals] == (["lender"] if lends else [])


def test_one_that_is_left_alone_gets_its_limits_back() -> None:
    assert limits(shared(one("last", WATCHING, 0.0, left=90.0, **CAPPED))) == {"last-0": 1000}


def test_the_next_one_gets_its_limits_back_once_the_first_has_ended() -> None:
    found = shared(done("next", left=50.0, **CAPPED), done("last", left=90.0, use=700))
    (back,) = [proposal for proposal in found.proposals if proposal.job == "next"]
    assert limits(found)["next-0"] == 1000
    assert (back.measure, "ends next" in back.reason) == (None, True)


def test_no_cpu_idles_beside_a_capped_job() -> None:
    jobs = [grower(use=600), done("a", limit=350, use=350), done("b", limit=350, use=200)]
    found = advice(*jobs)
    assert limits(found) == {"a-0": int(0.93 * 1400) - 600 - 200}
    assert (only(found).serves, only(found).measure) == ("a", None)
    assert "leave" in only(found).reason


@pytest.mark.parametrize("left", [None, 40.0], ids=["by growth", "by what is left"])
def test_a_capped_pod_beside_one_that_was_made_anew_gets_its_limit_back(left: float | None) -> None:
    pods = (pod("capped", limit=175, use=170), pod("anew", use=300))
    alone = job("alone", *pods, state=COMPLETING, growth=0.0, left=left)
    assert limits(advice(alone))["capped"] == 1400


def test_what_is_given_back_is_not_taken_again_while_nobody_wants_more() -> None:
    widened = [grower(use=600), done("a", limit=502, use=502), done("b", limit=350, use=200)]
    assert advice(*widened) == Advice()


def test_a_job_that_has_lost_more_than_its_budget_is_left_alone() -> None:
    spent = done(limit=466, use=466, budget=Budget(used=1000.0, lost=101.0))
    back = only(advice(grower(use=934), spent))
    assert (back.job, back.rank, back.rests) == ("done", Rank.RESTORE, True)
    assert limits(advice(grower(use=934), spent)) == {"done-0": 1400}
    assert "101 CPU seconds" in back.reason
    generous = replace(spent, policies=done(parameters={"budget": 0.2}).policies)
    assert advice(grower(use=934), generous) == Advice()


def test_a_job_without_budget_left_is_one_of_the_others() -> None:
    spent = done("spent", budget=Budget(used=100.0, lost=50.0), use=400)
    found = advice(grower(use=500), spent, done("a", use=500))
    assert limits(found) == {"a-0": (1400 - 400) // 3}


@pytest.mark.parametrize("qos", [QoS.BEST_EFFORT, QoS.GUARANTEED])
def test_pods_that_are_not_burstable_stand_down_with_the_reason(qos: QoS) -> None:
    found = advice(grower(use=700), done(use=700, qos=qos))
    assert found.proposals == ()
    assert qos.value in found.stood_down["done"]


def test_a_job_of_which_nothing_is_known_is_left_alone_with_the_reason_and_counts() -> None:
    unread = job("unread", pod("unread-0", use=500), left=None, unread="metrics is off")
    found = advice(grower(use=450), done(use=450), unread)
    assert limits(found) == limits(
        advice(grower(use=450), done(use=450), replace(unread, unread=""))
    )
    assert limits(found).keys() == {"done-0"}
    assert found.stood_down == {"unread": "metrics is off"}


def test_F3_the_request_is_kept() -> None:
    assert limits(advice(grower(use=400), done(request=600, use=1000))) == {"done-0": 601}


def test_the_cap_of_a_job_is_split_by_the_use_of_its_pods() -> None:
    pods = (pod("busy", use=600), pod("idle", use=10))
    of = job("done", *pods, state=COMPLETING, growth=0.0)
    assert limits(advice(grower(use=790), of)) == {"busy": 416, "idle": 50}
    capped = replace(of, pods=(pod("busy", limit=600, use=600), pod("idle", limit=50, use=10)))
    assert limits(advice(grower(use=790), capped)) == {"busy": 416}


def test_a_job_over_several_nodes_gets_its_smallest_share_everywhere() -> None:
    pods = (pod("here", use=700), pod("there", node="n2", use=700))
    spread = job("spread", *pods, state=NEW, growth=0.1)
    beside = done(node="n2", use=700)
    # On n2 it has all of the growth, on n1 a quarter, so on both the floor: 466 of 1400. What is
    # left of n2 goes to the job beside it, as it could not use that.
    found = advice(grower(use=700), spread, beside)
    assert limits(found) == {"here": 466, "there": 466}
    assert only(found).serves == "grower"


def test_a_job_over_several_nodes_is_not_restricted_where_no_other_job_wants_more() -> None:
    pods = (pod("here", use=700), pod("there", node="n2", use=700))
    spread = job("spread", *pods, state=NEW, growth=0.1)
    assert limits(advice(grower(use=700), spread, done(node="n2", use=200))) == {"here": 466}


def test_the_limit_of_the_user_is_never_exceeded() -> None:
    found = advice(grower(use=400), done(user_limit=300, limit=100, use=100))
    assert limits(found) == {"done-0": 300}


STATES = st.sampled_from(GrowthState)


@st.composite
def clusters(draw: st.DrawFn) -> Signals:
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        pods = []
        for index in range(draw(st.integers(1, 3))):
            request = draw(st.integers(0, 300))
            user = draw(st.one_of(st.none(), st.integers(request + 50, 2000)))
            pods.append(
                pod(
                    f"j{number}-{index}",
                    node=draw(st.sampled_from(["n1", "n2"])),
                    request=request,
                    user_limit=user,
                    limit=draw(st.one_of(st.just(user), st.integers(request + 50, 2000))),
                    use=draw(st.one_of(st.none(), st.integers(0, 2000))),
                )
            )
        growth = draw(st.one_of(st.none(), st.just(0.0), st.floats(0.001, 20)))
        jobs.append(job(f"j{number}", *pods, state=draw(STATES), growth=growth))
    nodes = {
        name: NodeSignal(draw(st.integers(1, 8000)), draw(st.integers(0, 4000)))
        for name in ("n1", "n2")
    }
    return Signals(nodes, tuple(jobs))


@given(clusters())
def test_F3_no_limit_is_below_request_or_slice_nor_above_node_and_user(seen: Signals) -> None:
    pods = {pod.uid: pod for job in seen.jobs for pod in job.pods}
    for uid, limit in limits(RESIZE.propose(seen)).items():
        at_least = min(max(50, pods[uid].request), seen.open_limit(pods[uid]))
        assert at_least <= limit <= seen.open_limit(pods[uid])


@given(clusters())
def test_F3_no_cap_that_takes_is_below_the_floor(seen: Signals) -> None:
    found = RESIZE.propose(seen)
    for proposal in found.proposals:
        if proposal.measure is None:
            continue
        of = next(job for job in seen.jobs if job.uid == proposal.job)
        written = {size.pod: size.limit for stage in proposal.stages for size in stage}
        for node in of.nodes:
            here = [signal for signal in seen.jobs if signal.on(node)]
            known = seen.nodes[node]
            size = max(0, known.allocatable - known.others)
            pods = of.on(node)
            if not all(pod.uid in written for pod in pods):
                continue
            unlimited = sum(seen.open_limit(pod) for pod in pods)
            cap = sum(written[pod.uid] for pod in pods)
            assert cap >= min(size // (len(here) + 1), unlimited)


@given(clusters(), st.randoms(use_true_random=False))
def test_F3_the_order_of_jobs_and_pods_does_not_matter(seen: Signals, random: Any) -> None:
    jobs = [replace(job, pods=tuple(random.sample(job.pods, len(job.pods)))) for job in seen.jobs]
    random.shuffle(jobs)
    assert limits(RESIZE.propose(replace(seen, jobs=tuple(jobs)))) == limits(RESIZE.propose(seen))


@given(clusters())
def test_what_is_taken_serves_a_job_that_grows_faster(seen: Signals) -> None:
    jobs = {job.uid: job for job in seen.jobs}
    for proposal in RESIZE.propose(seen).proposals:
        if proposal.measure is not None:
            served = jobs[proposal.serves]
            assert served.state is NEW
            assert (served.growth or 0.0) > (jobs[proposal.job].growth or 0.0)

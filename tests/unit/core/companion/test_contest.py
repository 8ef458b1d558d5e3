"""What jobs that compete for a node may use, and which job may take CPU of another."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.contest import (
    Competitor,
    Contest,
    caps,
    caps_on_nodes,
    contest,
    contests,
    floor_of,
    is_left_open,
    outlasted,
    served,
    with_what_is_left,
)
from kfext.core.companion.signals import Budget, JobSignal
from kfext.core.progress.reported import GrowthState
from tests.unit.core.companion.jobs import job, pod, signals

NEW, WATCHING, COMPLETING = GrowthState.NEW, GrowthState.WATCHING, GrowthState.COMPLETING
SIZE = 1200

HAND_COMPUTED: dict[str, tuple[list[tuple[GrowthState, float | None]], list[int | None]]] = {
    "a job that grows has the whole node": ([(NEW, 0.2)], [1200]),
    "growing jobs have their shares": ([(NEW, 0.3), (NEW, 0.2)], [720, 480]),
    "a job that grows slowly has the floor": ([(NEW, 0.9), (NEW, 0.1)], [1080, 400]),
    "watching jobs stay as they are": ([(NEW, 0.3), (WATCHING, 0.1)], [900, None]),
    "completing ones have their share": ([(NEW, 0.2), (COMPLETING, 0.2)], [600, 600]),
    "but no less than 1/(n+1)": (
        [(NEW, 0.2), (COMPLETING, 0.0), (COMPLETING, 0)],
        [1200, 300, 300],
    ),
    "if all are completing none is restricted": (
        [(COMPLETING, 0.1), (COMPLETING, 0.0)],
        [1200, 1200],
    ),
    "without any growth all stay as they are": ([(NEW, 0.0), (COMPLETING, 0.0)], [None, None]),
    "a job without a known growth stays as it is": (
        [(NEW, None), (NEW, 0.2), (COMPLETING, 0.0)],
        [None, 1200, 300],
    ),
}


@pytest.mark.parametrize(("of", "want"), HAND_COMPUTED.values(), ids=HAND_COMPUTED)
def test_F3_the_limits_as_computed_by_hand(
    of: list[tuple[GrowthState, float | None]], want: list[int | None]
) -> None:
    assert caps(SIZE, [Competitor(state, growth, least=50) for state, growth in of]) == want


def test_F3_the_floor_is_the_request_or_one_part_of_one_more_than_there_are() -> None:
    assert floor_of(1200, jobs=3, least=50) == 300
    assert floor_of(1200, jobs=3, least=500) == 500
    busy = Competitor(COMPLETING, 0.0, least=700)
    assert caps(1200, [busy, Competitor(NEW, 0.2, least=50)]) == [700, 1200]


COMPETITORS = st.lists(
    st.builds(
        Competitor,
        st.sampled_from(GrowthState),
        st.one_of(st.none(), st.just(0.0), st.floats(0.001, 20)),
        st.integers(50, 3000),
    ),
    min_size=1,
    max_size=10,
)


@given(st.integers(0, 64000), COMPETITORS)
def test_F3_no_limit_is_below_the_floor_nor_above_node_and_request(
    size: int, of: list[Competitor]
) -> None:
    for competitor, cap in zip(of, caps(size, of), strict=True):
        if cap is not None and any(other.state is not COMPLETING for other in of):
            floor = floor_of(size, len(of), competitor.least)
            assert floor <= cap <= max(size, competitor.least)


@given(st.integers(0, 64000), COMPETITORS)
def test_F3_more_growth_never_gets_less(size: int, of: list[Competitor]) -> None:
    of = [Competitor(competitor.state, competitor.growth, least=50) for competitor in of]
    known = [
        (competitor.growth, cap)
        for competitor, cap in zip(of, caps(size, of), strict=True)
        if competitor.growth is not None and cap is not None
    ]
    for growth, cap in known:
        assert all(cap >= other_cap for other, other_cap in known if other <= growth)


LEFT: dict[str, tuple[list[int], list[int], list[int]]] = {
    "nothing is left": ([900, 300], [1200, 1200], [900, 300]),
    "what one leaves goes to the other": ([900, 300], [500, 1200], [900, 600]),
    "it goes by the caps": ([600, 400, 200], [300, 1200, 1200], [600, 533, 267]),
    "no more than is wanted": ([600, 300, 300], [100, 350, 1200], [600, 350, 650]),
    "if all have enough none is restricted": ([900, 300], [500, 400], [900, 1200]),
    "a job that wants no more keeps its cap": ([900, 300], [500, 100], [900, 300]),
}


@pytest.mark.parametrize(("limits", "wants", "want"), LEFT.values(), ids=LEFT)
def test_what_jobs_leave_goes_to_those_that_want_more(
    limits: list[int], wants: list[int], want: list[int]
) -> None:
    assert with_what_is_left(SIZE, limits, wants, room=1100) == want


@given(
    st.lists(st.tuples(st.integers(50, 1200), st.integers(0, 1200)), min_size=1, max_size=8),
    st.integers(0, 1200),
)
def test_no_job_gets_less_and_none_idles_beside_one_that_wants_more(
    of: list[tuple[int, int]], room: int
) -> None:
    limits, wants = [limit for limit, _ in of], [want for _, want in of]
    raised = with_what_is_left(SIZE, limits, wants, room=room)
    assert all(after >= before for after, before in zip(raised, limits, strict=True))
    used = sum(min(cap, want) for cap, want in zip(raised, wants, strict=True))
    assert used >= min(room, sum(wants))


def one(uid: str, **fields: object) -> JobSignal:
    return job(uid, pod(f"{uid}-0", **fields))


def test_the_size_of_a_node_is_what_others_leave() -> None:
    rests, asks = one("rests", use=200), one("asks", request=100)
    decided = one("decided", use=300)
    found = contest("n1", [decided], signals(decided, rests, asks, others=150))
    assert found.size == 1400 - 150 - 200 - 100
    assert [job.uid for job in found.jobs] == ["decided"]


def test_jobs_on_other_nodes_have_no_part_in_it() -> None:
    here, far = one("here"), one("far", node="n2", use=500)
    found = contest("n1", [here, far], signals(here, far))
    assert (found.size, [job.uid for job in found.jobs]) == (1400, ["here"])


def test_on_a_full_node_those_that_use_their_part_may_want_more() -> None:
    jobs = [one("a", use=900), one("b", use=400), one("c", use=100)]
    full = contest("n1", jobs, signals(*jobs))
    assert full.wants == {"a": 1400, "b": 1400, "c": 100}
    assert [full.could_use_more(job, up_to=1400) for job in jobs] == [True, True, False]
    assert not full.could_use_more(jobs[0], up_to=900)
    jobs[1] = one("b", use=300)
    slack = contest("n1", jobs, signals(*jobs))
    assert slack.wants == {"a": 900, "b": 300, "c": 100}
    assert not slack.could_use_more(jobs[0], up_to=1400)


def test_one_that_has_just_started_counts_as_busy_when_it_is_asked_whether_a_node_is_full() -> None:
    jobs = [one("a", use=500), one("b", use=450), one("just-started")]
    assert contest("n1", jobs, signals(*jobs)).wants["a"] == 1400
    jobs[1] = one("b", use=300)
    assert contest("n1", jobs, signals(*jobs)).wants["a"] == 500


def test_one_that_was_just_resized_is_about_to_take_what_others_leave() -> None:
    first, capped = one("first", use=300), one("capped", limit=500, use=300)
    jobs = [replace(first, settling=True), capped]
    settling = contest("n1", jobs, signals(*jobs))
    assert settling.wants["first"] == 1400
    assert settling.raised({"first": 1400, "capped": 466})["capped"] == 466
    jobs = [first, capped]
    known = contest("n1", jobs, signals(*jobs))
    assert known.wants["first"] == 300


def test_one_whose_use_is_not_known_is_not_known_to_want_more() -> None:
    of = one("a")
    found = contest("n1", [of], signals(of))
    assert found.wants == {"a": 1400}
    assert not found.could_use_more(of, up_to=1400)


def test_the_cap_of_a_job_is_the_sum_of_its_limits_below_those_of_the_user() -> None:
    jobs = [
        job("capped", pod("a", limit=100), pod("b", limit=200)),
        job("partly", pod("c", limit=100), pod("d")),
        job("as-written", pod("e", limit=300, user_limit=300)),
        job("shifted", pod("f", limit=100, user_limit=300), pod("g", limit=500, user_limit=300)),
        job("opened", pod("h", limit=1400)),
    ]
    found = contest("n1", jobs, signals(*jobs))
    assert found.present == {
        "capped": 300,
        "partly": 1500,
        "as-written": None,
        "shifted": None,
        "opened": None,
    }
    assert found.now(jobs[0]) == 300
    assert found.now(jobs[1]) == 1400, "no more than the node has"


def test_what_may_be_given_away_stays_below_what_counts_as_full() -> None:
    capped, other = one("capped", limit=300, use=300), one("other", use=600)
    found = contest("n1", [capped, other], signals(capped, other))
    raised = found.raised({"capped": 300, "other": 1400})
    assert raised["other"] == 1400
    assert 600 + raised["capped"] < 0.95 * 1400
    assert found.raised({"capped": 300, "other": 700})["capped"] == raised["capped"]


def test_the_contests_of_many_nodes_are_those_of_each() -> None:
    jobs = [
        job(f"j{at}", *(pod(f"j{at}-{node}", node=f"n{node}", use=90 * at) for node in on))
        for at, on in enumerate([(1, 2), (2, 3), (3,), (1, 3), (4,)])
    ]
    every, decided = signals(*jobs, others=100), jobs[:4]
    found = contests(decided, every)
    assert found == {node: contest(node, decided, every) for node in ("n1", "n2", "n3")}
    assert list(found) == sorted(found)


NEW, COMPLETING = GrowthState.NEW, GrowthState.COMPLETING


def grows(uid: str = "grows", *, left: float | None = None) -> JobSignal:
    return job(uid, state=NEW, growth=0.3, left=left)


def done(uid: str = "done", *, left: float | None = None, lent: float = 0.0) -> JobSignal:
    budget = Budget(used=100.0, lent=lent)
    return job(uid, state=COMPLETING, growth=0.0, left=left, budget=budget)


def on(*jobs: JobSignal, allocatable: int = 1400) -> Contest:
    return contest("n1", list(jobs), signals(*jobs, allocatable=allocatable))


SERVED: dict[str, tuple[JobSignal, JobSignal, bool]] = {
    "a growing job, by a converged job": (grows(), done(), True),
    "not the other way round": (done(), grows(), False),
    "a job that grows and ends first, by a job that may never end": (
        grows(left=9.0),
        done(),
        True,
    ),
    "not by a job that may end before it": (grows(), done(left=9.0), False),
    "the job that ends first, whichever grows": (done(left=5.0), grows(left=9.0), True),
    "not a job that ends later, although it grows": (grows(left=9.0), done(left=5.0), False),
}


@pytest.mark.parametrize(("other", "giving", "want"), SERVED.values(), ids=SERVED)
def test_which_job_is_served(other: JobSignal, giving: JobSignal, want: bool) -> None:
    assert (other in served(giving, on(other, giving))) is want


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        pytest.param([grows(left=9.0)], True, id="by the job that grows"),
        pytest.param([grows(left=9.0), grows("short", left=1.0)], False, id="not by all of them"),
        pytest.param([], False, id="none grows"),
    ],
)
def test_a_job_is_outlasted(jobs: list[JobSignal], want: bool) -> None:
    ends = done(left=5.0)
    assert outlasted(ends, on(ends, *jobs)) is want


OPEN: dict[str, tuple[JobSignal, int, bool]] = {
    "it fills the node, so it gets back all that it lends": (done(left=12.0), 1000, False),
    "it may not fill it, and lends to a job that is not much shorter": (
        done(left=12.0),
        1400,
        True,
    ),
    "it may not, and the other job is much shorter": (done(left=30.0), 1400, False),
    "it may not, and has lent enough": (done(left=30.0, lent=13.0), 1400, True),
}


@pytest.mark.parametrize(("lender", "size", "want"), OPEN.values(), ids=OPEN)
def test_a_job_that_would_lend_is_left_open(lender: JobSignal, size: int, want: bool) -> None:
    of = on(lender, done("first", left=10.0), allocatable=size)
    assert is_left_open(lender, of, share=0.1) is want


def test_where_growth_decides_a_job_that_is_outlasted_is_left_open() -> None:
    ends = done(left=5.0)
    assert is_left_open(ends, on(ends, grows()), share=0.1)


SPREAD = job(
    "spread", pod("here", use=700), pod("there", node="n2", use=700), growth=0.1, left=None
)
GROWER = job("grower", pod("g", use=700), growth=0.3)
DONE = job("done", pod("d", node="n2", use=700), growth=0.0, state=GrowthState.COMPLETING)
IDLE = replace(DONE, pods=(pod("d", node="n2", use=200),))
LITTLE = replace(SPREAD, pods=(pod("here", use=100), pod("there", node="n2", use=700)))
CAPS: dict[str, tuple[tuple[JobSignal, ...], tuple[int, int]]] = {
    "the smallest share holds on both, and the rest goes to the job beside it": (
        (SPREAD, GROWER, DONE),
        (466, 466),
    ),
    "a node that has enough for all is left out": ((SPREAD, GROWER, IDLE), (466, 1400)),
    "a node on which it takes less than its share sets no pace": (
        (LITTLE, GROWER, DONE),
        (466, 651),
    ),
}


@pytest.mark.parametrize(("jobs", "want"), CAPS.values(), ids=CAPS)
def test_the_caps_of_a_job_on_two_nodes(jobs: tuple[JobSignal, ...], want: tuple[int, int]) -> None:
    found = caps_on_nodes(jobs, contests(jobs, signals(*jobs)), budget=lambda _: 0.1)
    assert (found["n1"]["spread"], found["n2"]["spread"]) == want


def test_what_a_job_cannot_use_on_a_node_is_left_to_the_others_there() -> None:
    jobs = (SPREAD, GROWER, DONE)
    found = caps_on_nodes(jobs, contests(jobs, signals(*jobs)), budget=lambda _: 0.1)
    assert found["n2"]["done"] == int(0.93 * 1400) - 466

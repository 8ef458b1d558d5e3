"""What a node has for the jobs that are decided on, and what each wants of it."""

from dataclasses import replace

from kfext.core.companion.contest import contest, contests
from kfext.core.companion.signals import JobSignal
from tests.unit.core.companion.jobs import job, pod, signals


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

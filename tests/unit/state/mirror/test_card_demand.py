"""The slots that need GPUs, and the jobs that must not share a GPU again."""

from collections.abc import Callable

import pytest

from kfext.model.constraints import Toleration
from kfext.state.mirror.card_demand import CardDemand, SeparatedJobs

HERE = ("n", 0)
CASES: dict[str, tuple[list[Callable[[SeparatedJobs], None]], dict[str, set[str]]]] = {
    "no job had to leave": ([], {"low": set(), "high": set()}),
    "both jobs are kept apart": (
        [lambda apart: apart.record("low", ("high",))],
        {"low": {"high"}, "high": {"low"}, "other": set()},
    ),
    "a job left two jobs, and two jobs left a job": (
        [
            lambda apart: apart.record("low", ("high", "first")),
            lambda apart: apart.record("b", ("high",)),
        ],
        {"low": {"high", "first"}, "high": {"low", "b"}, "first": {"low"}},
    ),
    "the state of the job has forgotten a job": (
        [lambda apart: apart.record("low", ("a", "b")), lambda apart: apart.record("low", ("b",))],
        {"low": {"b"}, "a": set(), "b": {"low"}},
    ),
    "the job that left is deleted": (
        [lambda apart: apart.record("low", ("high",)), lambda apart: apart.forget("low")],
        {"low": set(), "high": set()},
    ),
    "the job that it left is deleted": (
        [
            lambda apart: apart.record("low", ("high",)),
            lambda apart: apart.forget("high"),
            lambda apart: apart.record("low", ("high", "next")),
        ],
        {"high": set(), "next": {"low"}},
    ),
}


@pytest.mark.parametrize(("acts", "want"), CASES.values(), ids=CASES)
def test_the_jobs_that_are_kept_apart(
    acts: list[Callable[[SeparatedJobs], None]], want: dict[str, set[str]]
) -> None:
    apart = SeparatedJobs()
    for act in acts:
        act(apart)
    assert {uid: apart.separated_from(uid) for uid in want} == want


def test_nothing_is_stored_about_deleted_jobs() -> None:
    apart = SeparatedJobs()
    for number in range(100):
        apart.record(f"low-{number}", ("high", f"high-{number}"))
    for number in range(100):
        apart.forget(f"low-{number}")
    assert (len(apart._others), len(apart._named_by)) == (0, 0)


THERE = ("m", 1)
ON_GPU, ON_SPOT = ((Toleration(key=key, operator="Exists"),) for key in ("gpu", "spot"))


def test_a_changed_plan_returns_the_slots_with_a_changed_demand() -> None:
    demand = CardDemand()
    assert demand.plan("uid-1", {HERE: ()}) == {HERE}
    assert demand.plan("uid-1", {HERE: (), THERE: ()}) == {THERE}
    assert demand.plan("uid-1", {THERE: ()}) == {HERE}
    assert (demand.wants(HERE), demand.wants(THERE)) == (False, True)
    assert (list(demand.by_job), demand.jobs_at(THERE)) == (["uid-1"], ["uid-1"])
    assert demand.slots_of(["uid-1", "gone"]) == {THERE}
    demand.plan("uid-1", {})
    assert not demand.by_job


def test_a_pod_without_a_plan_returns_its_slot_when_the_demand_changes() -> None:
    demand = CardDemand()
    assert demand.keep("pod", HERE, ()) == {HERE}
    assert demand.keep("pod", HERE, ()) == set()
    assert demand.on({"n", "m"}) == {HERE}
    assert not demand.on({"m"})
    assert (list(demand.by_job), demand.jobs_at(HERE)) == ([], []), "no plan has it"
    assert demand.drop("pod") == {HERE}
    assert demand.drop("pod") == ()
    assert not demand.wants(HERE)


def test_the_tolerations_of_plans_come_first_and_a_deleted_job_keeps_its_tolerations() -> None:
    demand = CardDemand()
    demand.keep("pod", HERE, ON_SPOT)
    demand.keep("pod", HERE, ())
    assert demand.all() == {HERE: ON_SPOT}
    demand.plan("uid-1", {HERE: ON_GPU, THERE: ()})
    demand.plan("uid-2", {HERE: ON_SPOT})
    assert demand.all() == {HERE: ON_GPU, THERE: ()}

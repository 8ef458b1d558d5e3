"""Which slots need GPUs, and what the pods that reserve them tolerate."""

from kfext.model.constraints import Toleration
from kfext.state.card_demand import CardDemand

HERE, THERE = ("n", 0), ("m", 1)
GPU, SPOT = ((Toleration(key=key, operator="Exists"),) for key in ("gpu", "spot"))


def test_a_plan_that_changes_says_which_slots_that_concerns() -> None:
    demand = CardDemand()
    assert demand.plan("uid-1", {HERE: ()}) == {HERE}
    assert demand.plan("uid-1", {HERE: (), THERE: ()}) == {THERE}
    assert demand.plan("uid-1", {THERE: ()}) == {HERE}
    assert (demand.wants(HERE), demand.wants(THERE)) == (False, True)
    assert (list(demand.jobs()), demand.jobs_at(THERE)) == (["uid-1"], ["uid-1"])
    assert demand.of(["uid-1", "gone"]) == {THERE}
    demand.plan("uid-1", {})
    assert not demand.jobs()


def test_so_does_a_pod_that_keeps_its_part() -> None:
    demand = CardDemand()
    assert demand.keep("pod", HERE, ()) == {HERE}
    assert demand.keep("pod", HERE, ()) == set()
    assert demand.on({"n", "m"}) == {HERE}
    assert not demand.on({"m"})
    assert (list(demand.jobs()), demand.jobs_at(HERE)) == ([], []), "no plan has it"
    assert demand.drop("pod") == {HERE}
    assert demand.drop("pod") == ()
    assert not demand.wants(HERE)


def test_what_a_plan_tolerates_comes_first_and_that_of_a_job_which_is_gone_still_holds() -> None:
    demand = CardDemand()
    demand.keep("pod", HERE, SPOT)
    demand.keep("pod", HERE, ())
    assert demand.all() == {HERE: SPOT}
    demand.plan("uid-1", {HERE: GPU, THERE: ()})
    demand.plan("uid-2", {HERE: SPOT})
    assert demand.all() == {HERE: GPU, THERE: ()}

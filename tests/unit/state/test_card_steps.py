import math

from kfext import names
from kfext.core.ledger.claim import Claim
from kfext.model.constraints import Toleration
from kfext.state.card_steps import CardSteps, Reserve, Unreserve
from tests.gpu_builders import reservation
from tests.unit.state.test_cards import HERE, SHARER, Bed

TOLERATES = (Toleration(key="gpu", operator="Exists"),)


def steps(bed: Bed) -> CardSteps:
    return CardSteps(bed.cards, bed.ledger)


def test_a_gpu_that_a_plan_needs_is_reserved_once() -> None:
    bed = Bed()
    found = steps(bed)
    bed.cards.want("uid-1", {HERE: TOLERATES})
    assert list(found.due(0.0)) == [Reserve(HERE, TOLERATES)]
    assert list(found.due(1.0)) == [], "it is being written"
    found.finish(Reserve(HERE, TOLERATES), 1.0)
    bed.cards.take_pod("uid", reservation("n"))
    assert list(found.due(2.0)) == []
    assert math.isinf(found.next_look())


def test_a_gpu_that_a_pod_without_a_plan_still_uses_is_reserved_again() -> None:
    bed = Bed()
    found, pod = steps(bed), reservation("n")
    bed.cards.take_pod("uid", pod)
    bed.cards.keep(SHARER, planned=False, tolerations=TOLERATES)
    assert list(found.due(0.0)) == []
    bed.cards.take_pod("uid", None)
    assert list(found.due(0.0)) == [Reserve(HERE, TOLERATES)]
    found.finish(Reserve(HERE, TOLERATES), 0.0)
    bed.cards.take_pod("uid", pod)
    bed.cards.take_pod(SHARER.uid, None)
    assert list(found.due(1.0)) == [Unreserve(HERE, pod)]


def test_a_node_that_is_gone_gets_no_reservation() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {("gone", 0): ()})
    assert list(steps(bed).due(0.0)) == []


def test_what_nothing_comes_of_is_tried_again_later_each_time() -> None:
    bed = Bed()
    found = steps(bed)
    bed.cards.want("uid-1", {HERE: ()})
    (step,) = found.due(0.0)
    found.finish(step, 0.0)
    assert list(found.due(0.5)) == []
    assert found.next_look() == 1.0
    (step,) = found.due(1.0)
    found.finish(step, 1.0)
    assert found.next_look() == 3.0


def test_G4_a_card_is_given_back_at_once_when_nothing_uses_it() -> None:
    bed = Bed()
    found, pod = steps(bed), reservation("n")
    bed.cards.take_pod("uid", pod)
    bed.cards.want("uid-1", {HERE: ()})
    bed.ledger.claim(("pod", "sharer"), Claim("n", {"kfext.dev/gpu-0": 50}))
    assert list(found.due(0.0)) == []
    bed.cards.want("uid-1", {})
    assert list(found.due(0.0)) == [], "a pod still has time of it"
    bed.ledger.drop(("pod", "sharer"))
    assert list(found.due(0.0)) == [Unreserve(HERE, pod)]


def test_a_pod_that_has_ended_makes_way_for_the_next() -> None:
    bed = Bed()
    found, pod = steps(bed), reservation("n", phase="Failed")
    bed.cards.want("uid-1", {HERE: ()})
    bed.cards.take_pod("uid", pod)
    assert list(found.due(0.0)) == [Unreserve(HERE, pod)]
    found.finish(Unreserve(HERE, pod), 0.0)
    bed.cards.take_pod("uid", None)
    assert list(found.due(0.0)) == [Reserve(HERE, ())]
    assert names.NATIVE_GPU in pod.requests

"""The nodes and slots in which jobs get their shares of GPUs."""

from dataclasses import replace

from kfext.core.ledger.cards import as_sharing, kept_requests, taken_by, taken_by_reservation
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.cards import slots_for
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place, still_fits
from kfext.model.gpu import CardNeed, GpuShare, cards_counted_by, resource_of, without_card_counts
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, job, limits
from tests.gpu_builders import sharing, sharing_node

FIRST, SECOND = ReplicaKey("worker", 0), ReplicaKey("worker", 1)
LIMITS = limits()


def members(builder: JobBuilder) -> list[Member]:
    return members_of(as_sharing(builder.suspended().build(), None))


def ledger(*names: str, cards: int = 1) -> Ledger:
    return Ledger([sharing_node(name, cards=cards) for name in names])


def use(capacity: Ledger, node: str, share: GpuShare, *, slot: int = 0) -> None:
    """Claim a share of a card, and the GPU of the card."""
    capacity.claim(("pod", node, slot), Claim(node, taken_by(share.need, slot)))
    capacity.claim(("reserved", node, slot), Claim(node, taken_by_reservation(slot)))


def test_a_share_is_placed_on_the_card_that_it_fills() -> None:
    capacity = ledger("a", "b", "c")
    use(capacity, "b", GpuShare(50))
    placement = place(members(sharing("0.5")), capacity, LIMITS)
    assert placement == {FIRST: "b"}
    assert slots_for(members(sharing("0.5")), placement, capacity) == {FIRST: 0}


def test_replicas_of_one_job_are_never_on_one_card() -> None:
    capacity = ledger("a", cards=2)
    wanted = members(sharing("0.2", replicas=2))
    placement = place(wanted, capacity, LIMITS)
    assert placement == {FIRST: "a", SECOND: "a"}
    assert slots_for(wanted, placement, capacity) == {FIRST: 0, SECOND: 1}
    refused = place(members(sharing("0.2", replicas=3)), capacity, LIMITS)
    assert isinstance(refused, Verdict)
    assert "GPU shares of 0.2 " in refused.message


def test_one_gpu_is_not_both_shared_and_whole() -> None:
    mixed = sharing("0.5").master(gpus=2)
    capacity = ledger("a", cards=3)
    placement = place(members(mixed), capacity, LIMITS)
    assert not isinstance(placement, Verdict)
    assert slots_for(members(mixed), placement, capacity) == {FIRST: 0}
    assert isinstance(place(members(mixed), ledger("a", cards=2), LIMITS), Verdict)


def test_a_job_that_shares_nothing_needs_no_slot() -> None:
    wanted = members(job().worker(1, gpus=1))
    assert slots_for(wanted, {FIRST: "a"}, ledger("a")) == {}


def test_a_job_gets_the_other_card_of_a_node_if_one_card_is_closed_to_it() -> None:
    capacity, wanted = ledger("a", cards=2), members(sharing("0.5"))
    use(capacity, "a", GpuShare(50))
    assert slots_for(wanted, {FIRST: "a"}, capacity) == {FIRST: 0}
    closed = [("a", 0), ("gone", 1)]
    placement = place(wanted, capacity, limits(closed=closed))
    assert placement == {FIRST: "a"}
    assert slots_for(wanted, placement, capacity, closed=closed) == {FIRST: 1}
    assert slots_for(wanted, placement, capacity) == {FIRST: 0}, "the ledger is as it was"
    for fits, slot in ((True, 1), (False, 0)):
        (member,) = wanted
        card = CardNeed(50, slot=slot)
        requests = {**without_card_counts(member.requests), card.name: 1}
        there = replace(member, card=card, requests=requests)
        assert still_fits([there], capacity, limits(closed=closed), assignment=placement) is fits
    both = [("a", 0), ("a", 1)]
    assert isinstance(place(wanted, capacity, limits(closed=both)), Verdict)


def test_the_slot_of_a_waiting_member_stays_reserved() -> None:
    (member,) = members(sharing("0.5"))
    assert member.card is not None
    kept = kept_requests(member.requests, member.card, 1)
    assert {resource_of(1), "card 1 unsized"} <= kept.keys()
    assert all(cards_counted_by(name) is None for name in kept)
    assert without_card_counts(member.requests).items() <= kept.items()

"""Capacity that is about to be freed is held for its job."""

import math

import msgspec
import pytest

from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.ledger.cards import as_sharing
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import reserved_gpu
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, members_of
from kfext.model.gpu import CardNeed
from kfext.model.plan import NO_SLOTS, Places
from kfext.model.snapshot import PromiseRecord
from kfext.names import NATIVE_GPU
from kfext.state.mirror.holds import Holds
from tests.builders import job, node
from tests.gpu_builders import sharing, sharing_node


class Bed:
    """Holds on a ledger of one node with four CPUs. `freed`: how often capacity was freed."""

    def __init__(self) -> None:
        self.ledger = Ledger([node("a", cpu="4")])
        self.freed = 0
        self.holds = Holds(self.ledger, self._free)
        gang = job().worker(2, cpu="1")
        self.members = gang.members()
        self.places = {member.key: "a" for member in self.members}

    def _free(self) -> None:
        self.freed += 1

    @property
    def free_cpu(self) -> int:
        return int(self.ledger.free(("cpu",))[0, 0])

    def hold(self, uid: str = "one") -> None:
        self.holds.hold(HoldKind.RESCUE, uid, self.members, Places(self.places, NO_SLOTS))


def test_held_capacity_counts_as_used_for_all_but_its_job() -> None:
    bed = Bed()
    bed.hold()
    assert bed.free_cpu == 2000
    free_for_job = bed.ledger.free(("cpu",), ignoring=bed.holds.claims_of("one"))
    assert int(free_for_job[0, 0]) == 4000
    assert bed.holds.claims_of("another") == ()


def test_a_hold_replaces_the_previous_hold() -> None:
    bed = Bed()
    bed.hold()
    bed.hold()
    assert (bed.free_cpu, bed.holds.holders()) == (2000, ("one",))


def test_a_released_hold_frees_its_capacity_and_wakes_the_planner() -> None:
    bed = Bed()
    bed.hold()
    bed.holds.release("one")
    assert (bed.free_cpu, bed.freed, bed.holds.holders()) == (4000, 1, ())


def test_a_release_without_a_hold_frees_nothing() -> None:
    bed = Bed()
    bed.holds.release("one")
    assert bed.freed == 0


def test_a_moving_job_holds_its_target_and_its_former_nodes() -> None:
    bed = Bed()
    former, target = Places(bed.places, NO_SLOTS), Places({bed.members[0].key: "a"}, NO_SLOTS)
    bed.holds.hold(HoldKind.RESCUE, "one", bed.members, former, target)
    assert bed.free_cpu == 2000, "a place in both placements is held once"
    bed.holds.hold(HoldKind.RESCUE, "one", bed.members, target)
    assert (bed.free_cpu, bed.freed) == (3000, 1)
    bed.holds.hold(HoldKind.RESCUE, "one", bed.members, target)
    assert bed.freed == 1, "the same hold frees nothing"


def sharing_members(**settings: str) -> list[Member]:
    """Return the members of a job with half of a GPU."""
    return members_of(
        as_sharing(sharing("0.5", replicas=1, uid="one", **settings).suspended().build(), None)
    )


def holding(members: list[Member], *, reserved: bool = False) -> tuple[Ledger, Holds]:
    """Return a ledger of a node with two cards, and a hold of the members on the first card."""
    ledger = Ledger([sharing_node("n", cards=2)])
    if reserved:
        ledger.claim("reservation", reserved_gpu(("n", 0)))
    holds = Holds(ledger, lambda: None)
    keys = [member.key for member in members]
    holds.hold(
        HoldKind.RESCUE, "one", members, Places(dict.fromkeys(keys, "n"), dict.fromkeys(keys, 0))
    )
    return ledger, holds


LOW, HIGH, LOW_FREE = CardNeed(50, idle=200), CardNeed(50, high=True), CardNeed(50)
REMAINING: dict[str, tuple[list[Member], CardNeed, int]] = {
    "the other half, and the other card": (sharing_members(min_share="0"), LOW_FREE, 2),
    "no more than the other half": (sharing_members(min_share="0"), CardNeed(60), 1),
    "as much memory as is left": (sharing_members(memory="12Gi"), CardNeed(10, memory=8000), 1),
    "high priority on the other card alone": (sharing_members(priority="high"), HIGH, 1),
    "no high priority beside a low job": (sharing_members(), HIGH, 1),
    "high priority beside a low job without a minimum": (sharing_members(min_share="0"), HIGH, 2),
    "no low priority beside a high job": (sharing_members(priority="high"), LOW, 1),
}


@pytest.mark.parametrize(("members", "need", "want"), REMAINING.values(), ids=REMAINING)
def test_the_capacity_that_the_hold_of_a_share_leaves_to_other_jobs(
    members: list[Member], need: CardNeed, want: int
) -> None:
    ledger, holds = holding(members)
    assert ledger.free([need.name]).tolist() == [[want]]
    free_for_job = ledger.free([need.name], ignoring=holds.claims_of("one"))
    assert free_for_job.tolist() == [[2]]
    holds.release("one")
    assert ledger.free([need.name, NATIVE_GPU]).tolist() == [[2], [2]]


@pytest.mark.parametrize("reserved", [False, True], ids=["free", "reserved already"])
def test_the_hold_of_a_share_takes_one_gpu(*, reserved: bool) -> None:
    ledger, _ = holding(sharing_members(), reserved=reserved)
    assert ledger.free([NATIVE_GPU]).tolist() == [[1]]


def test_another_planner_continues_with_recorded_holds() -> None:
    ledger, holds = holding(sharing_members(priority="high"))
    again = Ledger([sharing_node("n", cards=2)])
    written = msgspec.json.encode(list(holds.record()))
    restored = Holds(again, lambda: None)
    restored.restore(msgspec.json.decode(written, type=list[PromiseRecord]), now=0.0)
    resources = [HIGH.name, NATIVE_GPU]
    assert again.free(resources).tolist() == ledger.free(resources).tolist() == [[1], [1]]
    assert again.free(resources, ignoring=restored.claims_of("one")).tolist() == [[2], [2]]


def test_a_hold_ends_at_its_time_and_wakes_the_planner() -> None:
    bed = Bed()
    places = Places(bed.places, NO_SLOTS)
    bed.holds.hold(HoldKind.START, "one", bed.members, places, until=10.0)
    bed.holds.expire(9.0)
    assert (bed.free_cpu, bed.holds.next_end()) == (2000, 10.0)
    bed.holds.expire(10.0)
    assert (bed.free_cpu, bed.freed, bed.holds.next_end()) == (4000, 1, math.inf)


def test_a_pod_takes_over_the_capacity_of_its_plan() -> None:
    bed = Bed()
    bed.holds.hold_plan("one", {"planned": Claim("a", {"cpu": 500})})
    bed.ledger.claim("pod", Claim("a", {"cpu": 500}))
    gains = bed.ledger.gains
    bed.holds.hand_over("one", "planned", heir="pod")
    assert (bed.holds.plan("one"), bed.free_cpu, bed.ledger.gains) == ({}, 3500, gains)

"""A cluster with shared GPUs, where the solver places jobs."""

from collections.abc import Sequence

from kfext.core.ledger.cards import as_sharing, slots_in, taken_by
from kfext.core.ledger.claims import replica_claim, reserved_gpu
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.cards import slots_for
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place
from kfext.core.queue.occupants import Ends
from kfext.core.queue.reservation import Reservation, reserve
from kfext.model.gpu import without_card_counts
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, job, limits
from tests.gpu_builders import sharing, sharing_node


def members(builder: JobBuilder) -> list[Member]:
    return members_of(as_sharing(builder.suspended().build(), None))


def share(share: str = "0.5", *, replicas: int = 1, **settings: str) -> list[Member]:
    """The members of a job that shares GPUs; by default it has low priority and no minimum."""
    return members(sharing(share, replicas=replicas, **{"min_share": "0", **settings}))


def whole(gpus: int = 1, *, replicas: int = 1) -> list[Member]:
    return members(job().worker(replicas, gpus=gpus))


class SharedCluster:
    """Nodes with cards that may be shared, and the jobs there, by uid."""

    def __init__(self, *nodes: str, cards: int = 2) -> None:
        self.ledger = Ledger([sharing_node(name, cards=cards) for name in nodes or ("n",)])
        self.reservation: Reservation | None = None

    def start(self, uid: str, wanted: Sequence[Member], *, slot: int | None = None) -> bool:
        """Place a job, in a slot if given; return whether there was capacity."""
        placement = place(wanted, self.ledger, limits())
        if isinstance(placement, Verdict):
            return False
        slots = slots_for(wanted, placement, self.ledger)
        assert slots is not None
        for pod in wanted:
            requests, at = without_card_counts(pod.requests), slots.get(pod.key)
            if pod.card is not None and at is not None:
                at = at if slot is None else slot
                requests |= taken_by(pod.card, at)
            claim = replica_claim(
                pod.constraints, requests, placement[pod.key], job=uid, priority=0
            )
            self.ledger.claim((uid, pod.key), claim)
        self._reserve_gpus()
        return True

    def end(self, *uids: str) -> None:
        """End jobs, and release the GPUs that have no sharer left."""
        for key, claim in self.ledger.claims().items():
            if claim.job in uids:
                self.ledger.drop(key)
        self._reserve_gpus()

    def reserve(self, wanted: Sequence[Member], *, ends: Ends | None = None) -> Reservation | None:
        """Reserve capacity for a job instead of the job with the present reservation."""
        before = self.reservation.claims if self.reservation else {}
        reservation = reserve(
            "head", wanted, self.ledger, limits(), ends=ends or {}, ignoring=before
        )
        self.drop_reservation()
        self.reservation = reservation
        self.ledger.claim_all(reservation.claims if reservation else {})
        return reservation

    def drop_reservation(self) -> None:
        """Drop the reservation."""
        for key in self.reservation.claims if self.reservation else ():
            self.ledger.drop(key)
        self.reservation = None

    def used_slots(self) -> set[tuple[str, int]]:
        """The slots with the GPUs that jobs have shares of."""
        claims = (claim for claim in self.ledger.claims().values() if not claim.kept)
        return {(claim.node, slot) for claim in claims for slot in slots_in(claim.requests)}

    def _reserve_gpus(self) -> None:
        used_slots = self.used_slots()
        for key, claim in self.ledger.claims().items():
            if claim.reserves is not None and (claim.node, claim.reserves) not in used_slots:
                self.ledger.drop(key)
        for place_ in used_slots:
            self.ledger.claim(("reservation", place_), reserved_gpu(place_))

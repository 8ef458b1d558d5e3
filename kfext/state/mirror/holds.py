"""The holds of all jobs, with their claims on the ledger."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from kfext.core.ledger.capacity_hold import Hold, HoldKind
from kfext.core.ledger.cards import kept_requests
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import replica_claim, reserved_gpu
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member
from kfext.core.queue.reservation import Reservation
from kfext.model.plan import Places
from kfext.model.quantity import Resources
from kfext.model.snapshot import PromiseRecord

HOLD_SECONDS = 300.0
"""The longest time that a start or a change holds capacity: a pod in its way may never end."""


class Holds:
    """The holds on a ledger: for plans, for the reservation, and for starts, rescues and changes.

    A job has at most one hold for its start, a rescue or a change; `freed` is called when such a
    hold releases capacity. Pods that are about to end may still exist, so a node can have more
    claims than capacity.
    """

    def __init__(self, ledger: Ledger, freed: Callable[[], None]) -> None:
        self.reservation: Reservation | None = None
        self._ledger = ledger
        self._freed = freed
        self._plans: dict[str, Hold] = {}
        self._others: dict[str, Hold] = {}

    def _claim(self, before: Hold | None, hold: Hold | None) -> bool:
        """Replace the claims of a hold; return whether some were dropped."""
        old = before.claims if before else {}
        new = hold.claims if hold else {}
        dropped = old.keys() - new.keys()
        for key in dropped:
            self._ledger.drop(key)
        self._ledger.claim_all(new)
        return bool(dropped)

    # --- plans ----------------------------------------------------------------------------------

    def plan(self, uid: str) -> Mapping[Hashable, Claim]:
        """Return the claims of the plan of a job."""
        hold = self._plans.get(uid)
        return hold.claims if hold else {}

    def hold_plan(self, uid: str, claims: Mapping[Hashable, Claim]) -> None:
        """Hold the claims of the plan of a job; without claims the hold ends."""
        before = self._plans.pop(uid, None)
        hold = Hold(kind=HoldKind.PLAN, job=uid, claims=dict(claims)) if claims else None
        if hold is not None:
            self._plans[uid] = hold
        self._claim(before, hold)

    def hand_over(self, uid: str, key: Hashable, *, heir: Hashable) -> None:
        """Drop a claim of the plan of a job, if present; the claim `heir` now has its capacity."""
        hold = self._plans.get(uid)
        if hold is not None and hold.claims.pop(key, None) is not None:
            self._ledger.hand_over(key, heir)

    # --- the reservation ------------------------------------------------------------------------

    def reserve(self, reservation: Reservation | None) -> None:
        """Replace the reservation; None ends it."""
        before, self.reservation = self.reservation, reservation
        self._claim(before, reservation)

    # --- starts, rescues and changes ------------------------------------------------------------

    def hold(
        self,
        kind: HoldKind,
        uid: str,
        members: Sequence[Member],
        *placements: Places,
        until: float = math.inf,
        waits_for: Sequence[str] = (),
    ) -> None:
        """Hold the nodes of a job's members in all `placements`, in place of its earlier hold.

        `until`: in epoch seconds. `waits_for`: the uids of the jobs that must stop first.
        """
        claims: dict[Hashable, Claim] = {}
        for places in placements:
            for member in members:
                if node := places.nodes.get(member.key):
                    requests = _kept_requests(member, places.slots.get(member.key))
                    claim = replica_claim(member.constraints, requests, node)
                    claims["promise", uid, member.key, node] = claim
            if places.slots:
                claims |= self._gpus(uid, places)
        waits = tuple(waits_for)
        self._set(Hold(kind=kind, job=uid, claims=claims, until=until, waits_for=waits))

    def _gpus(self, uid: str, places: Places) -> dict[Hashable, Claim]:
        """Return claims for the GPUs that the slots of a job still lack."""
        cards, claims = self._ledger.cards(), dict[Hashable, Claim]()
        for node, slot in {(places.nodes[key], slot) for key, slot in places.slots.items()}:
            row = self._ledger.row(node)
            if row is not None and not cards.is_reserved(row, slot):
                claims["promise", uid, (node, slot)] = reserved_gpu((node, slot))
        return claims

    def _set(self, hold: Hold) -> None:
        before, self._others[hold.job] = self._others.get(hold.job), hold
        if self._claim(before, hold):
            self._freed()

    def hold_of(self, uid: str) -> Hold | None:
        """Return the hold of a job for its start, a rescue or a change."""
        return self._others.get(uid)

    def claims_of(self, uid: str) -> tuple[Hashable, ...]:
        """Return the keys of the claims of that hold; only its job may use them."""
        hold = self._others.get(uid)
        return tuple(hold.claims) if hold else ()

    def holders(self, *, but: HoldKind | None = None) -> tuple[str, ...]:
        """Return the uids of the jobs with such a hold, except holds of the kind `but`."""
        return tuple(uid for uid, hold in self._others.items() if hold.kind is not but)

    def release(self, uid: str) -> None:
        """Release the hold of a job for its start, a rescue or a change."""
        if self._claim(self._others.pop(uid, None), None):
            self._freed()

    def expire(self, now: float) -> None:
        """Release the holds that end by `now`, in epoch seconds."""
        for uid in [uid for uid, hold in self._others.items() if hold.until <= now]:
            self.release(uid)

    def next_end(self) -> float:
        """Return when the next of these holds ends, in epoch seconds; infinity means never."""
        return min((hold.until for hold in self._others.values()), default=math.inf)

    # --- snapshots ------------------------------------------------------------------------------

    def record(self) -> Iterator[PromiseRecord]:
        """Yield the holds for starts, rescues and changes, for `restore`."""
        for uid, hold in self._others.items():
            for claim in hold.claims.values():
                place = claim.node, claim.requests, claim.host_ports
                yield PromiseRecord(uid, *place, claim.gang_terms, claim.reserves)

    def restore(self, records: Iterable[PromiseRecord], *, now: float) -> None:
        """Restore recorded holds. A record has no kind, so each counts as a rescue."""
        by_job: dict[str, dict[Hashable, Claim]] = {}
        for number, record in enumerate(records):
            by_job.setdefault(record.job_uid, {})["promise", record.job_uid, number] = Claim(
                record.node,
                record.requests,
                record.host_ports,
                gang_terms=record.gang_terms,
                reserves=record.reserves,
            )
        for uid, claims in by_job.items():
            self._set(Hold(kind=HoldKind.RESCUE, job=uid, claims=claims, until=now + HOLD_SECONDS))


def _kept_requests(member: Member, slot: int | None) -> Resources:
    """Return the resources to hold on a node for a waiting member, which may share a GPU."""
    if member.card is None or slot is None:
        return member.requests
    return kept_requests(member.requests, member.card, slot)

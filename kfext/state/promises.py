"""Capacity that is about to be freed, and for which job: no other one may take it meanwhile."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import replica_claim, reserved_gpu
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member
from kfext.core.placement.slots import Places, kept_requests
from kfext.model.snapshot import PromiseRecord


class Promises:
    """The promises by the uid of the job. `freed` is called when capacity is no longer promised."""

    def __init__(self, ledger: Ledger, freed: Callable[[], None]) -> None:
        self._ledger = ledger
        self._freed = freed
        self._kept: dict[str, tuple[Hashable, ...]] = {}

    def keep(self, uid: str, members: Iterable[Member], places: Places) -> None:
        """Promise a job the places of its members, in place of an earlier promise.

        Pods that are about to end may still be there, so a node can have more claims than room.
        """
        self.drop(uid)
        claims: dict[Hashable, Claim] = {
            ("promise", uid, member.key): replica_claim(
                member.constraints,
                kept_requests(member, places.slots.get(member.key)),
                places.nodes[member.key],
            )
            for member in members
        }
        cards = self._ledger.cards()
        for place in {(places.nodes[key], slot) for key, slot in places.slots.items()}:
            row = self._ledger.row(place[0])
            if row is not None and not cards.is_reserved(row, place[1]):
                claims["promise", uid, place] = reserved_gpu(place)
        self._claim(uid, claims)

    def record(self) -> Iterator[PromiseRecord]:
        """Yield what is promised, for `restore`."""
        claims = self._ledger.claims()
        for uid, keys in self._kept.items():
            for one in (claims[key] for key in keys):
                yield PromiseRecord(
                    uid, one.node, one.requests, one.host_ports, one.gang_terms, one.reserves
                )

    def restore(self, records: Iterable[PromiseRecord]) -> None:
        """Promise what was recorded."""
        found: dict[str, dict[Hashable, Claim]] = {}
        for number, one in enumerate(records):
            found.setdefault(one.job_uid, {})["promise", one.job_uid, number] = Claim(
                one.node,
                one.requests,
                one.host_ports,
                gang_terms=one.gang_terms,
                reserves=one.reserves,
            )
        for uid, claims in found.items():
            self._claim(uid, claims)

    def _claim(self, uid: str, claims: Mapping[Hashable, Claim]) -> None:
        self._ledger.claim_all(claims)
        self._kept[uid] = tuple(claims)

    def drop(self, uid: str) -> None:
        """Promise a job nothing any more."""
        keys = self._kept.pop(uid, ())
        for key in keys:
            self._ledger.drop(key)
        if keys:
            self._freed()

    def kept(self) -> tuple[str, ...]:
        """Return the uids of the jobs that were promised anything."""
        return tuple(self._kept)

    def of(self, uid: str) -> tuple[Hashable, ...]:
        """Return the claims that only this job may use."""
        return self._kept.get(uid, ())

"""The Lease (coordination.k8s.io): leader election, and a check that the leader is alive.

The election uses client-go's algorithm and timing. The webhooks hold jobs only for a live leader.

Clocks of different machines are never compared: a holder counts as alive for the duration of its
lease after this process last saw the Lease change.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import msgspec
import structlog

from kfext.errors import ApiError, Conflict, LeaseLost, NotFound
from kfext.kube import paths
from kfext.kube.client import Client, Object
from kfext.model.timestamps import timestamp, written_micro_time
from kfext.model.tolerant import mapping, strings
from kfext.names import KINDS, LEASE, NAMESPACE, SUSPECTS

_log = structlog.get_logger(__name__)

_RELEASE_SECONDS = 3.0
_FRESH_SECONDS = 30.0
_MAX_SUSPECTS = 100


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of the election, in seconds.

    A holder that lost the Lease must stop between `deadline` and `duration`, before a successor
    starts.

    `duration`: how long the other replicas wait for a holder that does not renew.
    `deadline`: how long a holder tries to renew before it stops.
    `retry`: the time between two attempts.
    """

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0

    @property
    def attempt(self) -> float:
        """The longest attempt: a second attempt after a dead connection fits into the deadline."""
        return self.deadline / 2


class LeaseHolder:
    """Acquires the Lease, renews it, and raises LeaseLost when it is lost.

    `identity` must be unique among the replicas. The Lease is acquired and renewed only while
    `healthy()` is true, so that a controller that cannot place jobs does not lead. `held` is set
    from acquisition to the end of `run`. Call `may_act` before every write. The Lease states the
    `kinds` of jobs that the controller handles, and the suspect nodes with their reasons.
    """

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        healthy: Callable[[], bool],
        kinds: Sequence[str] = (),
        suspects: Callable[[], Mapping[str, str]] = dict,
        namespace: str = NAMESPACE,
        timing: Timing | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.held = asyncio.Event()
        self._client = client
        self._identity = identity
        self._healthy = healthy
        self._kinds = ",".join(kinds)
        self._suspects = suspects
        self._namespace = namespace
        self._timing = timing or Timing()
        self._monotonic = monotonic
        self._observed: Object = {}
        self._version = ""
        self._observed_at = float("-inf")
        self._renewed_at = float("-inf")

    def may_act(self) -> bool:
        """Return whether this replica holds the Lease and no other replica can hold it yet.

        In a process that stalled for too long this is False even before `run` raises.
        """
        return self.held.is_set() and not self._overdue()

    async def run(self) -> None:
        """Acquire, then renew forever. Raises LeaseLost; cancelling releases the Lease.

        After LeaseLost the Lease is not released, because the caller may still be writing and must
        stop first.
        """
        self._renewed_at = await self._acquire()
        _log.info("lease acquired", namespace=self._namespace, name=LEASE, identity=self._identity)
        self.held.set()
        try:
            await self._renew()
        except asyncio.CancelledError:
            await self._release()
            raise
        finally:
            self.held.clear()

    async def _acquire(self) -> float:
        """Acquire the Lease; return the start of the successful attempt."""
        while True:
            began = self._monotonic()
            if self._healthy():
                try:
                    async with asyncio.timeout(self._timing.attempt):
                        if await self._try_acquire():
                            return began
                except TimeoutError:
                    _log.warning("lease not acquired", error="no answer")
                except ApiError as error:
                    _log.warning("lease not acquired", error=str(error))
            await asyncio.sleep(self._timing.retry)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._timing.retry)
            began = self._monotonic()
            remaining = self._renewed_at + self._timing.deadline - began
            if self._healthy() and remaining > 0:
                limit = min(remaining, self._timing.attempt)
                try:
                    async with asyncio.timeout(limit):
                        if not await self._try_acquire():
                            holder = self._observed.get("holderIdentity")
                            raise LeaseLost(f"the lease is now held by {holder}")
                    # Other replicas count from the server's write, which was after `began`.
                    self._renewed_at = began
                except TimeoutError:
                    _log.warning("lease not renewed", error=f"no answer in {limit:.1f} s")
                except ApiError as error:
                    _log.warning("lease not renewed", error=str(error))
            if self._overdue():
                silence = self._monotonic() - self._renewed_at
                raise LeaseLost(
                    f"the lease was not renewed for {silence:.1f} s"
                    f" (limit {self._timing.deadline:g} s, healthy: {self._healthy()})"
                )

    def _overdue(self) -> bool:
        return self._monotonic() - self._renewed_at >= self._timing.deadline

    async def _try_acquire(self) -> bool:
        """Acquire or renew the Lease; return False if another replica holds it.

        Raises Conflict if another replica is faster.
        """
        if self._observed.get("holderIdentity") == self._identity:
            # One request if no other replica wrote: a busy API server must not cost the Lease.
            with suppress(Conflict, NotFound):
                await self._write(self._version, self._spec(self._observed))
                return True
        path = paths.leases(self._namespace, LEASE)
        try:
            lease = await self._client.get(path)
        except NotFound:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "namespace": self._namespace,
                    "name": LEASE,
                    "annotations": self._annotations(),
                },
                "spec": self._spec({}),
            }
            self._observe(await self._client.create(paths.leases(self._namespace), body))
            return True
        self._observe(lease)
        holder = self._observed.get("holderIdentity") or ""
        if holder not in {"", self._identity}:
            duration = self._observed.get("leaseDurationSeconds") or self._timing.duration
            if self._monotonic() < self._observed_at + duration:
                return False
        await self._write(self._version, self._spec(self._observed))
        return True

    def _annotations(self) -> dict[str, str]:
        suspects = dict(islice(self._suspects().items(), _MAX_SUSPECTS))
        return {KINDS: self._kinds, SUSPECTS: json.dumps(suspects)}

    def _spec(self, old: Object) -> Object:
        now = written_micro_time(time.time())
        transitions = old.get("leaseTransitions") or 0
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.duration,
            "renewTime": now,
        }
        if old.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": transitions + bool(old)}
        return spec

    async def _write(self, version: str, spec: Object) -> None:
        metadata = {"resourceVersion": version, "annotations": self._annotations()}
        patch = {"metadata": metadata, "spec": spec}
        self._observe(await self._client.merge_patch(paths.leases(self._namespace, LEASE), patch))

    def _observe(self, lease: Object) -> None:
        spec = lease.get("spec") or {}
        self._version = lease["metadata"]["resourceVersion"]
        if spec != self._observed:
            self._observed, self._observed_at = spec, self._monotonic()

    async def _release(self) -> None:
        """Clear the holder, so that a successor need not wait; a release is no renewal."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                while not await self._clear_holder():
                    pass  # a renewal that was still in flight changed the Lease
        except (ApiError, TimeoutError) as error:
            _log.warning("lease not released, a successor waits until it expires", error=str(error))

    async def _clear_holder(self) -> bool:
        """Clear the holder; return False if the Lease changed since it was read."""
        lease = await self._client.get(paths.leases(self._namespace, LEASE))
        if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
            version = lease["metadata"]["resourceVersion"]
            try:
                await self._write(version, {"holderIdentity": "", "leaseDurationSeconds": 1})
            except Conflict:
                return False
        return True


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease.

    `renewed`: its renewTime in epoch seconds; 0.0 if it has none.
    `kinds`: the kinds of jobs that the controller handles; None means that it does not state them.
    """

    renewed: float
    kinds: frozenset[str] | None = None


def decode_lease(raw: bytes) -> LeaseRecord:
    """Return the content of a Lease from its JSON, for an Informer."""
    lease = mapping(msgspec.json.decode(raw))
    renewed = timestamp(mapping(lease.get("spec")).get("renewTime"))
    written = strings(mapping(lease.get("metadata")).get("annotations")).get(KINDS)
    return LeaseRecord(renewed, None if written is None else frozenset(written.split(",")))


class LeaseWatch:
    """Whether the Lease is fresh, without I/O. All times are in seconds.

    When the Lease is first seen, its age comes from renewTime and the wall clock. From then on the
    age is the time since renewTime was last seen to change, on this process's monotonic clock.
    """

    def __init__(self) -> None:
        self._renewed: float | None = None
        self._changed_at = 0.0

    def observe(self, renewed: float | None, *, wall: float, monotonic: float) -> None:
        """Record the present renewTime; None means that there is no Lease."""
        if renewed is None or renewed == self._renewed:
            self._renewed = renewed
            return
        # A renewTime in the future only means that clocks differ.
        age = max(0.0, wall - renewed) if self._renewed is None else 0.0
        self._renewed, self._changed_at = renewed, monotonic - age

    def fresh(self, *, monotonic: float) -> bool:
        """Return whether the Lease was renewed in the last `_FRESH_SECONDS`."""
        return self._renewed is not None and monotonic - self._changed_at < _FRESH_SECONDS

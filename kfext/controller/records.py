"""The leader's records in ConfigMaps: the usage for its successor, the capacity for people.

An error keeps no job from being placed: a record is then outdated or missing.
"""

import asyncio

import structlog

from kfext.controller.metrics import guard
from kfext.core.queue.capacity_record import capacity_record
from kfext.core.queue.usage import decode_usage
from kfext.errors import ApiError
from kfext.kube.client import Client
from kfext.kube.records import CAPACITY, USAGE, read_record, write_record
from kfext.model.parameters import Fairness
from kfext.state.planner.planner import Planner

_log = structlog.get_logger(__name__)

_CAPACITY_SECONDS = 10.0
_REFUSED_SECONDS = 300.0
"""Pause after a refusal: an administrator may grant the permission later."""


class UsageKeeper:
    """Stores the usage of namespaces if a policy orders the queue by it; for the leader only."""

    def __init__(self, client: Client, planner: Planner) -> None:
        self._client = client
        self._planner = planner
        self._was_read = self._was_held = False

    async def keep(self) -> None:
        """Read the record once; on later calls write it, unless the usage has only decayed."""
        usage = self._planner.queue.usage
        try:
            if self._planner.settings.queueing.fairness is Fairness.USAGE and not self._was_read:
                usage.restore(decode_usage(await read_record(self._client, USAGE)))
                self._was_read = True
            elif usage.on:
                held = any(namespace.held for namespace in usage.record.namespaces.values())
                if held or self._was_held:
                    await write_record(self._client, USAGE, usage.record.encode())
                self._was_held = held
        except ApiError as error:
            _log.warning("usage is not kept", error=str(error))


class CapacityKeeper:
    """Stores the capacity and free capacity of nodes, for people who may see the whole cluster."""

    def __init__(self, client: Client, planner: Planner) -> None:
        self._client = client
        self._planner = planner
        self._basis: tuple[object, ...] = ()
        self._stored: str | None = None

    async def run(self) -> None:
        """Update the record until cancelled."""
        while True:
            pause = _CAPACITY_SECONDS
            with guard("keep the capacity"):
                pause = await self.keep()
            await asyncio.sleep(pause)

    async def keep(self) -> float:
        """Write the record if it has changed; return the seconds to the next check."""
        try:
            if self._stored is None:
                self._stored = await read_record(self._client, CAPACITY)
            ledger = self._planner.cluster.ledger
            reservation = self._planner.queue.reservations.current
            basis = (ledger.version, ledger.gains, reservation)
            if basis != self._basis:
                record = capacity_record(ledger, reservation)
                if record != self._stored:
                    await write_record(self._client, CAPACITY, record)
                    self._stored = record
            self._basis = basis
        except ApiError as error:
            _log.warning("capacity is not kept", error=str(error))
            return _REFUSED_SECONDS if error.final else _CAPACITY_SECONDS
        return _CAPACITY_SECONDS

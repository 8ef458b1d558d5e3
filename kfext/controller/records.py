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
"""The time to the next try where an administrator has not granted the right."""


class UsageKeeper:
    """Stores the usage of namespaces, where a policy asks for it; for the leader only."""

    def __init__(self, client: Client, planner: Planner) -> None:
        self._client = client
        self._planner = planner
        self._was_read = self._was_held = False

    async def keep(self) -> None:
        """Read the record, and later write it, unless nothing is held: then usage only decays."""
        usage = self._planner.queue.usage
        try:
            if self._planner.settings.queueing.fairness is Fairness.USAGE and not self._was_read:
                usage.restore(decode_usage(await read_record(self._client, USAGE)))
                self._was_read = True
            elif usage.on:
                held = any(each.held for each in usage.record.namespaces.values())
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
        self._known: tuple[object, ...] = ()
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
            ledger, kept = self._planner.cluster.ledger, self._planner.queue.reservations.current
            basis = (ledger.version, ledger.gains, kept)
            if basis != self._known and (record := capacity_record(ledger, kept)) != self._stored:
                await write_record(self._client, CAPACITY, record)
                self._stored = record
            self._known = basis
        except ApiError as error:
            _log.warning("capacity is not kept", error=str(error))
            return _REFUSED_SECONDS if error.final else _CAPACITY_SECONDS
        return _CAPACITY_SECONDS

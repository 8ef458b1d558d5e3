"""The controller's part: keep an authority in the Secret, and have the API servers trust it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.certs.authority import Pair, bundle, due, new_authority
from kfext.kube.certs.shared import Trust, decoded, encoded, read_trust, write_trust
from kfext.kube.client import Client, Object
from kfext.names import CA_SECRET, WEBHOOK_CONFIGURATION

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_NOTHING = Trust(Pair(b""), b"")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Issuer:
    """Issues and renews the authority; only the leader runs one."""

    def __init__(self, client: Client, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._client = client
        self._now = now
        self._coming: Trust | None = None

    async def run(self) -> None:
        """Check the Secret and the caBundle until cancelled."""
        while True:
            try:
                changed = await self.check()
                await asyncio.sleep(_RETRY_SECONDS if changed else _CHECK_SECONDS)
            except ApiError as error:
                _log.warning("certificate check failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def check(self) -> bool:
        """Renew what is due; return whether the caBundle had to be written. Raises ApiError.

        A new authority is written to the Secret, from where the webhooks use it, one check after
        the caBundle was seen to contain it. Until the API servers have noticed, they trust only the
        old authority, which stays valid. What they trust already stays trusted: there are webhooks
        that still serve its certificates.
        """
        now = self._now()
        stored = await self._stored()
        usable = stored.authority.usable
        if usable and not due(stored.authority.certificate, now=now):
            self._coming = None
            return await self._inject(bundle(stored.authority.certificate, stored.bundle, now=now))
        if self._coming is None:
            made, old = new_authority(now=now), stored.bundle + b"\n" + await self._trusted()
            self._coming = Trust(made, bundle(made.certificate, old, now=now))
        if await self._inject(self._coming.bundle):
            return True
        coming = self._coming
        await write_trust(
            self._client, Trust(coming.authority, coming.bundle, version=stored.version)
        )
        self._coming = None
        _log.info("certificate authority renewed", secret=CA_SECRET)
        return False

    async def _stored(self) -> Trust:
        try:
            return await read_trust(self._client)
        except NotFound:
            return _NOTHING

    async def _webhooks(self) -> list[Object] | None:
        """Return the webhooks of the configuration, None if there is none."""
        try:
            found = await self._client.get(paths.mutating_webhooks(WEBHOOK_CONFIGURATION))
        except NotFound:
            return None
        return list(found.get("webhooks") or ())

    async def _trusted(self) -> bytes:
        """Return the authorities that the API servers trust now."""
        hooks = await self._webhooks() or ()
        return b"\n".join(decoded(hook["clientConfig"].get("caBundle")) for hook in hooks)

    async def _inject(self, trusted: bytes) -> bool:
        """Write the caBundle into every webhook that has a different one; return whether any had.

        Raises Invalid if the webhooks change meanwhile.
        """
        wanted = encoded(trusted)
        hooks = await self._webhooks()
        if hooks is None:
            _log.warning("caBundle not written", why="there is no webhook configuration yet")
            return False
        operations: list[Object] = []
        for index, webhook in enumerate(hooks):
            if webhook["clientConfig"].get("caBundle") == wanted:
                continue
            at = f"/webhooks/{index}"
            operations += [
                {"op": "test", "path": f"{at}/name", "value": webhook["name"]},
                {"op": "add", "path": f"{at}/clientConfig/caBundle", "value": wanted},
            ]
        if operations:
            path = paths.mutating_webhooks(WEBHOOK_CONFIGURATION)
            await self._client.json_patch(path, operations)
        return bool(operations)

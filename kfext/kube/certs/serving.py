"""Keep a live TLS context supplied with a certificate that the API server trusts."""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kfext.errors import ApiError, NotFound
from kfext.kube.certs.authority import Pair, due, new_leaf
from kfext.kube.certs.shared import Trust, ensure_authority, inject_bundle
from kfext.kube.client import Client
from kfext.names import NAMESPACE, WEBHOOK_SERVICE

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 5.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ServingCertificate:
    """The TLS context of the webhook's server; `ready` is set once it holds a certificate.

    `extra_names`: DNS names or IP addresses besides those of the Service.
    `folder`: holds the private key for the moment in which `ssl` reads it; it should be a tmpfs.
    """

    def __init__(
        self,
        client: Client,
        *,
        folder: Path,
        extra_names: Sequence[str] = (),
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ready = asyncio.Event()
        self._client = client
        self._folder = folder
        service = f"{WEBHOOK_SERVICE}.{NAMESPACE}.svc"
        self._names = (service, f"{service}.cluster.local", *extra_names)
        self._now = now
        self._leaf: Pair | None = None
        self._issuer = b""

    async def run(self) -> None:
        """Check the authority, the caBundle and our certificate every minute until cancelled."""
        while True:
            try:
                changed = await self.check()
                await asyncio.sleep(_RETRY_SECONDS if changed else _CHECK_SECONDS)
            except ApiError as error:
                _log.warning("certificate check failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def check(self) -> bool:
        """Renew what is due; return whether the caBundle had to be written. Raises ApiError.

        A certificate of a new authority is used one check after the caBundle was seen to contain
        that authority. Until the API servers have noticed, they trust only the old authority, which
        stays valid.
        """
        trust = await ensure_authority(self._client, now=self._now())
        if self._leaf is None or self._issuer not in trust.bundle:
            self._renew(trust)
        try:
            changed = await inject_bundle(self._client, trust.bundle)
        except NotFound:
            _log.warning("caBundle not written", why="there is no webhook configuration yet")
            changed = True
        if not changed and self._stale(trust):
            self._renew(trust)
        return changed

    def _stale(self, trust: Trust) -> bool:
        if self._leaf is None or self._issuer != trust.authority.certificate:
            return True
        return due(self._leaf.certificate, now=self._now())

    def _renew(self, trust: Trust) -> None:
        leaf = new_leaf(trust.authority, names=self._names, now=self._now())
        self._load(leaf)
        self._leaf, self._issuer = leaf, trust.authority.certificate
        self.ready.set()
        _log.info("serving certificate renewed", names=self._names)

    def _load(self, leaf: Pair) -> None:
        # mkstemp gives mode 0600. `ssl` reads keys only from files, and needs this one only now.
        handle, name = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(leaf.certificate + leaf.key)
            self.context.load_cert_chain(name)
        finally:
            os.unlink(name)

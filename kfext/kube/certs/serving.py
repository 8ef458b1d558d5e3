"""The webhook's part: keep a live TLS context supplied with a certificate of the authority."""

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
from kfext.kube.certs.shared import read_trust
from kfext.kube.client import Client
from kfext.names import CA_SECRET, NAMESPACE, WEBHOOK_SERVICE

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 5.0
_FIRST_SECONDS = 1.0


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
        """Check our certificate every minute until cancelled; every second before the first."""
        while True:
            try:
                await self.check()
                await asyncio.sleep(_CHECK_SECONDS if self.ready.is_set() else _FIRST_SECONDS)
            except ApiError as error:
                _log.warning("certificate check failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS if self.ready.is_set() else _FIRST_SECONDS)

    async def check(self) -> None:
        """Renew our certificate if it is due or of an earlier authority. Raises ApiError.

        Whatever authority is in the Secret, the API servers trust it: the controller sees to that
        before it writes there. Without a usable one we keep what we have.
        """
        try:
            authority = (await read_trust(self._client)).authority
        except NotFound:
            _log.info("the controller has not issued a certificate authority", secret=CA_SECRET)
            return
        if not authority.usable:
            _log.warning("the certificate authority is not usable", secret=CA_SECRET)
        elif self._stale(authority):
            self._renew(authority)

    def _stale(self, authority: Pair) -> bool:
        if self._leaf is None or self._issuer != authority.certificate:
            return True
        return due(self._leaf.certificate, now=self._now())

    def _renew(self, authority: Pair) -> None:
        leaf = new_leaf(authority, names=self._names, now=self._now())
        self._load(leaf)
        self._leaf, self._issuer = leaf, authority.certificate
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

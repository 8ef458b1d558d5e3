"""The serving certificate of the webhook: signed here, or mounted from cert-manager's Secret."""

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import structlog

from kfext.errors import ApiError, NotFound
from kfext.kube.certs import Pair, due, new_leaf, read_trust, utc_now
from kfext.kube.client import Client
from kfext.names import CA_SECRET, NAMESPACE, PROGRESS_SERVICE, WEBHOOK_SERVICE

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 5.0
_FIRST_SECONDS = 1.0


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class ServingCertificate:
    """The TLS context of the webhook's server, with a certificate that kfext's own CA signed.

    `ready` is set once it has a certificate. `authority`: the CA certificates for clients, in PEM.
    `extra_names`: DNS names or IP addresses besides the Service's names.
    """

    def __init__(
        self,
        client: Client,
        *,
        extra_names: Sequence[str] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.context = _server_context()
        self.ready = asyncio.Event()
        self.authority = ""
        self._client = client
        services = [f"{name}.{NAMESPACE}.svc" for name in (WEBHOOK_SERVICE, PROGRESS_SERVICE)]
        qualified = [f"{service}.cluster.local" for service in services]
        self._names = (*services, *qualified, *extra_names)
        self._now = now
        self._leaf: Pair | None = None
        self._issuer = b""

    async def run(self) -> None:
        """Check the certificate every minute until cancelled; every second before the first."""
        while True:
            try:
                await self.check()
                await asyncio.sleep(_CHECK_SECONDS if self.ready.is_set() else _FIRST_SECONDS)
            except ApiError as error:
                _log.warning("certificate check failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS if self.ready.is_set() else _FIRST_SECONDS)

    async def check(self) -> None:
        """Renew the certificate if it is due or from an earlier CA. Raises ApiError.

        The API servers trust the CA in the Secret: the controller waits for that before it writes
        the Secret. While there is no usable CA, the certificate stays.
        """
        try:
            trust = await read_trust(self._client)
        except NotFound:
            _log.info("the controller has not issued a certificate authority", secret=CA_SECRET)
            return
        authority = trust.authority
        if not authority.usable:
            _log.warning("the certificate authority is not usable", secret=CA_SECRET)
            return
        self.authority = trust.bundle.decode("ascii", "replace")
        if self._stale(authority):
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
        # `ssl` reads keys only from files: this file is in memory and has no name on a disk.
        with os.fdopen(os.memfd_create("serving-key"), "wb") as file:
            file.write(leaf.certificate + leaf.key)
            file.flush()
            self.context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


class MountedCertificate:
    """The TLS context of the webhook's server with a certificate that another system renews.

    `folder`: where `tls.crt` and `tls.key` of a Secret are mounted. `ready` is set once both are
    loaded. `authority`: the Secret's `ca.crt`; empty if it has none.
    """

    def __init__(self, folder: Path) -> None:
        self.context = _server_context()
        self.ready = asyncio.Event()
        self.authority = ""
        self._folder = folder
        self._loaded = (b"", b"")

    async def run(self) -> None:
        """Check for a new certificate every minute until cancelled; every second at first."""
        while True:
            self.check()
            await asyncio.sleep(_CHECK_SECONDS if self.ready.is_set() else _FIRST_SECONDS)

    def check(self) -> None:
        """Load a new certificate; keep the present certificate if the files are unusable."""
        # The kubelet replaces both files at once, with a link to another folder.
        folder = (self._folder / "tls.crt").resolve().parent
        files = folder / "tls.crt", folder / "tls.key"
        try:
            content = files[0].read_bytes(), files[1].read_bytes()
            if content == self._loaded:
                return
            _server_context().load_cert_chain(*files)  # after an error a context is half loaded
            self.context.load_cert_chain(*files)
            trusted = folder / "ca.crt"
            self.authority = trusted.read_text() if trusted.exists() else ""
        except (OSError, ssl.SSLError) as error:
            _log.warning("mounted certificate not loaded", error=str(error))
            return
        self._loaded = content
        self.ready.set()
        _log.info("mounted certificate loaded", folder=str(self._folder))

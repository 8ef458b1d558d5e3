"""The address of the API server and our credentials: in the cluster, or from a kubeconfig."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfext.errors import KfextError
from kfext.model.tolerant import text

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
"""What the official client raises for well-formed YAML that is no kubeconfig."""
_TOKEN_SECONDS = 60.0  # the kubelet replaces the token at 80 % of its lifetime, well before its end


class NoAccess(KfextError):  # noqa: N818 - shown to a person who runs a command
    """Neither a service account nor a usable kubeconfig; the message names what was tried."""


class Token:
    """The Authorization header, read again every minute because tokens are rotated."""

    def __init__(
        self, read: Callable[[], str], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._value = ""
        self._read_at = float("-inf")

    async def header(self) -> dict[str, str]:
        """Return the header to send; empty if a client certificate authenticates us instead."""
        if self._monotonic() - self._read_at >= _TOKEN_SECONDS:
            # A kubeconfig may name a program that prints the token, which can take seconds.
            self._value = await asyncio.to_thread(self._read)
            self._read_at = self._monotonic()
        return {"Authorization": self._value} if self._value else {}

    def expire(self) -> None:
        """Read the token again before the next request, as the API server refused this one."""
        self._read_at = float("-inf")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server.

    `server`: its URL without a trailing slash.
    `tls`: None for plain HTTP.
    `token`: the source of the Authorization header.
    `server_hostname`: replaces the URL's host when the server's certificate is checked.
    """

    server: str
    tls: ssl.SSLContext | None
    token: Token
    server_hostname: str | None = None


def find_access(*, kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Return in-cluster access in a pod if no kubeconfig is named, else the kubeconfig's access.

    Raises NoAccess.
    """
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    return from_kubeconfig(kubeconfig, context=context)


def in_cluster(*, folder: Path = _SERVICE_ACCOUNT) -> Access:
    """Return the access of this pod's service account. Raises NoAccess."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        token.read_text()
    except OSError as error:
        raise NoAccess(f"this pod's service account in {folder} is unusable: {error}") from error
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=tls,
        token=Token(lambda: f"Bearer {token.read_text().strip()}"),
    )


def from_kubeconfig(path: Path | None, *, context: str | None = None) -> Access:
    """Return the access that a context of a kubeconfig gives. Raises NoAccess.

    Without a path it is KUBECONFIG or ~/.kube/config, without a context the current one.
    """
    # Imported here because it costs 30 MB of memory, which a pod does not need.
    from kubernetes import client, config  # noqa: PLC0415

    settings = client.Configuration()
    with _usable(path):
        config.load_kube_config(
            config_file=str(path) if path else None,
            context=context,
            client_configuration=settings,
            persist_config=False,
        )
        return Access(
            server=settings.host.rstrip("/"),
            tls=_tls(settings) if settings.host.startswith("https") else None,
            token=Token(lambda: settings.get_api_key_with_prefix("authorization") or ""),
            server_hostname=settings.tls_server_name,
        )


def namespace_of(path: Path | None, *, context: str | None = None) -> str:
    """Return the namespace of a context of a kubeconfig, empty if it has none. Raises NoAccess."""
    from kubernetes.config import kube_config  # noqa: PLC0415 - as above

    with _usable(path):
        merged = kube_config.KubeConfigMerger(str(path or kube_config.KUBE_CONFIG_DEFAULT_LOCATION))
        # Without a current context a context that is named is as good as with one.
        loader = kube_config.KubeConfigLoader(merged.config, active_context=context)
        return text(loader.current_context["context"].get("namespace"))


@contextmanager
def _usable(path: Path | None) -> Iterator[None]:
    """Raise NoAccess in place of what a kubeconfig causes that is missing or malformed."""
    from kubernetes import config  # noqa: PLC0415 - as above

    no_yaml = config.kube_config.yaml.YAMLError
    try:
        yield
    except (config.ConfigException, OSError, no_yaml, *_MALFORMED) as error:
        raise NoAccess(f"no usable kubeconfig ({path or 'default'}): {error}") from error


def _tls(settings: Any) -> ssl.SSLContext:
    """Return the TLS context that the official client's configuration describes."""
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context

"""The address of the API server, authentication, and the sending of requests.

The API server did not process a request that it answers with 429, so the request is sent again
after Retry-After, at most three times. A refused token is read again once. Nothing else is retried,
because only the caller knows whether a repetition is safe.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from kfext.errors import (
    AnswerTooLarge,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KfextError,
    NotFound,
    NotLeading,
    NotServed,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kfext.kube.paths import resource_of
from kfext.model.tolerant import mapping, text

Observe = Callable[[str, str, int], None]
"""Called once per request with its verb, resource and HTTP status; 0 means no response."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SOURCES = ("auth-provider", "token", "tokenFile", "exec", "username")  # of a kubeconfig
_TOKEN_SECONDS = 60.0  # the kubelet replaces the token at 80 % of its lifetime, well before its end
_REQUEST_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60.0  # kube-apiserver closes idle connections after 90 s; close them first
_THROTTLED_TRIES = 4
_LONGEST_THROTTLE_SECONDS = 10.0
_RETRY_SECONDS = 1.0  # after a 429 without Retry-After
_ERRORS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


class NoAccess(KfextError):  # noqa: N818 - shown to a person who runs a command
    """There is no usable service account or kubeconfig; the message says why."""


class Token:
    """The source of the Authorization header, read again every minute: tokens are rotated."""

    def __init__(
        self, read: Callable[[], str], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._value = ""
        self._read_at = float("-inf")

    async def header(self) -> dict[str, str]:
        """Return the header to send; empty if a client certificate authenticates kfext instead."""
        if self._monotonic() - self._read_at >= _TOKEN_SECONDS:
            # A kubeconfig may name a program that prints the token, which can take seconds.
            self._value = " ".join((await asyncio.to_thread(self._read)).split())  # no line end
            self._read_at = self._monotonic()
        return {"Authorization": self._value} if self._value else {}

    def expire(self) -> None:
        """Read the token again before the next request, after the API server refused it."""
        self._read_at = float("-inf")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server.

    `server`: its URL without a trailing slash.
    `tls`: the TLS context; None means plain HTTP.
    `token`: the source of the Authorization header.
    `server_hostname`: the name to expect in the server's certificate, instead of the URL's host.
    """

    server: str
    tls: ssl.SSLContext | None
    token: Token
    server_hostname: str | None = None


def find_access(*, kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Return the access of a kubeconfig or, in a pod and if none is named, of its service account.

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
        token=Token(lambda: f"Bearer {token.read_text()}"),
    )


def from_kubeconfig(path: Path | None, *, context: str | None = None) -> Access:
    """Return the access of a context of a kubeconfig. Raises NoAccess.

    The default path is KUBECONFIG or ~/.kube/config; the default context is the current context.
    """
    # Imported here because it costs 30 MB of memory, which a pod does not need.
    from kubernetes import client  # noqa: PLC0415
    from kubernetes.config import kube_config  # noqa: PLC0415

    settings, logged = client.Configuration(), list[str]()
    with _as_no_access(path):
        # The client logs why a user's plugin returns no credential, and continues as anonymous.
        log, loader = kube_config.logging.getLogger(), _loader(path, context)
        log.addFilter(collect := lambda record: logged.append(record.getMessage()))
        try:
            loader.load_and_set(settings)
        finally:
            log.removeFilter(collect)
        user, token = loader._user or {}, vars(loader).get("token", "").split()[1:]
        named = [key for key in _TOKEN_SOURCES if key in user]
        if named and not token and not settings.cert_file:
            source = f"the plugin {user['exec']['command']}" if "exec" in user else named[0]
            # In a terminal the plugin prints its error itself, and the client does not see it.
            why = [line for line in logged if "NoneType" not in line]
            raise ValueError(": ".join((f"{source} of the user returns no credential", *why)))
        return Access(
            server=settings.host.rstrip("/"),
            tls=_tls(settings) if settings.host.startswith("https") else None,
            # The header that the client itself would send; its key differs between releases.
            token=Token(lambda: settings.auth_settings().get("BearerToken", {}).get("value") or ""),
            server_hostname=settings.tls_server_name,
        )


def namespace_of(path: Path | None, *, context: str | None = None) -> str:
    """Return the namespace of a context of a kubeconfig; empty if it names none.

    Raises NoAccess.
    """
    with _as_no_access(path):
        return text(_loader(path, context).current_context["context"].get("namespace"))


def _loader(path: Path | None, context: str | None) -> Any:
    from kubernetes.config import kube_config  # noqa: PLC0415 - as above

    if path is not None and not path.exists():
        raise FileNotFoundError("no such file")  # the client calls it an invalid configuration
    merged = kube_config.KubeConfigMerger(str(path or kube_config.KUBE_CONFIG_DEFAULT_LOCATION))
    # A named context needs no current context.
    config = merged.config or {}
    return kube_config.KubeConfigLoader(config, active_context=context, config_base_path=None)


@contextmanager
def _as_no_access(path: Path | None) -> Iterator[None]:
    """Raise NoAccess in place of any error of the official client or of authentication."""
    try:
        yield
    except Exception as error:
        raise NoAccess(f"no usable kubeconfig ({path or 'default'}): {error}") from error


def _tls(settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `verb` is its name in metrics, as in RBAC (patch, watch, …)."""

    verb: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Connection:
    """A pool of connections to one API server; `observe` is called once per request."""

    def __init__(
        self, access: Access, *, connections: int = 64, observe: Observe | None = None
    ) -> None:
        self._access = access
        self._observe = observe
        self._may_write: Callable[[], bool] | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                ssl=access.tls if access.tls is not None else True,
                keepalive_timeout=_KEEPALIVE_SECONDS,
            ),
            # Compression costs the API server more than it saves inside a data centre.
            headers={"Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close all connections; running requests fail with Unavailable."""
        await self._session.close()

    def forbid_writes_unless(self, may_write: Callable[[], bool]) -> None:
        """From now on, raise NotLeading for each write while `may_write()` is false."""
        self._may_write = may_write

    async def send(self, request: Request, *, most: int | None = None) -> bytes:
        """Return the response to a request. Raises AnswerTooLarge for more than `most` bytes."""
        limits = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        token_refused = False
        throttled = 0
        while True:
            try:
                async with self._exchange(request, limits) as response:
                    if response.status >= 400:
                        raise await _refusal(response)
                    return await _body(response, most)
            except Unauthorized:
                if token_refused:
                    raise
                token_refused = True
            except TooManyRequests as error:
                throttled += 1
                if throttled == _THROTTLED_TRIES:
                    raise
                await asyncio.sleep(min(error.retry_after, _LONGEST_THROTTLE_SECONDS))

    async def stream(
        self, request: Request, *, silence_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield an empty chunk once the request is accepted, then the chunks of the response.

        Ends when nothing arrives for `silence_seconds`. Raises Unavailable for a broken connection.
        """
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds
        )
        async with self._exchange(request, limits) as response:
            if response.status >= 400:
                raise await _refusal(response)
            yield b""
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.SocketTimeoutError:
                return  # nothing to send, or a dead connection: a new request will tell

    @asynccontextmanager
    async def _exchange(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its response; convert failures and call the observer."""
        answered = False
        try:
            headers = await self._access.token.header() | {"Accept": request.accept}
            if request.body is not None:
                headers["Content-Type"] = request.content_type
            if request.method != "GET" and self._may_write is not None and not self._may_write():
                message = "not sent: another controller may lead by now"
                raise NotLeading(status=0, reason="NotLeading", message=message)
            async with self._session.request(
                request.method,
                URL(self._access.server + request.target, encoded=True),
                data=request.body,
                headers=headers,
                timeout=limits,
                server_hostname=self._access.server_hostname,
                allow_redirects=False,
            ) as response:
                answered = True
                self._count(request, response.status)
                if response.status == 401:
                    self._access.token.expire()
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise Unavailable(status=0, reason="NoAnswer", message=cause) from error
        finally:
            if not answered:
                self._count(request, 0)

    def _count(self, request: Request, status: int) -> None:
        if self._observe is not None:
            self._observe(request.verb, resource_of(request.path), status)


async def _body(response: aiohttp.ClientResponse, most: int | None) -> bytes:
    if most is None:
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            response.close()  # the rest would have to be read before another request
            message = f"the answer has more than {most} bytes"
            raise AnswerTooLarge(status=response.status, reason="TooLarge", message=message)
        chunks.append(chunk)
    return b"".join(chunks)


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    return error_of(
        response.status, await response.read(), retry_after=response.headers.get("Retry-After")
    )


def error_of(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """Return the error for a response with this HTTP status, body and Retry-After header."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):  # the page of a proxy, or plain text of the API server
        answer = {"message": body[:500].decode(errors="replace").strip()}
    reason, message = str(answer.get("reason") or ""), str(answer.get("message") or "no message")
    if status == 429:
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else _RETRY_SECONDS
        return TooManyRequests(status=status, reason=reason, message=message, retry_after=seconds)
    kind = Unavailable if status >= 500 else _ERRORS.get(status, ApiError)
    if kind is NotFound and not mapping(answer.get("details")).get("name"):
        kind = NotServed
    return kind(status=status, reason=reason, message=message)

"""The counters of CPU time that each kubelet serves at /metrics/resource.

A kubelet is asked only if the authority of the cluster has signed its certificate for its address.
"""

import ipaddress
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from kfext.errors import AnswerTooLarge, NotFound, Unavailable, Unverified
from kfext.kube import listing, paths
from kfext.kube.client import Client
from kfext.kube.node_token import NodeToken
from kfext.kube.request import Object, error_of
from kfext.model.cpu_use import CpuReading
from kfext.model.networking import LARGEST_PORT
from kfext.model.tolerant import mapping, sequence, text

MOST_BYTES = 8 * 2**20
"""Of an answer: that of 110 pods with two containers each has 0.15 MiB."""
_ENDPOINT_SECONDS = 600.0
_MOST_ENDPOINTS = 10_000
_CONNECT_SECONDS = 3.0
_TOTAL_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60.0
_NODE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_COUNTER = rb" ([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,2})?) ([0-9]{1,15})\r?$"
# Names of namespaces and pods need no escapes, and the kubelet writes labels in this order.
_POD_CPU = re.compile(
    rb'(?m)^pod_cpu_usage_seconds_total\{namespace="([a-z0-9-]{1,63})",pod="([a-z0-9.-]{1,253})"\}'
    + _COUNTER
)
_NODE_CPU = re.compile(rb"(?m)^node_cpu_usage_seconds_total" + _COUNTER)


@dataclass(frozen=True, slots=True)
class Readings:
    """The counters of a node: of its pods, by namespace and name, and of all that runs there.

    `node` is None where the kubelet does not state it.
    """

    pods: Mapping[tuple[str, str], CpuReading]
    node: CpuReading | None = None


class Kubelets:
    """Reads the counters of nodes, each with one request to its kubelet."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._token = NodeToken(client, monotonic)
        self._endpoints: dict[str, tuple[URL, float]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def readings(self, node: str) -> Readings:
        """Return the counters of a node and its pods.

        Raises ApiError: Unverified, Forbidden, NotFound for an unknown node, AnswerTooLarge,
        Unavailable.
        """
        session = self._connected()
        headers = {"Authorization": f"Bearer {await self._token.value()}", "Accept": "text/plain"}
        url = await self._endpoint(node)
        try:
            async with session.get(url, headers=headers, allow_redirects=False) as response:
                if response.status != 200:
                    said = f"the kubelet of {node} answered {response.status}".encode()
                    raise error_of(max(response.status, 400), said)
                body = await _body(response, node)
        except aiohttp.ClientConnectorCertificateError as error:
            message = f"the certificate of the kubelet of {node}: {error.certificate_error}"
            raise Unverified(status=0, reason="Unverified", message=message) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._endpoints.pop(node, None)  # it may have another address by now
            words = f"the kubelet of {node} does not answer: {str(error) or type(error).__name__}"
            raise Unavailable(status=0, reason="NoAnswer", message=words) from error
        found = parsed(body, read=self._monotonic())
        if not found.pods:
            message = f"the kubelet of {node} states no CPU time of pods"
            raise Unavailable(status=0, reason="NoFigures", message=message)
        return found

    def _connected(self) -> aiohttp.ClientSession:
        """Return the session, made at the first use. Raises Unverified."""
        if self._session is None:
            trust = self._client.trust()
            if trust is None:
                message = "the API server is not verified, so kubelets cannot be either"
                raise Unverified(status=0, reason="Unverified", message=message)
            self._session = _session(trust)
        return self._session

    async def _endpoint(self, node: str) -> URL:
        """Return where the kubelet of a node serves its metrics."""
        url, until = self._endpoints.get(node, (None, 0.0))
        if url is not None and self._monotonic() < until:
            return url
        if not _NODE_NAME.fullmatch(node):
            raise NotFound(status=0, reason="NotFound", message="a node cannot have this name")
        selectors = {"fieldSelector": f"metadata.name={node}"}
        found = await listing.first(self._client, paths.nodes(), count=1, selectors=selectors)
        url = endpoint_of(found[0]) if found else None
        if url is None:
            message = f"the address of node {node} is not known"
            raise NotFound(status=0, reason="NotFound", message=message)
        if len(self._endpoints) >= _MOST_ENDPOINTS:
            self._endpoints.clear()
        self._endpoints[node] = (url, self._monotonic() + _ENDPOINT_SECONDS)
        return url


def endpoint_of(node: Object) -> URL | None:
    """Return where a node says that its kubelet serves metrics, None if it does not."""
    status = mapping(node.get("status"))
    port = mapping(mapping(status.get("daemonEndpoints")).get("kubeletEndpoint")).get("Port")
    stated = [
        text(one.get("address"))
        for one in map(mapping, sequence(status.get("addresses")))
        if one.get("type") == "InternalIP"
    ]
    if not stated or type(port) is not int or not 0 < port <= LARGEST_PORT:
        return None
    try:
        address = ipaddress.ip_address(stated[0])
    except ValueError:
        return None
    return URL.build(scheme="https", host=str(address), port=port, path="/metrics/resource")


def parsed(body: bytes, *, read: float) -> Readings:
    """Return the counters of an answer in Prometheus' text format; `read` is when it was read."""

    def reading(seconds: bytes, milliseconds: bytes) -> CpuReading:
        return CpuReading(float(seconds), at=int(milliseconds) / 1000, read=read)

    pods = {
        (namespace.decode(), pod.decode()): reading(*counter)
        for namespace, pod, *counter in _POD_CPU.findall(body)
    }
    node = _NODE_CPU.search(body)
    return Readings(pods, reading(*node.groups()) if node else None)


def _session(trust: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust, keepalive_timeout=_KEEPALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=_TOTAL_SECONDS, sock_connect=_CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,  # a small answer could grow without a bound
    )


async def _body(response: aiohttp.ClientResponse, node: str) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MOST_BYTES:
            response.close()
            message = f"the kubelet of {node} answers with more than {MOST_BYTES} bytes"
            raise AnswerTooLarge(status=response.status, reason="TooLarge", message=message)
        parts.append(part)
    return b"".join(parts)

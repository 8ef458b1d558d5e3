"""An API server with a metrics API, and kubelets, each with a certificate and faults on demand."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.testbed.pki import Pki
from kfext.kube.access import Access, Token
from kfext.kube.client import Client
from kfext.names import NAMESPACE, NODE_METRICS_ACCOUNT

OWN_TOKEN = "Bearer of-the-controller"
NODE_TOKEN = "of-the-node-account"
_ADDRESS = "127.0.0.1"


def counters(**seconds: float) -> bytes:
    """Return what a kubelet serves: the CPU time of pods of namespace `team`, measured at 1000."""
    return b"".join(
        b'pod_cpu_usage_seconds_total{namespace="team",pod="%s"} %s 1000000\n'
        % (name.encode(), repr(used).encode())
        for name, used in seconds.items()
    )


def counter_of_node(seconds: float) -> bytes:
    """Return what a kubelet serves of its node, measured at 1000."""
    return b"node_cpu_usage_seconds_total %s 1000000\n" % repr(seconds).encode()


def figures(name: str, cpu: str, *, at: str = "2026-11-22T10:00:30Z") -> dict[str, Any]:
    """Return one item of the metrics API."""
    used = {"cpu": cpu, "memory": "1Mi"}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "timestamp": at,
        "window": "15.5s",
        "containers": [{"name": "main", "usage": used}],
    }


def figures_of_node(cpu: object) -> dict[str, Any]:
    """Return what the metrics API states of a node."""
    usage = {"cpu": cpu, "memory": "1Gi"}
    return {"timestamp": "2026-11-22T10:00:30Z", "window": "15.5s", "usage": usage}


class Answering:
    """A server whose answers a test sets: HTTP status and body, or a silence without an end."""

    def __init__(self, body: bytes = b"", status: int = 200) -> None:
        self.body, self.status, self.silent = body, status, False
        self.headers: dict[str, str] = {}
        self.requests: list[web.Request] = []
        self.shown: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.shown.append(request.headers.get("Authorization", ""))
        if self.silent:
            await asyncio.sleep(3600)
        return web.Response(status=self.status, body=self.body, headers=self.headers)

    @asynccontextmanager
    async def serving(self, pki: Pki, *, host: str = _ADDRESS) -> AsyncIterator[None]:
        """Listen, with a certificate for `host`."""
        made = pki.server(f"server-of-{host}", hosts=[host])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.certificate, made.key)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        server = TestServer(app, host=_ADDRESS, scheme="https")
        await server.start_server(ssl=context, shutdown_timeout=0.1)
        self.port = server.port or 0
        try:
            yield
        finally:
            await server.close()


class FakeCluster(Answering):
    """The API server: the metrics of namespaces, tokens, and the addresses of nodes.

    `metrics`: the items of each namespace, or the HTTP status of a refusal; a namespace that is not
    there is refused with `without`.
    `of_nodes`: what the metrics API states of nodes by name; others are refused with `without`.
    `token_status`: the HTTP status for a request of a token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, list[dict[str, Any]] | int | bytes] = {}
        self.of_nodes: dict[str, dict[str, Any]] = {}
        self.without = 404
        self.token_status = 201
        self.nodes: dict[str, tuple[str, object]] = {}
        self.asked: list[str] = []
        self.queries: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append(path)
        self.queries.append(dict(request.query))
        if self.silent:
            await asyncio.sleep(3600)
        if path == f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NODE_METRICS_ACCOUNT}/token":
            body = {"message": "refused", "status": {"token": NODE_TOKEN}}
            return web.json_response(body, status=self.token_status)
        if path == "/api/v1/nodes":
            name = request.query["fieldSelector"].removeprefix("metadata.name=")
            items = [_node(name, *self.nodes[name])] if name in self.nodes else []
            return web.json_response({"metadata": {}, "items": items})
        if path.startswith("/apis/metrics.k8s.io/v1beta1/nodes/"):
            stated = self.of_nodes.get(path.split("/")[-1])
            return web.json_response(stated or {}, status=200 if stated else self.without)
        found = self.metrics.get(path.split("/")[-2], self.without)
        if isinstance(found, int):
            return web.json_response({"message": "refused"}, status=found)
        if isinstance(found, bytes):
            return web.Response(body=found)
        return web.json_response({"items": found})

    def count(self, part: str) -> int:
        """Return how many requests had a part in their path."""
        return sum(part in path for path in self.asked)

    @asynccontextmanager
    async def client(self, pki: Pki) -> AsyncIterator[Client]:
        """Serve, and yield a client of the controller."""
        async with self.serving(pki):
            tls = ssl.create_default_context(cafile=str(pki.authority.certificate))
            server = f"https://{_ADDRESS}:{self.port}"
            access = Access(server=server, tls=tls, token=Token(lambda: OWN_TOKEN))
            async with Client(access) as client:
                yield client


def _node(name: str, address: str, port: object) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
    endpoints = {"kubeletEndpoint": {"Port": port}}
    return {
        "metadata": {"name": name},
        "status": {"addresses": addresses, "daemonEndpoints": endpoints},
    }


def encoded(*items: dict[str, Any]) -> bytes:
    """Return a list of the metrics API."""
    return json.dumps({"kind": "PodMetricsList", "items": list(items)}).encode()

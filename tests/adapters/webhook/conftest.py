"""The webhook with TLS on localhost, and a review context that a test sets."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from kfext import names
from kfext.core.admission.review import ReviewContext
from kfext.kube.certs import new_authority, new_leaf
from kfext.model.namespace import Namespace
from kfext.webhook.app import Metrics, make_app, make_runner
from tests.adapters.webhook import running

webhook, namespaces = running.webhook, running.namespaces

MANAGED = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)


@dataclass
class Known:
    """What the webhook knows of the cluster; if `error` is set, it is raised instead."""

    context: ReviewContext | None = field(default_factory=lambda: MANAGED)
    alive: bool = True
    error: Exception | None = None

    async def context_of(self, namespace: str) -> ReviewContext | None:
        if self.error:
            raise self.error
        return self.context

    def controller_alive(self) -> bool:
        if self.error:
            raise self.error
        return self.alive


@dataclass
class Service:
    """A running application, and a client that trusts its CA."""

    url: str
    session: aiohttp.ClientSession
    known: Known
    metrics: Metrics

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        async with self.session.post(self.url + path, data=body) as response:
            return response.status, await response.read()

    async def review(self, path: str, raw: Any, **request: Any) -> dict[str, Any]:
        """Review an object; return the response with its patch decoded."""
        status, body = await self.post(path, orjson.dumps(review(raw, **request)))
        assert status == 200, body
        answer = orjson.loads(body)
        assert answer["kind"] == "AdmissionReview"
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        response: dict[str, Any] = answer["response"]
        if "patch" in response:
            assert response["patchType"] == "JSONPatch"
            response["patch"] = orjson.loads(base64.b64decode(response["patch"]))
        return response

    def count(self, *, kind: str, outcome: str) -> float:
        """Return the number of reviews with this outcome."""
        labels = {"kind": kind, "outcome": outcome}
        name = "kfext_webhook_review_duration_seconds_count"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def review(raw: Any, **request: Any) -> dict[str, Any]:
    """Return an AdmissionReview as the API server sends it."""
    group, _, version = str((raw or {}).get("apiVersion", "v1")).rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": group, "version": version, "kind": (raw or {}).get("kind", "Pod")},
            "resource": {"group": group, "version": version, "resource": "x"},
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
            "object": raw,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }


@asynccontextmanager
async def serving(app: web.Application, folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """Serve an application over TLS; yield its URL and the file with the CA certificate."""
    now = datetime.now(UTC)
    authority = new_authority(now=now)
    leaf = new_leaf(authority, names=["127.0.0.1"], now=now)
    (folder / "leaf.pem").write_bytes(leaf.certificate + leaf.key)
    (folder / "ca.crt").write_bytes(authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    runner = make_runner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}", folder / "ca.crt"
    finally:
        await runner.cleanup()


def client_that_trusts(authority: Path) -> aiohttp.ClientSession:
    trust = ssl.create_default_context(cafile=authority)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, limit=0))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    known = Known()
    metrics = Metrics(synced=lambda: True, controller_alive=known.controller_alive)
    async with (
        serving(
            make_app(known.context_of, metrics, controller_alive=known.controller_alive), tmp_path
        ) as (url, authority),
        client_that_trusts(authority) as session,
    ):
        yield Service(url, session, known, metrics)

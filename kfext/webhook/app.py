"""The routes. If anything fails inside, the object is admitted: the webhook never blocks it.

But what shares a GPU is refused then, as it must not run unless all of it was done. It comes by
routes of its own, for which the API server fails closed too.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from aiohttp import web

from kfext.core.admission.job import UNMANAGED, mutate_job
from kfext.core.admission.pod import mutate_pod
from kfext.core.admission.review import Facts, Mutation
from kfext.webhook import metrics as outcomes
from kfext.webhook.bodies import Bodies
from kfext.webhook.metrics import Metrics
from kfext.webhook.review import LIMIT, Request, ReviewError, answer, parse

_log = structlog.get_logger(__name__)

_IDLE_SECONDS = 120.0
"""A connection without a request is closed then, also one that sends its headers slowly. The API
server closes idle ones after 90 s; if we closed them first, a review could be lost."""
_LINGER_SECONDS = 1.0
"""How long the rest of a body that was turned away is read, so that the client sees the answer."""
_MOST_HEADERS = 32
_NOT_SYNCED = Mutation(warnings=("kfext has not read this namespace yet and changed nothing",))
_FAILED = Mutation(
    warnings=("kfext failed on this object and left it unchanged; see the log of the webhook",)
)
_CLOSED = Mutation(
    refusal="kfext cannot review this object now, and what shares a GPU does not run without it; "
    "try again, or look into the log of the webhook"
)


class Cluster(Protocol):
    """The source of the facts: `facts.Watched`, or a double in tests."""

    async def of(self, namespace: str) -> Facts | None:
        """Return the facts of a namespace, None while they are not known."""

    def controller_alive(self) -> bool:
        """Return whether the controller is alive."""


Decide = Callable[[Request, Any], Awaitable[Mutation]]
"""Request and its object -> what is done to the object."""


@dataclass(frozen=True, slots=True)
class _Route:
    """What is reviewed by one path; `fails_closed`: whether a failure refuses the object."""

    kind: str
    decide: Decide
    fails_closed: bool


def make_app(cluster: Cluster, metrics: Metrics) -> web.Application:
    """Return the application with POST /mutate-job and /mutate-pod, and -sharing of both."""

    async def job(request: Request, raw: Any) -> Mutation:
        facts = await cluster.of(request.namespace)
        return _NOT_SYNCED if facts is None else mutate_job(raw, facts)

    async def pod(request: Request, raw: Any) -> Mutation:
        return mutate_pod(raw, controller_alive=cluster.controller_alive())

    app, bodies = web.Application(client_max_size=LIMIT), Bodies(longest=LIMIT)
    for kind, decide in (("job", job), ("pod", pod)):
        for path, closed in ((f"/mutate-{kind}", False), (f"/mutate-{kind}-sharing", True)):
            route = _Route(kind, decide, fails_closed=closed)
            app.router.add_post(path, _handler(route, bodies, metrics))
    return app


def make_runner(app: web.Application, *, shutdown_timeout: float) -> web.AppRunner:
    """Return what serves the application; a connection can hold little and not for long."""
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=shutdown_timeout,
        keepalive_timeout=_IDLE_SECONDS,
        lingering_time=_LINGER_SECONDS,
        auto_decompress=False,
        max_headers=_MOST_HEADERS,
    )


def _handler(
    route: _Route, bodies: Bodies, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(http: web.Request) -> web.Response:
        began = time.perf_counter()
        try:
            async with bodies.of(http) as body:
                began = time.perf_counter()
                outcome, response = await _reviewed(route, body)
        except web.HTTPError as error:
            outcome = outcomes.REJECTED
            response = web.Response(status=error.status, text=error.text)
            response.force_close()
        metrics.observe(kind=route.kind, outcome=outcome, seconds=time.perf_counter() - began)
        return response

    return handle


async def _reviewed(route: _Route, body: bytes) -> tuple[str, web.Response]:
    """Return the outcome and the response to a body."""
    try:
        request = parse(body)
        outcome, written = await _decide(route, request)
    except ReviewError as error:
        return outcomes.REJECTED, web.Response(status=400, text=str(error))
    return outcome, web.Response(body=written, content_type="application/json")


async def _decide(route: _Route, request: Request) -> tuple[str, bytes]:
    """Return the outcome and the answer; an error admits the object unchanged, or refuses it."""
    closed = route.fails_closed
    log = _log.bind(kind=route.kind, namespace=request.namespace[:63], name=request.name[:253])
    if excess := request.excess:
        log.info("left alone", why=excess)
        why = f"kfext does not handle this {route.kind}: {excess}"
        left = Mutation(refusal=why) if closed else Mutation(warnings=(why,))
        return outcomes.REFUSED if closed else outcomes.UNCHANGED, answer(request, left)
    raw = request.decoded()
    try:
        mutation = await route.decide(request, raw)
        # Only jobs of managed namespaces come by this route, so our copy of the namespace is stale.
        if closed and mutation in (_NOT_SYNCED, UNMANAGED):
            mutation = _CLOSED
        written = answer(request, mutation)
    except Exception:
        log.exception("review failed", closed=closed)
        return outcomes.FAILED, answer(request, _CLOSED if closed else _FAILED)
    if mutation.refusal:
        log.info("refused", why=mutation.refusal)
        return outcomes.REFUSED, written
    if not mutation.ops:
        return outcomes.UNCHANGED, written
    log.debug("patched", operations=len(mutation.ops), why=[v.reason for v in mutation.verdicts])
    return outcomes.PATCHED, written

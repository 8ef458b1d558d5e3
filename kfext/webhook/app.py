"""The two routes. If anything fails inside, the object is admitted: the webhook never blocks it."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog
from aiohttp import web

from kfext.core.admission.facts import Facts
from kfext.core.admission.job import mutate_job
from kfext.core.admission.mutation import Mutation
from kfext.core.admission.pod import mutate_pod
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


class Cluster(Protocol):
    """The source of the facts: `facts.Watched`, or a double in tests."""

    async def of(self, namespace: str) -> Facts | None:
        """Return the facts of a namespace, None while they are not known."""

    def controller_alive(self) -> bool:
        """Return whether the controller is alive."""


Decide = Callable[[Request, Any], Awaitable[Mutation]]
"""Request and its object -> what is done to the object."""


def make_app(cluster: Cluster, metrics: Metrics) -> web.Application:
    """Return the application with POST /mutate-job and /mutate-pod."""

    async def job(request: Request, raw: Any) -> Mutation:
        facts = await cluster.of(request.namespace)
        return _NOT_SYNCED if facts is None else mutate_job(raw, facts)

    async def pod(request: Request, raw: Any) -> Mutation:
        return mutate_pod(raw, controller_alive=cluster.controller_alive())

    app, bodies = web.Application(client_max_size=LIMIT), Bodies(longest=LIMIT)
    app.router.add_post("/mutate-job", _handler("job", job, bodies, metrics))
    app.router.add_post("/mutate-pod", _handler("pod", pod, bodies, metrics))
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
    kind: str, decide: Decide, bodies: Bodies, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(http: web.Request) -> web.Response:
        began = time.perf_counter()
        try:
            async with bodies.of(http) as body:
                began = time.perf_counter()
                outcome, response = await _reviewed(kind, decide, body)
        except web.HTTPError as error:
            outcome = outcomes.REJECTED
            response = web.Response(status=error.status, text=error.text)
            response.force_close()
        metrics.observe(kind=kind, outcome=outcome, seconds=time.perf_counter() - began)
        return response

    return handle


async def _reviewed(kind: str, decide: Decide, body: bytes) -> tuple[str, web.Response]:
    """Return the outcome and the response to a body."""
    try:
        request = parse(body)
        outcome, written = await _decide(kind, decide, request)
    except ReviewError as error:
        return outcomes.REJECTED, web.Response(status=400, text=str(error))
    return outcome, web.Response(body=written, content_type="application/json")


async def _decide(kind: str, decide: Decide, request: Request) -> tuple[str, bytes]:
    """Return the outcome and the answer; an error in `decide` admits the object unchanged."""
    log = _log.bind(kind=kind, namespace=request.namespace[:63], name=request.name[:253])
    if excess := request.excess:
        log.info("left alone", why=excess)
        left = Mutation(warnings=(f"kfext does not handle this {kind}: {excess}",))
        return outcomes.UNCHANGED, answer(request, left)
    raw = request.decoded()
    try:
        mutation = await decide(request, raw)
        written = answer(request, mutation)
    except Exception:
        log.exception("review failed, admitted unchanged")
        return outcomes.FAILED, answer(request, _FAILED)
    if mutation.refusal:
        log.info("refused", why=mutation.refusal)
        return outcomes.REFUSED, written
    if not mutation.ops:
        return outcomes.UNCHANGED, written
    log.debug("patched", operations=len(mutation.ops), why=[v.reason for v in mutation.verdicts])
    return outcomes.PATCHED, written

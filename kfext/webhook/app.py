"""The two routes. If anything fails inside, the object is admitted: the webhook never blocks it."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from aiohttp import web

from kfext.core.admission.facts import Facts
from kfext.core.admission.job import mutate_job
from kfext.core.admission.mutation import Mutation
from kfext.core.admission.pod import mutate_pod
from kfext.webhook import metrics as outcomes
from kfext.webhook.metrics import Metrics
from kfext.webhook.review import LIMIT, Request, ReviewError, answer, parse

_log = structlog.get_logger(__name__)

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


Decide = Callable[[Request], Awaitable[Mutation]]


def make_app(cluster: Cluster, metrics: Metrics) -> web.Application:
    """Return the application with POST /mutate-job and /mutate-pod."""

    async def job(request: Request) -> Mutation:
        facts = await cluster.of(request.namespace)
        return _NOT_SYNCED if facts is None else mutate_job(request.object, facts)

    async def pod(request: Request) -> Mutation:
        return mutate_pod(request.object, controller_alive=cluster.controller_alive())

    app = web.Application(client_max_size=LIMIT)
    app.router.add_post("/mutate-job", _handler("job", job, metrics))
    app.router.add_post("/mutate-pod", _handler("pod", pod, metrics))
    return app


def _handler(
    kind: str, decide: Decide, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(http: web.Request) -> web.Response:
        try:
            body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            metrics.observe(kind=kind, outcome=outcomes.REJECTED, seconds=0.0)
            return web.Response(status=413, text=f"a review may have at most {LIMIT} bytes")
        began = time.perf_counter()
        try:
            request = parse(body)
        except ReviewError as error:
            outcome, response = outcomes.REJECTED, web.Response(status=400, text=str(error))
        else:
            outcome, mutation = await _decide(kind, decide, request)
            response = web.Response(body=answer(request, mutation), content_type="application/json")
        metrics.observe(kind=kind, outcome=outcome, seconds=time.perf_counter() - began)
        return response

    return handle


async def _decide(kind: str, decide: Decide, request: Request) -> tuple[str, Mutation]:
    """Return the outcome and the answer; an error in `decide` admits the object unchanged."""
    log = _log.bind(kind=kind, namespace=request.namespace, name=request.name)
    try:
        mutation = await decide(request)
    except Exception:
        log.exception("review failed, admitted unchanged")
        return outcomes.FAILED, _FAILED
    if mutation.refusal:
        log.info("refused", why=mutation.refusal)
        return outcomes.REFUSED, mutation
    if not mutation.ops:
        return outcomes.UNCHANGED, mutation
    log.debug("patched", operations=len(mutation.ops), why=[v.reason for v in mutation.verdicts])
    return outcomes.PATCHED, mutation

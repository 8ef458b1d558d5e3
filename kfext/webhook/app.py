"""The routes of the webhooks, and their metrics.

If kfext fails, the object is admitted unchanged, unless it shares a GPU: such an object must not
run without kfext's changes. Its routes are separate, and the API server fails closed on them.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kfext.core.admission.new_job import UNMANAGED, mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.webhook.review import LIMIT, Bodies, Request, ReviewError, answer, parse

_log = structlog.get_logger(__name__)

_IDLE_SECONDS = 120.0
"""A connection without a complete request is closed after this time. The API server closes idle
connections after 90 s; if the webhook closed them first, a review could be lost."""
_LINGER_SECONDS = 1.0
"""Time to read the remainder of a rejected body, so that the client sees the response."""
_MAX_HEADERS = 32

PATCHED, UNCHANGED, REFUSED = "patched", "unchanged", "refused"
FAILED = "failed"
"""kfext raised an error: the object was admitted unchanged or, if it shares a GPU, refused."""
REJECTED = "rejected"
"""The body was not a review: the HTTP status of the response was 4xx."""
_BUCKETS = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025, 0.1, 0.5, 2.0)

_NOT_SYNCED = ReviewResult(warnings=("kfext has not read this namespace yet and changed nothing",))
_FAILED = ReviewResult(
    warnings=("kfext failed on this object and left it unchanged; see the log of the webhook",)
)
_NEEDS_REVIEW = ReviewResult(
    refusal="kfext cannot review this object now, and objects that share a GPU need its review; "
    "try again, or read the log of the webhook"
)


class Metrics:
    """The metrics of one webhook process, in a registry of their own.

    No label has the name of a job or a namespace, so there are few series.
    """

    def __init__(self, *, synced: Callable[[], bool], controller_alive: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "kfext_webhook_review_duration_seconds",
            "Time from the last byte of a review to its answer.",
            labelnames=("kind", "outcome"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._posts = Counter(
            "kfext_webhook_posts",
            "Posts of progress, by the HTTP status of the answer.",
            labelnames=("code",),
            registry=self.registry,
        )
        self._add_flag(
            "kfext_webhook_synced",
            "1 once namespaces, policies and the Lease have been read",
            synced,
        )
        self._add_flag(
            "kfext_webhook_controller_alive",
            "1 while the controller renews its Lease; while 0, nothing is suspended or gated",
            controller_alive,
        )

    def observe(self, *, kind: str, outcome: str, seconds: float) -> None:
        """Count one review; `kind` is `job` or `pod`."""
        self._seconds.labels(kind, outcome).observe(seconds)

    def count_post(self, status: int) -> None:
        """Count one post of progress by the HTTP status of its answer."""
        self._posts.labels(str(status)).inc()

    def _add_flag(self, name: str, description: str, read: Callable[[], bool]) -> None:
        Gauge(name, description, registry=self.registry).set_function(lambda: float(read()))


Decide = Callable[[Request, Any], Awaitable[ReviewResult]]
"""Returns the result of the review of a request and its decoded object."""


@dataclass(frozen=True, slots=True)
class _Route:
    """The reviews on one path; `fails_closed`: whether a failure refuses the object."""

    kind: str
    decide: Decide
    fails_closed: bool


def make_app(
    context_of: Callable[[str], Awaitable[ReviewContext | None]],
    metrics: Metrics,
    *,
    controller_alive: Callable[[], bool],
    authority: Callable[[], str] = str,
) -> web.Application:
    """Return the application: POST /mutate-job and /mutate-pod, and each path with -sharing.

    `context_of`: returns the context of a review in a namespace, or None before it is read.
    `authority`: returns the CA certificates for pods that post progress, in PEM; empty at first.
    """

    async def job(request: Request, raw: Any) -> ReviewResult:
        context = await context_of(request.namespace)
        return _NOT_SYNCED if context is None else mutate_job(raw, context)

    async def pod(request: Request, raw: Any) -> ReviewResult:
        return mutate_pod(
            raw,
            controller_alive=controller_alive(),
            namespace=request.namespace,
            authority=authority(),
        )

    app, bodies = web.Application(), Bodies(longest=LIMIT)
    for kind, decide in (("job", job), ("pod", pod)):
        for path, closed in ((f"/mutate-{kind}", False), (f"/mutate-{kind}-sharing", True)):
            route = _Route(kind, decide, fails_closed=closed)
            app.router.add_post(path, _handler(route, bodies, metrics))
    return app


def make_runner(app: web.Application, *, shutdown_timeout: float) -> web.AppRunner:
    """Return the server of the application, with bounds on the size and age of connections."""
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=shutdown_timeout,
        keepalive_timeout=_IDLE_SECONDS,
        lingering_time=_LINGER_SECONDS,
        auto_decompress=False,
        max_headers=_MAX_HEADERS,
    )


def _handler(
    route: _Route, bodies: Bodies, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(http: web.Request) -> web.Response:
        began = time.perf_counter()
        try:
            async with bodies.read_body(http) as body:
                began = time.perf_counter()
                outcome, response = await _review(route, body)
        except web.HTTPError as error:
            outcome = REJECTED
            response = web.Response(status=error.status, text=error.text)
            response.force_close()
        metrics.observe(kind=route.kind, outcome=outcome, seconds=time.perf_counter() - began)
        return response

    return handle


async def _review(route: _Route, body: bytes) -> tuple[str, web.Response]:
    try:
        request = parse(body)
        outcome, written = await _decide(route, request)
    except ReviewError as error:
        return REJECTED, web.Response(status=400, text=str(error))
    return outcome, web.Response(body=written, content_type="application/json")


async def _decide(route: _Route, request: Request) -> tuple[str, bytes]:
    """Return the outcome and the answer of a review; an error changes nothing, or refuses."""
    closed = route.fails_closed  # then kfext refuses instead of changing nothing
    log = _log.bind(kind=route.kind, namespace=request.namespace[:63], name=request.name[:253])
    if excess := request.excess:
        log.info("not handled", why=excess)
        why = f"kfext does not handle this {route.kind}: {excess}"
        untouched = ReviewResult(refusal=why) if closed else ReviewResult(warnings=(why,))
        return REFUSED if closed else UNCHANGED, answer(request, untouched)
    raw = request.decode_object()
    try:
        result = await route.decide(request, raw)
        # Only jobs of managed namespaces arrive on this route, so kfext's copy is stale.
        if closed and result in (_NOT_SYNCED, UNMANAGED):
            result = _NEEDS_REVIEW
        written = answer(request, result)
    except Exception:
        log.exception("review failed", closed=closed)
        return FAILED, answer(request, _NEEDS_REVIEW if closed else _FAILED)
    if result.refusal:
        log.info("refused", why=result.refusal)
        return REFUSED, written
    if not result.ops:
        return UNCHANGED, written
    log.debug("patched", operations=len(result.ops), why=[v.reason for v in result.verdicts])
    return PATCHED, written

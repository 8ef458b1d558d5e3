"""Serve /healthz, /readyz and /metrics over plain HTTP, for the kubelet and Prometheus."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Check = Callable[[], str | None]
"""A function that returns None while all is well, else what is wrong."""


async def serve_probes(
    *, port: int, live: Check, ready: Check, registry: CollectorRegistry
) -> web.AppRunner:
    """Serve on all addresses until the caller calls `cleanup()` on the result. Raises OSError."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", _answer(live))
    app.router.add_get("/readyz", _answer(ready))
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        wrong = check()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    return handle

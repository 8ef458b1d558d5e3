"""Log format, signals, metrics and HTTP probes, the same for all services."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.typing import Processor

Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)

Check = Callable[[], str | None]
"""Returns a description of the problem; None means that there is no problem."""
Series = tuple[tuple[str, ...], float | None]
"""The label values of a series and its value; a series with the value None is not exported."""


class Scraped(Collector):
    """Metrics that `collect` computes at each scrape."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as of now."""
        return self._collect()


def filled(family: Family, series: Iterable[Series]) -> Family:
    """Add series to a family of metrics; return the family."""
    for labels, value in series:
        if value is not None:
            family.add_metric(labels, value)
    return family


def configure_logs(level: str = "info") -> None:
    """Send all log lines, from structlog and from the standard library, to stderr.

    They are text on a terminal and JSON everywhere else.
    `level` is debug, info, warning or error. Raises ValueError for any other level.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    terminal = sys.stderr.isatty()
    renderer: list[Processor] = (
        # The default traceback takes seconds, and prints all local variables: users' data.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets, in the running loop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def serve_probes(
    *, port: int, live: Check, ready: Check, registry: CollectorRegistry
) -> web.AppRunner:
    """Serve /healthz, /readyz and /metrics until `cleanup()` of the result. Raises OSError."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", _probe_handler(live))
    app.router.add_get("/readyz", _probe_handler(ready))
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def _probe_handler(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    return handle

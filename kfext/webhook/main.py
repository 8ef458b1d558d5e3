"""`kfext webhook`: certificates, watches, two servers, and an orderly shutdown."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web

from kfext.kube.client import Client
from kfext.names import CA_SECRET
from kfext.runtime import serve_probes, stop_signal
from kfext.webhook.app import Metrics, make_app, make_runner
from kfext.webhook.certificate import MountedCertificate, ServingCertificate
from kfext.webhook.context import WatchedContext
from kfext.webhook.posts import Posts

_log = structlog.get_logger(__name__)

_LONGEST_REVIEW_SECONDS = 3.0  # the API server waits 2 s


@dataclass(frozen=True, slots=True)
class Config:
    """The options of the webhook process.

    `port`: serves reviews and receives posts of progress over HTTPS.
    `probe_port`: serves probes and metrics over plain HTTP.
    `extra_names`: DNS names and IP addresses for the certificate, besides the Service's names.
    `tls_folder`: where another system mounts the certificate; None means that kfext signs it.
    `drain_seconds`: how long after SIGTERM requests are still served, until no more arrive.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    port: int = 9443
    probe_port: int = 8080
    extra_names: Sequence[str] = ()
    tls_folder: Path | None = None
    drain_seconds: float = 5.0


async def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError for a port in use, NoAccess, ApiError."""
    stop = stop_signal()
    async with await Client.connect(config.kubeconfig, context=config.context) as client:
        await _serve(config, client=client, stop=stop)


async def _serve(config: Config, *, client: Client, stop: asyncio.Event) -> None:
    watched = WatchedContext(client)
    certificate: ServingCertificate | MountedCertificate
    if config.tls_folder:
        certificate = MountedCertificate(config.tls_folder)
        awaited = f"nothing usable is mounted in {config.tls_folder}"
    else:
        certificate = ServingCertificate(client, extra_names=config.extra_names)
        awaited = f"the controller issues its authority (Secret {CA_SECRET})"
    metrics = Metrics(
        synced=lambda: watched.missing() is None, controller_alive=watched.controller_alive
    )

    def ready() -> str | None:
        if stop.is_set():
            return "shutting down"
        if not certificate.ready.is_set():
            return f"no certificate yet: {awaited}"
        missing = watched.missing()
        return f"not read yet: {missing}" if missing else None

    app = make_app(
        watched.context_of,
        metrics,
        controller_alive=watched.controller_alive,
        authority=lambda: certificate.authority,
    )
    posts = Posts(client, count=metrics.count_post)
    posts.add_routes(app)
    app.on_response_prepare.append(_close_on_stop(stop))
    reviews = make_runner(app, shutdown_timeout=_LONGEST_REVIEW_SECONDS)
    await reviews.setup()
    await web.TCPSite(reviews, port=config.port, ssl_context=certificate.context).start()
    probes = await serve_probes(
        port=config.probe_port, live=lambda: None, ready=ready, registry=metrics.registry
    )
    _log.info("serving", port=config.port, probe_port=config.probe_port)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(watched.run()),
                tasks.create_task(certificate.run()),
                tasks.create_task(posts.run()),
                tasks.create_task(_freeze_objects(certificate.ready)),
            ]
            await stop.wait()
            # The endpoints of the Service take about a second to drop this replica; until then
            # reviews still arrive.
            _log.info("draining", seconds=config.drain_seconds)
            await asyncio.sleep(config.drain_seconds)
            await reviews.cleanup()
            for task in background:  # `posts` first writes the remaining posts
                task.cancel()
    finally:
        await reviews.cleanup()
        await probes.cleanup()


def _close_on_stop(
    stop: asyncio.Event,
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a signal handler that closes connections after `stop`, so that clients reconnect.

    A review that arrives on an open connection while it is being closed would be lost.
    """

    async def close(request: web.Request, response: web.StreamResponse) -> None:
        if stop.is_set():
            response.headers["Connection"] = "close"
            response.force_close()

    return close


async def _freeze_objects(certified: asyncio.Event) -> None:
    """Exempt objects that live since the start from garbage collection: it would delay reviews."""
    await certified.wait()
    gc.collect()
    gc.freeze()

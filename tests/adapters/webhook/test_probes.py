from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from kfext.probes import serve_probes


class Process:
    """A process whose health a test sets."""

    def __init__(self) -> None:
        self.dead: str | None = None
        self.unready: str | None = "informers are not synced"
        self.registry = CollectorRegistry()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Process, str]]:
    process = Process()
    Counter("reviews", "Reviews.", registry=process.registry).inc(3)
    runner: web.AppRunner = await serve_probes(
        port=0,
        live=lambda: process.dead,
        ready=lambda: process.unready,
        registry=process.registry,
    )
    # Port 0 is another one for IPv4 and for IPv6.
    port = next(address[1] for address in runner.addresses if len(address) == 2)
    yield process, f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_probes_tell_the_truth_as_it_changes(served: tuple[Process, str]) -> None:
    process, url = served
    assert await get(f"{url}/readyz") == (503, "informers are not synced")
    assert await get(f"{url}/healthz") == (200, "ok")
    process.unready, process.dead = None, "no tick for 40 s"
    assert await get(f"{url}/readyz") == (200, "ok")
    assert await get(f"{url}/healthz") == (503, "no tick for 40 s")


async def test_metrics_are_those_of_the_registry(served: tuple[Process, str]) -> None:
    status, text = await get(f"{served[1]}/metrics")
    assert status == 200
    assert "reviews_total 3.0" in text

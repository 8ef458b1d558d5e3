"""Chromium on a page of `kubectl kfext ui`; a page may neither fail nor ask another host."""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from e2e.testbed import browser as needs
from e2e.testbed.preflight import Unavailable
from kfext.cli import ui_server
from tests.browser.shown import Shown, read_recording, serve_page

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 1024, "height": 768}
PATIENCE_MS = 30_000
Open = Callable[..., Coroutine[Any, Any, Page]]


MARKS = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
"""The marks of all tests here; they share a browser, and so an event loop."""
shared = partial(pytest_asyncio.fixture, loop_scope="session")


@pytest.fixture(scope="session", autouse=True)
def patience() -> None:
    expect.set_options(timeout=PATIENCE_MS)


@shared(scope="session")
async def browser() -> AsyncIterator[Browser]:
    try:
        program = needs.chromium()
    except Unavailable as missing:
        pytest.skip(str(missing))
    async with async_playwright() as playwright:
        # Within a container, root has no sandbox of Chromium; the page is kfext's own.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = await playwright.chromium.launch(executable_path=program, args=arguments)
        yield chromium
        await chromium.close()


@pytest.fixture
def shown() -> Shown:
    return read_recording()


@shared()
async def address(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setattr(ui_server, "_CHANGE_SECONDS", 0.1)
    async with serve_page(shown) as result:
        yield result


@shared()
async def opened(browser: Browser, address: str) -> AsyncIterator[Open]:
    """Yield a function that opens a view; then check that no page failed or asked another host."""
    host, faults = address.partition("/?")[0], list[str]()
    contexts = []

    async def open_page(view: str = "cluster", **options: Any) -> Page:
        context = await browser.new_context(**{"viewport": WIDE, **options})
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: _check(request.url, host, faults))
        await page.goto(f"{address}#{view}")
        await expect(page.get_by_role("status")).to_contain_text("As of")
        return page

    yield open_page
    for context in contexts:
        await context.close()
    assert faults == []


def _check(url: str, host: str, faults: list[str]) -> None:
    if not url.startswith((f"{host}/", "data:")):
        faults.append(f"asks {url}")

"""Pictures of all views: `python -m tests.browser.pictures FOLDER`, or `docs` for docs/ui.png."""

import asyncio
import sys
from pathlib import Path

from playwright.async_api import async_playwright, expect

from e2e.testbed import browser
from tests.browser.conftest import NARROW, WIDE
from tests.browser.shown import read_recording, serve_page
from tests.browser.test_access import VIEWS, place

ROOT = Path(__file__).parents[2]
DOCS = {"width": 1330, "height": 500}


async def write_pictures(folder: Path, *, docs: bool) -> None:
    """Write the pictures of all views, or for the docs only of the first view, light and dark."""
    shown = read_recording()
    async with serve_page(shown) as address, async_playwright() as playwright:
        program = await asyncio.to_thread(browser.chromium)
        chromium = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for size in (DOCS,) if docs else (WIDE, NARROW):
                page = await chromium.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
                await page.goto(address)
                for view in VIEWS[:1] if docs else VIEWS:
                    await page.evaluate("(view) => { location.hash = view; }", place(shown, view))
                    await expect(page.get_by_role("status")).to_contain_text("As of")
                    await page.wait_for_timeout(500)  # histories and details come after the view
                    name = "ui" if docs else f"{view}-{size['width']}"
                    dark = "-dark" if scheme == "dark" else ""
                    await page.screenshot(path=folder / f"{name}{dark}.png")
                await page.close()
        await chromium.close()


if __name__ == "__main__":
    docs = sys.argv[1:] == ["docs"]
    asyncio.run(write_pictures(ROOT / "docs" if docs else Path(sys.argv[1]), docs=docs))

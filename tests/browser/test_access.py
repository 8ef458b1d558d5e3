"""The page for everyone: by keyboard, with a screen reader, in light and dark, on a laptop."""

import pytest
from playwright.async_api import Page, expect

from e2e.testbed import browser as needs
from e2e.testbed.preflight import Unavailable
from tests.browser.conftest import MARKS, NARROW, WIDE, Open
from tests.browser.shown import Shown

pytestmark = MARKS

VIEWS = ("cluster", "queue", "timeline", "job", "waiting")
RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"


def place(shown: Shown, view: str) -> str:
    """Return the fragment of a view; a job's view shows the job with the longest history."""
    phase = {"job": "Placed", "waiting": "Queued"}.get(view)
    if phase is None:
        return view
    result = (raw for raw in shown.plans.values() if raw["status"]["phase"] == phase)
    raw = max(result, key=lambda raw: len(raw["status"]["history"]))
    return f"job/{raw['metadata']['namespace']}/{raw['spec']['job']['name']}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
async def test_axe_finds_no_violation(shown: Shown, opened: Open, view: str, scheme: str) -> None:
    try:
        script = needs.axe()
    except Unavailable as missing:
        pytest.skip(str(missing))
    page = await opened(place(shown, view), color_scheme=scheme, bypass_csp=True)
    await page.evaluate(script)
    result = await page.evaluate(
        f"axe.run(document, {RULES}).then(({{violations}}) => violations.map(({{id, nodes}}) => "
        "[id, nodes.length, nodes[0].html.slice(0, 200), nodes[0].failureSummary]))"
    )
    assert result == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("view", VIEWS)
async def test_nothing_is_wider_than_the_window(
    shown: Shown, opened: Open, view: str, size: dict[str, int]
) -> None:
    page = await opened(place(shown, view), viewport=size)
    await expect(page.get_by_role("heading", level=2).first).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == size["width"]


async def focused(page: Page) -> str:
    return str(await page.evaluate("document.activeElement.textContent.trim()"))


async def test_a_keyboard_is_sufficient(shown: Shown, opened: Open) -> None:
    page = await opened("cluster")
    await page.keyboard.press("Tab")
    assert await focused(page) == "Skip to the view"
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    assert await page.evaluate("!!document.activeElement.closest('main')")
    await page.keyboard.press("2")
    await expect(page.get_by_role("heading", name="Waiting jobs")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("bert")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Tab")  # the button for light and dark
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.keyboard.press("Tab")
    name = await focused(page)
    assert name.startswith("bert")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="cluster")).to_have_attribute("aria-current", "page")


async def test_the_choice_of_light_or_dark_is_remembered(opened: Open) -> None:
    page = await opened("cluster", color_scheme="dark")
    await page.get_by_role("button", name="Change between light and dark").click()
    assert await page.evaluate("document.documentElement.dataset.theme") == "light"
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") == "light"


async def test_hovering_explains_a_block_and_marks_its_job_on_all_nodes(
    shown: Shown, opened: Open
) -> None:
    page = await opened("cluster")
    placed = (raw for raw in shown.plans.values() if raw["status"]["phase"] == "Placed")
    raw = max(placed, key=lambda raw: len(raw["status"]["places"]))
    uid, name = raw["spec"]["job"]["uid"], raw["spec"]["job"]["name"]
    blocks = page.locator(f"#map [data-job='{uid}']")
    await blocks.first.hover()
    await expect(page.get_by_role("tooltip")).to_contain_text(name)
    marked, places = page.locator("#map .lit"), len(raw["status"]["places"])
    await expect(marked).to_have_count(places)
    shown.nodes["node-9"] = {"metadata": {"name": "node-9"}}
    await expect(page.locator("#map")).to_contain_text("node-9")
    assert await marked.count() == places  # drawing changes keeps the marks

"""The page while the cluster changes: focus, selection, scroll position and open texts stay."""

import asyncio
import json
import re
from typing import Any

from playwright.async_api import expect

from kfext.cli.ui_state import change
from kfext.core.words import age
from tests.browser.conftest import MARKS, Open
from tests.browser.shown import Shown, plan

pytestmark = MARKS


async def test_a_change_is_shown_and_focus_scroll_and_selection_stay(
    shown: Shown, opened: Open
) -> None:
    page = await opened("queue")
    link = page.get_by_role("row").nth(13).get_by_role("link")
    name = await link.inner_text()
    await link.focus()
    first = min(
        (raw for raw in shown.plans.values() if raw["status"]["phase"] == "Queued"),
        key=lambda raw: raw["status"]["ahead"],
    )
    shown.change(first["spec"]["job"]["uid"], phase="Placed")  # all rows go up by one
    shown.plans["new"] = plan("new-job", phase="Queued", ahead=0, created=shown.at)
    await expect(page.get_by_role("link", name="new-job")).to_be_visible()
    assert await page.evaluate("document.activeElement.textContent") == name
    await page.evaluate("scrollTo(0, 240)")
    shown.plans["last"] = plan("last-job", phase="Queued", ahead=99, created=shown.at)
    await expect(page.get_by_role("link", name="last-job")).to_be_attached()
    assert await page.evaluate("document.activeElement.textContent") == name
    assert await page.evaluate("scrollY") == 240


async def test_an_open_text_stays_open_and_a_selection_stays_selected(
    shown: Shown, opened: Open
) -> None:
    uid = next(uid for uid, raw in shown.plans.items() if raw["status"]["phase"] == "Placed")
    raw = shown.plans[uid]
    page = await opened(f"job/{raw['metadata']['namespace']}/{raw['spec']['job']['name']}")
    await page.get_by_text("Show it here").click()
    await expect(page.get_by_label("The job as text")).to_contain_text(shown.explained[0])
    await page.get_by_text("kubectl kfext explain").select_text()
    shown.change(uid, message="something new")
    await expect(page.get_by_text("something new")).to_be_visible()
    assert "kubectl kfext explain" in await page.evaluate("String(getSelection())")
    await expect(page.get_by_label("The job as text")).to_be_visible()


async def test_each_change_turns_the_old_state_into_the_new(shown: Shown, opened: Open) -> None:
    page = await opened("cluster")
    before = shown.state()
    uids = list(shown.plans)
    shown.change(uids[0], phase="Finished")
    del shown.plans[uids[1]]
    shown.plans["new"] = plan("new", places={"node-77": 1})
    shown.at += 2
    after = shown.state()
    script = "async (args) => (await import('/base.js')).applyChange(...args)"
    result = await page.evaluate(script, [before, change(before, after)])
    assert result == json.loads(json.dumps(after))


async def test_a_page_without_the_cluster_shows_its_age(shown: Shown, opened: Open) -> None:
    page = await opened("cluster")
    shown.heard, shown.notes = shown.at - 75, ["the cluster does not answer"]
    await expect(page.get_by_text("The cluster does not answer")).to_be_visible()
    await expect(page.get_by_role("status")).to_have_text("No news for 75s")
    shown.heard, shown.notes = None, []
    await expect(page.get_by_role("status")).to_contain_text("As of")
    await expect(page.get_by_text("The cluster does not answer")).to_have_count(0)


async def test_ages_are_shown_as_by_the_commands(opened: Open) -> None:
    page = await opened("cluster")
    seconds = [0, 1, 59.9, 60, 119, 120, 3599, 7199, 7200, 86_400, 172_799, 172_800, 1e6]
    script = "async (all) => { const { age } = await import('/base.js'); return all.map(age); }"
    assert await page.evaluate(script, seconds) == [age(second) for second in seconds]


async def test_a_hidden_page_reads_nothing_and_resumes(shown: Shown, opened: Open) -> None:
    page = await opened("cluster")
    hide = (
        "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: "
        "true }); document.dispatchEvent(new Event('visibilitychange')); }"
    )
    await page.evaluate(hide, True)
    shown.plans["new"] = plan("new-job", places={"node-1": 1})
    await asyncio.sleep(0.5)
    assert await page.get_by_role("link", name=re.compile("^new-job")).count() == 0
    await page.evaluate(hide, False)
    await expect(page.get_by_role("link", name=re.compile("^new-job")).first).to_be_visible()


async def test_histories_follow_what_changes(shown: Shown, opened: Open) -> None:
    uid = next(uid for uid, raw in shown.plans.items() if raw["status"]["phase"] == "Placed")
    raw: dict[str, Any] = shown.plans[uid]
    page = await opened(f"job/{raw['metadata']['namespace']}/{raw['spec']['job']['name']}")
    entry = {**raw["status"]["history"][-1], "what": "Moved", "why": "a better node"}
    shown.change(uid, history=[*raw["status"]["history"], entry])
    await expect(page.get_by_text("Moved: ")).to_be_visible()
    await expect(page.get_by_text("a better node")).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="◆")).to_have_count(1)

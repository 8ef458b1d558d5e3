"""What each view shows, found by the roles and texts of elements."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from kfext.cli.jobs import ORDERS, top_of
from kfext.core.words import age
from tests.browser.conftest import MARKS, Open
from tests.browser.shown import SHARED, Shown, plan

pytestmark = MARKS


def phases(shown: Shown, *phases_: str) -> list[dict[str, Any]]:
    return [raw for raw in shown.plans.values() if raw["status"]["phase"] in phases_]


def names_of(raws: list[dict[str, Any]]) -> set[str]:
    return {raw["spec"]["job"]["name"] for raw in raws}


async def cells(page: Page, row: str, heading: str) -> list[str]:
    """Return the cells of the row of a job in the table below a heading."""
    section = page.locator("section", has=page.get_by_role("heading", name=heading))
    result = section.get_by_role("row").filter(has=page.get_by_role("link", name=row, exact=True))
    return await result.get_by_role("cell").all_inner_texts()


async def test_the_cluster_shows_each_node_and_each_job_on_it(shown: Shown, opened: Open) -> None:
    page = await opened("cluster")
    for name in shown.nodes:
        await expect(page.get_by_text(name, exact=True)).to_be_visible()
    for raw in phases(shown, "Placed"):
        job = raw["spec"]["job"]["name"]
        if raw["status"]["places"][0]["node"] == SHARED:
            continue
        for place in raw["status"]["places"]:
            block = page.get_by_role("link", name=re.compile(rf"^{job}: .* of {place['node']}$"))
            await expect(block).to_have_count(1)
    await expect(page.get_by_role("region", name="Summary")).to_contain_text("GPUs in use")
    shares = "shared GPU 0: serve-1-worker-0 60 %, tune-2-worker-0 40 %"
    await expect(page.get_by_role("img", name=shares)).to_be_visible()
    first = min(phases(shown, "Queued"), key=lambda raw: raw["status"]["ahead"])["spec"]["job"]
    assert "8 to 32 workers" in await cells(page, first["name"], "Next in the queue")
    await expect(page.get_by_text("reserved", exact=True)).to_have_count(5)  # 4 nodes and the key


async def test_a_running_job_has_the_words_of_top(shown: Shown, opened: Open) -> None:
    (line, *_) = top_of(phases(shown, "Placed"), sort=ORDERS[-1], now=shown.at)
    page = await opened("cluster")
    job, workers, _, metric, *_, left = await cells(page, line["name"], "jobs with nodes")
    assert job.startswith(f"{line['name']} {line['namespace']}")
    assert workers.split()[0] == str(line["workers"])
    progress = line["progress"]
    assert metric == f"{progress['metric']} {progress['value']:.4g}"
    assert left == age(progress["secondsLeft"])


async def test_the_queue_has_its_order_reasons_places_and_expected_starts(
    shown: Shown, opened: Open
) -> None:
    waits = sorted(phases(shown, "Queued"), key=lambda raw: raw["status"]["ahead"])
    page = await opened("queue")
    section = page.locator("section", has=page.get_by_role("heading", name="Waiting jobs"))
    rows = section.get_by_role("row")
    await expect(rows).to_have_count(2 * len(waits) + 1)
    shown_names = await rows.get_by_role("link").all_inner_texts()
    assert shown_names[:10] == [raw["spec"]["job"]["name"] for raw in waits[:10]]
    first = waits[0]["status"]
    text = "".join([await rows.nth(row).inner_text() for row in (1, 2)])
    assert first["reason"] in text
    needs, *clauses = first["message"].split("; ")
    assert needs.startswith("it needs at least 8 of its 32 workers")
    assert "8 to 32 workers" in text
    left_out = [clause for clause in clauses if clause not in text]
    assert left_out == ["8 of 8 nodes are eligible", "it is first in the queue"]
    assert first["expectedStart"]["summary"] in text
    assert "its place follows from priority 0" in await rows.nth(4).inner_text()


async def test_the_timeline_shows_what_jobs_did_and_the_use_of_the_cluster(
    shown: Shown, opened: Open
) -> None:
    page = await opened("timeline")
    group = page.get_by_role("group", name=re.compile("jobs in the last"))
    await expect(group).to_contain_text("GPUs of these jobs, of 66")
    for name in names_of(phases(shown, "Placed")):
        await expect(group.get_by_role("link", name=name, exact=True)).to_have_count(1)
    starts = page.locator("#main [data-tip*='should start between']")
    assert 0 < await starts.count() <= len(phases(shown, "Queued"))
    await page.get_by_role("button", name="30 min").click()
    pressed = page.get_by_role("button", name="30 min")
    await expect(pressed).to_have_attribute("aria-pressed", "true")
    await expect(page.get_by_role("group", name=re.compile("in the last 30m"))).to_be_visible()


async def test_a_job_shows_its_curve_its_places_and_what_happened(
    shown: Shown, opened: Open
) -> None:
    raw = max(phases(shown, "Placed"), key=lambda raw: len(raw["status"]["history"]))
    name, namespace = raw["spec"]["job"]["name"], raw["metadata"]["namespace"]
    page = await opened(f"job/{namespace}/{name}")
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    metric = raw["status"]["progress"]["metric"]
    await expect(page.get_by_role("img", name=re.compile(f"^{metric} from"))).to_be_visible()
    for place in raw["status"]["places"]:
        await expect(page.get_by_text(place["node"], exact=True).first).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="Scaled: ").first).to_be_visible()
    await expect(page.get_by_text(f"kubectl kfext explain -n {namespace} {name}")).to_be_visible()
    await page.get_by_text("Show it here").click()
    await expect(page.get_by_label("The job as text")).to_contain_text(shown.explained[0])


async def test_a_waiting_job_shows_why_it_waits_and_when_it_should_start(
    shown: Shown, opened: Open
) -> None:
    raw = min(phases(shown, "Queued"), key=lambda raw: raw["status"]["ahead"])
    page = await opened(f"job/{raw['metadata']['namespace']}/{raw['spec']['job']['name']}")
    summary = page.get_by_role("region", name="Summary")
    for words in ("1its place", "8 to 32 workers", raw["status"]["expectedStart"]["summary"]):
        await expect(summary).to_contain_text(words)
    await expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    for clause in raw["status"]["message"].split("; "):
        await expect(page.get_by_role("listitem").get_by_text(clause, exact=True)).to_be_visible()


async def test_an_ended_job_shows_when_it_ended_and_keeps_its_curve(
    shown: Shown, opened: Open
) -> None:
    ended = (raw for raw in phases(shown, "Finished") if raw["status"].get("curve"))
    raw = max(ended, key=lambda raw: len(raw["status"]["curve"]))
    page = await opened(f"job/{raw['metadata']['namespace']}/{raw['spec']['job']['name']}")
    time = raw["status"]["history"][-1]["time"][11:16]
    summary = page.get_by_role("region", name="Summary")
    await expect(summary).to_contain_text(f"{time} UTCended")
    await expect(page.get_by_role("img", name=re.compile(" from .* to "))).to_be_visible()


async def test_missing_fields_of_a_training_plan_of_kfext_03_are_named(
    shown: Shown, opened: Open
) -> None:
    old = plan("old", "ads", created=shown.at - 600)
    del old["status"]["places"]
    shown.plans = {"old": old | {"status": {**old["status"], "nodes": ["node-1"]}}}
    page = await opened("cluster")
    await page.get_by_role("link", name="old: 0 GPUs of node-1").hover()
    await expect(page.get_by_role("tooltip")).to_contain_text("it is of kfext 0.3")
    await page.keyboard.press("3")
    await expect(page.get_by_text("Some jobs have no history")).to_be_visible()
    await page.goto(page.url.replace("#timeline", "#job/ads/old"))
    await expect(page.get_by_text("No history: the TrainingPlan was")).to_be_visible()


async def test_a_deleted_job_is_shown_as_deleted(opened: Open) -> None:
    page = await opened("job/vision/never")
    await expect(
        page.get_by_text("There is no job never in vision, or you may not")
    ).to_be_visible()


async def test_an_empty_cluster_is_shown_as_empty(shown: Shown, opened: Open) -> None:
    shown.plans, shown.nodes, shown.cards, shown.capacity = {}, {}, [], ""
    page = await opened("cluster")
    await expect(page.get_by_role("heading", name="0 nodes")).to_be_visible()
    await page.keyboard.press("2")
    await expect(page.get_by_text("No job waits.")).to_be_visible()
    await page.keyboard.press("3")
    await expect(page.get_by_role("group", name="0 jobs in the last 60m")).to_be_attached()


async def test_namespace_and_name_filter_all_views(shown: Shown, opened: Open) -> None:
    page = await opened("queue")
    await page.get_by_label("Namespace").select_option("vision")
    waits = [raw for raw in phases(shown, "Queued") if raw["metadata"]["namespace"] == "vision"]
    await expect(
        page.get_by_role("link", name=re.compile(f"^queue ?{len(waits)}$"))
    ).to_be_visible()
    await page.keyboard.press("1")
    await page.get_by_label("Filter by job or node").fill("node-3")
    await expect(page.get_by_role("heading", name="1 node", exact=True)).to_be_visible()


async def test_typing_a_filter_on_the_page_of_a_job_leads_to_the_cluster(
    shown: Shown, opened: Open
) -> None:
    job = next(iter(shown.plans.values()))["spec"]["job"]
    page = await opened(f"job/ads/{job['name']}")
    await page.get_by_label("Filter by job or node").press_sequentially("node-3")
    await expect(page.get_by_role("heading", name="1 node", exact=True)).to_be_visible()


async def test_a_cluster_of_many_nodes_has_a_tile_for_each(shown: Shown, opened: Open) -> None:
    node = shown.nodes["node-1"]
    shown.nodes |= {f"more-{n}": {**node, "metadata": {"name": f"more-{n}"}} for n in range(1000)}
    page = await opened("cluster")
    await expect(page.get_by_role("img", name=re.compile("^more-999: "))).to_be_visible()
    await page.get_by_label("Filter by job or node").fill("more-99")
    await expect(page.get_by_text("more-990", exact=True)).to_be_visible()


async def test_a_long_list_shows_the_number_of_omitted_jobs(shown: Shown, opened: Open) -> None:
    many = (plan(f"job-{n}", phase="Queued", ahead=n, created=shown.at) for n in range(250))
    shown.plans = {raw["spec"]["job"]["uid"]: raw for raw in many}
    page = await opened("queue")
    await expect(page.get_by_text("and 50 more")).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="about 100")).to_have_count(1)


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>owned()</script>\x1b[31m\u202eevil"


@pytest.mark.parametrize("view", ["cluster", "queue", "timeline", "job"])
async def test_texts_of_users_are_shown_as_text(shown: Shown, opened: Open, view: str) -> None:
    entry = {"time": "1970-01-12T15:00:00Z", "what": HOSTILE, "why": HOSTILE, "workers": 1}
    progress = {"metric": HOSTILE, "value": 1.0, "step": 3}
    texts = {"message": HOSTILE, "reason": HOSTILE, "history": [{**entry, "nodes": [HOSTILE]}]}
    condition = {"type": HOSTILE, "status": "True", "reason": HOSTILE, "message": HOSTILE * 2}
    more: dict[str, Any] = {**texts, "progress": progress, "conditions": [condition]}
    for phase in ("Placed", "Queued"):
        places = {HOSTILE: 1}
        raw = plan(HOSTILE, HOSTILE, uid=phase, places=places, phase=phase, ahead=0, **more)
        shown.plans[phase] = raw
    shown.explained = [HOSTILE]
    page = await opened("cluster")
    if view == "job":
        await page.locator("tr").filter(has_text="onerror").get_by_role("link").first.click()
        await page.get_by_text("Show it here").click()
        await expect(page.get_by_label("The job as text")).to_contain_text("onerror")
    else:
        await page.get_by_role("link", name=re.compile(f"^{view}")).click()
    await expect(page.get_by_role("main")).to_contain_text("<img src=x onerror")
    assert await page.locator("main img, main script").count() == 0
    assert await page.title() != "owned"
    shown_text = await page.get_by_role("main").text_content()
    assert shown_text is not None
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", shown_text)

"""The server of `kubectl kfext ui`: its authorization, headers, and stream."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import aiohttp
import pytest
from yarl import URL

from kfext.cli import ui_server
from kfext.cli.ui_server import serve
from kfext.cli.ui_state import Capacity, JobView, Source, State, job_view, state_of
from kfext.errors import Forbidden
from tests.unit.cli.test_ui_state import NOW, plan


@dataclass
class FakeSource:
    """A source of the page with jobs that a test sets."""

    views: dict[str, JobView] = field(default_factory=dict)
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, uid: str, **status: Any) -> None:
        self.views[uid] = job_view(plan(f"job-{uid}", uid=uid, **status), now=NOW)

    def source(self) -> Source:
        return Source(self.ready, self.jobs, self.state, self.explain)

    async def ready(self) -> None:
        await self.is_ready.wait()

    def jobs(self) -> Iterable[JobView]:
        return self.views.values()

    def state(self) -> State:
        fields: dict[str, Any] = {"scope": "", "notes": [], "at": NOW, "heard": NOW}
        return state_of(self.jobs(), nodes=(), capacity=Capacity(), **fields)

    async def explain(self, job: JobView) -> list[str]:
        if job.uid == "2":
            raise Forbidden(status=403, reason="Forbidden", message="cannot get pods")
        return [f"{job.row['name']}\x1b[2J"]


@dataclass
class Served:
    """A running page; `address`: the URL that is printed, with the token."""

    address: URL
    source: FakeSource
    session: aiohttp.ClientSession

    @property
    def port(self) -> int:
        assert self.address.port
        return self.address.port

    async def get(self, path: str = "/", **headers: str) -> aiohttp.ClientResponse:
        """Read a path with the cookie, as the page does."""
        cookie = {f"kfext-{self.port}": self.address.query["token"]}
        url = self.address.with_path("/").join(URL(path))
        return await self.session.get(url, headers=headers, cookies=cookie, allow_redirects=False)


@asynccontextmanager
async def serving(source: FakeSource) -> AsyncIterator[Served]:
    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(source.source(), port=0, greet=result.set_result))
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield Served(URL(await result), source, session)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    source = FakeSource()
    source.put("1")
    source.put("2")
    source.is_ready.set()
    async with serving(source) as served:
        yield served


async def test_the_printed_address_opens_a_page_without_the_token(page: Served) -> None:
    answer = await page.session.get(page.address, allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, "/")
    cookie = answer.cookies[f"kfext-{page.port}"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    opened = await page.get("/")
    assert (opened.status, opened.content_type) == (200, "text/html")
    assert page.address.query["token"] not in await opened.text()


PAGE = files("kfext.cli").joinpath("page")
PATHS = ("/", "/ui.js", "/events", "/history", "/details?id=1", "/explain?id=1", "/nothing")
UNAUTHORIZED: dict[str, Callable[[Served], dict[str, Any]]] = {
    "no cookie": lambda page: {},
    "a wrong cookie": lambda page: {"cookies": {f"kfext-{page.port}": "guessed"}},
    "a wrong token": lambda page: {"params": {"token": "guessed"}},
    "a token that is not ASCII": lambda page: {"params": {"token": "ü"}},
    "the cookie of another port": lambda page: {
        "cookies": {"kfext-1": page.address.query["token"]}
    },
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("request_of", UNAUTHORIZED.values(), ids=UNAUTHORIZED)
async def test_without_the_token_nothing_can_be_read(
    page: Served, path: str, request_of: Callable[[Served], dict[str, Any]]
) -> None:
    url = page.address.with_path("/").join(URL(path))
    async with page.session.get(url, allow_redirects=False, **request_of(page)) as answer:
        assert answer.status == 403
        assert "job-1" not in await answer.text()


HEADERS: dict[str, tuple[dict[str, str], int]] = {
    "a name that resolves to this machine": ({"Host": "rebound.example:{port}"}, 403),
    "another port": ({"Host": "127.0.0.1:1"}, 403),
    "no port": ({"Host": "localhost"}, 403),
    "localhost": ({"Host": "localhost:{port}"}, 200),
    "a page of another site": ({"Sec-Fetch-Site": "cross-site"}, 403),
    "a page of this site on another port": ({"Sec-Fetch-Site": "same-site"}, 403),
    "this page": ({"Sec-Fetch-Site": "same-origin"}, 200),
    "the address bar": ({"Sec-Fetch-Site": "none"}, 200),
}


@pytest.mark.parametrize(("headers", "want"), HEADERS.values(), ids=HEADERS)
async def test_only_requests_of_this_page_on_this_machine_are_answered(
    page: Served, headers: dict[str, str], want: int
) -> None:
    sent = {name: value.format(port=page.port) for name, value in headers.items()}
    assert (await page.get("/ui.js", **sent)).status == want


async def test_the_token_is_refused_under_another_host_name(page: Served) -> None:
    answer = await page.session.get(
        page.address, headers={"Host": f"rebound.example:{page.port}"}, allow_redirects=False
    )
    assert (answer.status, answer.cookies) == (403, {})


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/events", "/history", "/nothing"])
async def test_every_writing_method_is_refused(page: Served, method: str, path: str) -> None:
    cookie = {f"kfext-{page.port}": page.address.query["token"]}
    url = page.address.with_path(path).with_query(None)
    async with page.session.request(method, url, cookies=cookie) as answer:
        assert answer.status == 405


@pytest.mark.parametrize("path", PATHS)
async def test_each_answer_forbids_what_the_page_does_not_need(page: Served, path: str) -> None:
    for answer in (await page.get(path), await page.session.get(page.address.with_query(None))):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        answer.close()


@pytest.mark.parametrize("path", ["/ui.py", "/../ui.py", "/%2e%2e/ui.py", "/page/ui.js", "/ui"])
async def test_only_files_of_the_page_are_served(page: Served, path: str) -> None:
    url = URL(f"http://127.0.0.1:{page.port}{path}", encoded=True)
    cookie = {f"kfext-{page.port}": page.address.query["token"]}
    assert (await page.session.get(url, cookies=cookie)).status == 404


async def test_the_server_listens_only_on_this_machine(page: Served) -> None:
    assert page.address.host == "127.0.0.1"
    other = socket.gethostbyname(socket.gethostname())
    if not other.startswith("127."):
        with pytest.raises(OSError, match=r"."):
            socket.create_connection((other, page.port), timeout=1)


async def test_a_port_in_use_is_an_error(page: Served) -> None:
    with pytest.raises(OSError, match="in use"):
        await serve(FakeSource().source(), port=page.port, greet=print)


# --- answers ------------------------------------------------------------------------------------


async def _next_event(stream: aiohttp.ClientResponse) -> tuple[str, Any]:
    event = (await stream.content.readline()).decode().removeprefix("event: ").strip()
    data = (await stream.content.readline()).removeprefix(b"data: ")
    assert await stream.content.readline() == b"\n"
    return event, json.loads(data)


async def test_the_stream_has_the_state_and_then_its_changes(
    page: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_server, "_CHANGE_SECONDS", 0.01)
    stream = await page.get("/events")
    event, state = await _next_event(stream)
    assert (event, sorted(state["jobs"])) == ("state", ["1", "2"])
    page.source.put("3", phase="Queued")
    del page.source.views["1"]
    changed: dict[str, Any] = {}
    while not changed:
        event, change = await _next_event(stream)
        assert event == "change"
        changed = change.get("jobs", {})
    assert {uid: row and row["phase"] for uid, row in changed.items()} == {"3": "Queued", "1": None}
    stream.close()


async def test_the_stream_begins_once_the_cluster_is_read() -> None:
    async with serving(FakeSource()) as served:
        request = asyncio.create_task(served.get("/events"))
        await asyncio.wait([request], timeout=0.1)
        assert not request.done()
        served.source.is_ready.set()
        assert (await _next_event(await request))[0] == "state"


async def test_only_histories_and_details_of_the_requested_jobs_are_sent(page: Served) -> None:
    assert sorted(await (await page.get("/history")).json()) == ["1", "2"]
    assert await (await page.get("/history?id=2&id=7")).json() == {"2": []}
    details = await (await page.get("/details?id=1")).json()
    assert details == {"1": {"conditions": [], "curve": [], "history": []}}


async def test_an_explanation_or_the_reason_for_its_absence_is_plain_text(page: Served) -> None:
    assert await (await page.get("/explain?id=1")).json() == {"1": ["job-1 [2J"]}
    assert await (await page.get("/explain?id=2")).json() == {
        "2": ["403 Forbidden: cannot get pods"]
    }
    assert await (await page.get("/explain?id=7")).json() == {}


def test_the_files_of_the_page_have_at_most_100_kB() -> None:
    assert sum(len(item.read_bytes()) for item in PAGE.iterdir()) <= 100_000


def test_no_file_of_the_page_turns_text_into_markup_or_names_another_host() -> None:
    for item in PAGE.iterdir():
        text = item.read_text().replace("http://www.w3.org/2000/svg", "")
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "://"):
            assert word not in text, (item.name, word)

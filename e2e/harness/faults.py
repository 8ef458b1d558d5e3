"""Faults that a proxy injects between the controller and the API server."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kfext.model.kinds.registered import KINDS

Answer = tuple[int, bytes, str]
"""Status, body and content type; status 0 closes the connection without an answer."""

_JSON = "application/json"
_LONGEST_DELAY_SECONDS = 60.0
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass
class Exchange:
    """A request, and the HTTP status of the API server's answer; 0 before the answer."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    status: int = 0

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_write(self) -> bool:
        # An access review is posted, but not stored.
        is_review = self.path.endswith("/selfsubjectaccessreviews")
        return self.method not in {"GET", "HEAD"} and not is_review


Match = Callable[[Exchange], bool]


def job_patch(namespace: str, *, containing: str = "") -> Match:
    return lambda exchange: (
        exchange.method == "PATCH"
        and any(
            f"/namespaces/{namespace}/{kind.plural}/" in exchange.path for kind in KINDS.values()
        )
        and containing.encode() in exchange.body
    )


def unsuspend_patch(namespace: str) -> Match:
    """Match the patch that unsuspends a job under a plan; a release unsuspends it without one."""
    matches = job_patch(namespace, containing="kfext.dev~1plan")
    return lambda exchange: matches(exchange) and _starts(json.loads(exchange.body))


def _starts(operations: list[dict[str, object]]) -> bool:
    written = {
        operation["path"]: operation.get("value")
        for operation in operations
        if operation["op"] != "test"
    }
    plan = written.get("/metadata/annotations/kfext.dev~1plan")
    paths = ("/".join(("/spec", *kind.suspend_path)) for kind in KINDS.values())
    return bool(plan) and any(written.get(path) is False for path in paths)


def pod_patch(namespace: str) -> Match:
    return lambda exchange: (
        exchange.method == "PATCH" and f"/namespaces/{namespace}/pods/" in exchange.path
    )


def plan_write(namespace: str) -> Match:
    return lambda exchange: exchange.is_write and f"/{namespace}/trainingplans" in exchange.path


def watch_of(plural: str) -> Match:
    return lambda exchange: exchange.is_watch and exchange.path.endswith(f"/{plural}")


@dataclass
class Fault:
    """What happens to the requests that match; they are handled one at a time.

    `seen`: the number of matching requests so far. `happen` gets the request, a function that sends
    it to the API server, and a function that kills the controller; it returns the answer.
    """

    match: Match
    seen: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def apply(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        async with self.lock:
            self.seen += 1
            return await self.happen(exchange, send, kill)

    async def happen(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        raise NotImplementedError


@dataclass
class KillAfter(Fault):
    """Kill the controller once the `nth` match is carried out, before it receives the answer.

    With nth=0 the controller dies before the first match is carried out. Later matches are dropped,
    so that exactly `nth` are carried out.
    """

    nth: int = 1
    fired: bool = False

    async def happen(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        if self.fired:
            return 0, b"", _JSON
        if self.nth == 0:
            self.fired = True
            kill()
            return 0, b"", _JSON
        answer = await send()
        if self.seen >= self.nth:
            self.fired = True
            kill()
            return 0, b"", _JSON
        return answer


@dataclass
class Refuse(Fault):
    """Answer the matches from number `first` on, `times` in all, with the HTTP status `status`.

    With `carried_out` the API server carries the request out, and only its answer is lost.
    """

    status: int = 500
    first: int = 1
    times: int = 1
    carried_out: bool = False

    async def happen(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        if not self.first <= self.seen < self.first + self.times:
            return await send()
        if self.carried_out:
            await send()
        return self.status, _refusal(self.status), _JSON


@dataclass
class ErrorEvent(Fault):
    """Answer the first `times` watches with 200 and an ERROR event, as API servers do on 410."""

    status: int = 410
    times: int = 1

    async def happen(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        if self.seen > self.times:
            return await send()
        line = {"type": "ERROR", "object": json.loads(_refusal(self.status))}
        return 200, json.dumps(line).encode() + b"\n", _JSON


@dataclass
class Delay(Fault):
    """Delay the matches until `go` is set; other requests pass."""

    go: threading.Event = field(default_factory=threading.Event)

    async def apply(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        self.seen += 1
        await asyncio.to_thread(self.go.wait, _LONGEST_DELAY_SECONDS)  # a test sets it earlier
        return await send()


@dataclass
class DelayAnswer(Delay):
    """Send the matches at once, but delay their answers until `go` is set."""

    async def apply(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        answer = await send()
        self.seen += 1
        await asyncio.to_thread(self.go.wait, _LONGEST_DELAY_SECONDS)
        return answer


def _refusal(status: int) -> bytes:
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": _REASONS.get(status, ""),
            "message": f"the proxy answers {status}",
        }
    ).encode()

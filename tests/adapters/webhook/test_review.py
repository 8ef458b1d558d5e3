"""Any request on the webhooks' port is answered, never with 500, and its memory is soon freed."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfext import names
from kfext.webhook.review import LIMIT, MAX_VALUES, Bodies
from tests import largest_objects
from tests.unit.objects import job, json_values, odd_jobs, odd_pods, pod

from .conftest import Service, review

JOB, POD = "/mutate-job", "/mutate-pod"
HEAD = "POST /mutate-job HTTP/1.1\r\nHost: x\r\n"
BROKEN: dict[str, tuple[bytes, int]] = {
    "a body that does not have its encoding": (
        f"{HEAD}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
        415,
    ),
    "an encoding that does not exist": (
        f"{HEAD}Content-Encoding: wrong\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
        415,
    ),
    "chunks without sizes": (f"{HEAD}Transfer-Encoding: chunked\r\n\r\nxyz\r\n".encode(), 400),
    "two lengths": (f"{HEAD}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}".encode(), 400),
    "a header that never ends": (HEAD.encode() + b"X: " + b"y" * 100_000, 400),
    "too many headers": (HEAD.encode() + b"X: y\r\n" * 200 + b"\r\n", 400),
    "a body that ends too early": (f"{HEAD}Content-Length: 100\r\n\r\n{{".encode(), 408),
}


@asynccontextmanager
async def connection(
    service: Service,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = int(service.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_status(reader: asyncio.StreamReader) -> int:
    """Return the status of a response; after it the server must close the connection."""
    async with asyncio.timeout(30):
        everything = await reader.read()
    return int(everything.split()[1])


@pytest.mark.parametrize(("sent", "status"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_request_is_answered_with_4xx_and_closed(
    service: Service, sent: bytes, status: int
) -> None:
    async with connection(service) as (reader, writer):
        writer.write(sent)
        assert await read_status(reader) == status
    assert (await service.review(POD, pod()))["patch"]


async def test_bodies_that_do_not_arrive_free_their_memory_in_time(service: Service) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(_stall(service))
    assert (await service.review(POD, pod()))["patch"]


async def _stall(service: Service) -> None:
    async with connection(service) as (reader, writer):
        writer.write(f"{HEAD}Content-Length: {LIMIT}\r\n\r\n".encode() + b" " * (LIMIT - 1000))
        assert await read_status(reader) in {408, 503}


class Chunked:
    """A request with a body in these chunks; `then`: the error that follows them, or None."""

    def __init__(self, *chunks: bytes, then: BaseException | None = None) -> None:
        self.headers: dict[str, str] = {}
        self._chunks = [*chunks, b""]
        self._then = then

    @property
    def content(self) -> "Chunked":
        return self

    async def readany(self) -> bytes:
        chunk = self._chunks.pop(0)
        if not chunk and self._then is not None:
            raise self._then
        return chunk


async def read(bodies: Bodies, *chunks: bytes, **error: Any) -> bytes:
    request: Any = Chunked(*chunks, **error)
    async with bodies.read_body(request) as body:
        return body


async def test_the_bodies_that_are_being_read_have_a_bounded_total_size() -> None:
    bodies = Bodies(longest=60, most=100)
    first, other, third = (Chunked(b"x" * 40), Chunked(b"y" * 40), Chunked(b"z" * 40))
    async with bodies.read_body(first), bodies.read_body(other):  # type: ignore[arg-type]
        assert bodies.held == 80
        with pytest.raises(web.HTTPServiceUnavailable):
            async with bodies.read_body(third):  # type: ignore[arg-type]
                pass
        assert bodies.held == 80
    assert bodies.held == 0
    assert await read(bodies, b"z" * 40) == b"z" * 40


async def test_a_broken_or_too_long_body_is_no_longer_counted() -> None:
    bodies = Bodies(longest=60, most=100)
    with pytest.raises(web.HTTPRequestEntityTooLarge):
        await read(bodies, b"x" * 50, b"x" * 50)
    with pytest.raises(web.HTTPBadRequest):
        await read(bodies, b"x" * 50, then=web.RequestPayloadError("broken"))
    with pytest.raises(ConnectionResetError):
        await read(bodies, b"x" * 50, then=ConnectionResetError())
    assert bodies.held == 0


@pytest.mark.parametrize("path", [JOB, POD])
async def test_an_object_with_too_many_values_is_admitted_unchanged_with_a_warning(
    service: Service, path: str
) -> None:
    raw = {**job(), "metadata": {"list": [0] * (MAX_VALUES + 1)}}
    response = await service.review(path, raw)
    assert response["allowed"] is True
    assert "patch" not in response
    assert f"more than the {MAX_VALUES} that kfext handles" in response["warnings"][0]


@pytest.mark.parametrize("what", largest_objects.jobs())
async def test_the_largest_jobs_are_admitted_with_little_work(service: Service, what: str) -> None:
    response = await service.review(JOB, largest_objects.jobs()[what]())
    assert response["allowed"] is True
    assert len(orjson.dumps(response.get("patch", []))) < 20_000


async def test_a_setting_that_is_too_long_is_refused_with_a_short_message(service: Service) -> None:
    large = largest_objects.jobs()["a long setting"]()
    large["metadata"]["annotations"][names.NETWORK] += " " * 200_000
    response = await service.review(JOB, large)
    assert response["allowed"] is False
    assert "at most 1,024 characters" in response["status"]["message"]
    assert len(response["status"]["message"]) < 400


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


NUMBERS = st.integers(-(2**70), 2**70) | st.floats()
texts = st.text() | st.sampled_from(["\ud800", "\x00", "é" * 300])
odd = st.recursive(
    NUMBERS | texts | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "uid": texts | odd,
        "namespace": texts | odd,
        "name": texts,
        "kind": odd,
        "operation": odd,
        "dryRun": odd,
        "object": odd_jobs | odd_pods | odd | json_values,
    },
)
reviews = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.just("admission.k8s.io/v1") | odd,
        "kind": st.just("AdmissionReview") | odd,
        "request": requests | odd,
    },
)
odd_reviews = (odd_jobs | odd_pods).map(review)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode(errors="surrogatepass")


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.binary(max_size=200) | reviews.map(encode) | odd_reviews.map(encode),
    path=st.sampled_from([JOB, POD]),
)
async def test_no_body_is_answered_with_500(service: Service, body: bytes, path: str) -> None:
    status, _ = await service.post(path, body)
    assert status in {200, 400}


BEYOND_JSON: dict[str, Any] = {
    "an integer beyond 64 bits": {"env": [{"name": "A", "value": 2**70}]},
    "half of a surrogate pair": {"env": [{"name": "A", "value": "\ud800"}]},
    "values nested 300 deep": {"env": [nested(300)]},
    "values nested 800 deep": {"env": [nested(800)]},
}


@pytest.mark.parametrize("fields", BEYOND_JSON.values(), ids=BEYOND_JSON)
async def test_a_patch_that_cannot_be_written_admits_the_object_unchanged(
    service: Service, fields: Any
) -> None:
    raw = pod(
        annotations={names.PORT_BASE: "20000"}, spec={"containers": [{"name": "pytorch", **fields}]}
    )
    status, body = await service.post(POD, encode(review(raw)))
    assert status in {200, 400}
    if status == 200:
        assert orjson.loads(body)["response"]["allowed"] is True

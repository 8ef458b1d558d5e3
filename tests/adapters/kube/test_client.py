"""The client with a true API server, and with faults of the connection."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e.testbed.cluster import Testbed
from kfext import errors
from kfext.kube import client as module
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import Access, Request, Token, error_of, in_cluster
from kfext.model.kinds.registered import KINDS

from .faulty_server import FaultyServer, Refuse, item, page

Act = Callable[[Client, str], Awaitable[object]]


def configmaps(namespace: str, name: str = "") -> str:
    return paths.config_maps(namespace, name)


def configmap(name: str, **data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"tried": "yes"}},
        "data": data,
    }


async def test_an_object_is_created_patched_applied_and_deleted(
    client: Client, namespace: str
) -> None:
    created = await client.create(configmaps(namespace), configmap("a", x="1"))
    path = configmaps(namespace, "a")

    await client.json_patch(
        path,
        [
            {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
            {"op": "add", "path": "/data/y", "value": "2"},
        ],
    )
    await client.merge_patch(path, {"data": {"x": None, "z": "3"}})
    await client.apply(path, configmap("a", z="4"))

    content = await client.get(path)
    assert content["data"] == {"y": "2", "z": "4"}
    await client.delete(path, uid=content["metadata"]["uid"], grace=0)
    with pytest.raises(errors.NotFound):
        await client.get(path)


async def test_lists_are_merged_by_their_keys(client: Client, namespace: str) -> None:
    containers = [{"name": name, "image": "i"} for name in ("a", "b")]
    spec = {"schedulerName": "absent", "containers": containers}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    created = await client.create(paths.pods(namespace), pod)
    version = {"resourceVersion": created["metadata"]["resourceVersion"]}
    patch = {"metadata": version, "spec": {"containers": [{"name": "b", "image": "j"}]}}

    result = await client.strategic_patch_as(paths.pods(namespace, "p"), patch, decode=orjson.loads)

    assert [container["image"] for container in result["spec"]["containers"]] == ["i", "j"]
    with pytest.raises(errors.Conflict):
        await client.strategic_patch_as(paths.pods(namespace, "p"), patch, decode=orjson.loads)


async def test_apply_creates_an_absent_object(client: Client, namespace: str) -> None:
    created = await client.apply(configmaps(namespace, "new"), configmap("new", x="1"))

    assert created["data"] == {"x": "1"}


REFUSALS: dict[str, tuple[Act, type[errors.ApiError]]] = {
    "a missing object": (lambda client, ns: client.get(configmaps(ns, "absent")), errors.NotFound),
    "a name that already exists": (
        lambda client, ns: client.create(configmaps(ns), configmap("here")),
        errors.Conflict,
    ),
    "a failed test of a JSON patch": (
        lambda client, ns: client.json_patch(
            configmaps(ns, "here"), [{"op": "test", "path": "/metadata/uid", "value": "other"}]
        ),
        errors.Invalid,
    ),
    "a test of a field that is absent": (
        lambda client, ns: client.json_patch(
            configmaps(ns, "here"), [{"op": "test", "path": "/data/none", "value": "x"}]
        ),
        errors.Invalid,
    ),
    "a stale resource version": (
        lambda client, ns: client.merge_patch(
            configmaps(ns, "here"), {"metadata": {"resourceVersion": "1"}, "data": {"x": "2"}}
        ),
        errors.Conflict,
    ),
    "the deletion of a later object of the same name": (
        lambda client, ns: client.delete(configmaps(ns, "here"), uid="other"),
        errors.Conflict,
    ),
    "the deletion of another version": (
        lambda client, ns: client.delete(configmaps(ns, "here"), resource_version="1"),
        errors.Conflict,
    ),
    "a value that breaks the schema": (
        lambda client, ns: client.create(configmaps(ns), configmap("Not A Name")),
        errors.Invalid,
    ),
    "a body that cannot be read": (
        lambda client, ns: client.create(configmaps(ns), {"metadata": "text"}),
        errors.BadRequest,
    ),
}


@pytest.mark.parametrize(("act", "want"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_each_refusal_of_the_api_server_raises_its_own_error(
    act: Act, want: type[errors.ApiError], client: Client, namespace: str
) -> None:
    await client.create(configmaps(namespace), configmap("here", x="1"))

    with pytest.raises(errors.ApiError) as caught:
        await act(client, namespace)

    assert type(caught.value) is want
    assert caught.value.message


async def test_a_user_without_permissions_is_forbidden(testbed: Testbed, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "stranger"
    testbed.pki.kubeconfig(kubeconfig, server=testbed.server, user="stranger")

    async with await Client.connect(kubeconfig) as stranger:
        with pytest.raises(errors.Forbidden, match="stranger"):
            await stranger.get(paths.nodes())


async def test_a_pod_connects_with_its_service_account(
    testbed: Testbed, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = paths.Namespaced("serviceaccounts")("default", "default", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await client.create(account, request))["status"]["token"]
    (tmp_path / "token").write_text(token + "\n")
    shutil.copy(testbed.pki.authority.certificate, tmp_path / "ca.crt")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(testbed.apiserver_port))

    async with Client(in_cluster(folder=tmp_path)) as pod:
        with pytest.raises(errors.Forbidden, match="system:serviceaccount:default:default"):
            await pod.get(paths.nodes())


async def test_a_list_has_all_pages(client: Client, namespace: str) -> None:
    await asyncio.gather(
        *(client.create(configmaps(namespace), configmap(f"m-{i}")) for i in range(520))
    )

    result = await client.list_all(configmaps(namespace), labelSelector="tried=yes")

    assert sorted(item["metadata"]["name"] for item in result) == sorted(
        f"m-{i}" for i in range(520)
    )


async def test_every_request_is_observed(testbed: Testbed, namespace: str) -> None:
    observed: list[tuple[str, str, int]] = []
    client = await Client.connect(
        testbed.kubeconfig, observe=lambda *request: observed.append(request)
    )
    async with client:
        await client.create(configmaps(namespace), configmap("a"))
        await client.merge_patch(configmaps(namespace, "a"), {"data": {"x": "1"}})
        await client.list_all(configmaps(namespace))
        with pytest.raises(errors.NotFound):
            await client.get(paths.pods(namespace, "absent"))

    assert observed == [
        ("create", "configmaps", 201),
        ("patch", "configmaps", 200),
        ("list", "configmaps", 200),
        ("get", "pods", 404),
    ]


async def test_a_throttled_request_is_sent_again(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [Refuse(429, {"Retry-After": "0"}), Refuse(429, {"Retry-After": "0"}), b"{}"]

    assert await faulty_client.get("/api/v1/nodes/a") == {}
    assert len(faulty.read_queries) == 3


async def test_after_four_throttled_attempts_the_request_fails(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [Refuse(429, {"Retry-After": "0"})] * 4

    with pytest.raises(errors.TooManyRequests):
        await faulty_client.get("/api/v1/nodes/a")


async def test_a_refused_token_is_read_again_once(faulty: FaultyServer) -> None:
    tokens = iter(["Bearer old", "Bearer new", "Bearer newer"])
    access = Access(server=faulty.url, tls=None, token=Token(lambda: next(tokens)))
    faulty.reads += [Refuse(401), b"{}", Refuse(401), Refuse(401)]

    async with Client(access) as client:
        await client.get("/api/v1/nodes/a")
        with pytest.raises(errors.Unauthorized):
            await client.get("/api/v1/nodes/a")

    assert faulty.tokens == ["Bearer old", "Bearer new", "Bearer new", "Bearer newer"]


UNAVAILABLE: dict[str, bytes | Refuse] = {
    "a 503": Refuse(503),
    "an answer that is not JSON": orjson.dumps({"a": 1})[:3],
}


@pytest.mark.parametrize("answer", UNAVAILABLE.values(), ids=UNAVAILABLE.keys())
async def test_a_failing_server_is_unavailable(
    answer: bytes | Refuse, faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(answer)

    with pytest.raises(errors.Unavailable):
        await faulty_client.get("/api/v1/nodes/a")
    assert len(faulty.read_queries) == 1, "a write would have been repeated"


async def test_a_stopped_server_is_unavailable() -> None:
    statuses: list[int] = []
    access = Access(server="http://127.0.0.1:9", tls=None, token=Token(lambda: ""))
    async with Client(access, observe=lambda *request: statuses.append(request[2])) as client:
        with pytest.raises(errors.Unavailable):
            await client.get("/api/v1/nodes/a")

    assert statuses == [0]


async def test_a_client_that_may_no_longer_write_can_only_read(
    testbed: Testbed, client: Client, namespace: str
) -> None:
    leading = True
    await client.create(configmaps(namespace), configmap("a", x="1"))
    path = configmaps(namespace, "a")
    async with await Client.connect(testbed.kubeconfig) as leader:
        leader.forbid_writes_unless(lambda: leading)
        await leader.merge_patch(path, {"data": {"x": "2"}})

        leading = False
        acts: tuple[Awaitable[object], ...] = (
            leader.merge_patch(path, {"data": {"x": "3"}}),
            leader.json_patch(path, [{"op": "add", "path": "/data/x", "value": "3"}]),
            leader.create(configmaps(namespace), configmap("b")),
            leader.apply(configmaps(namespace, "b"), configmap("b")),
            leader.delete(path),
        )
        for act in acts:
            with pytest.raises(errors.NotLeading):
                await act

        assert (await leader.get(path))["data"] == {"x": "2"}
    assert "b" not in [body["metadata"]["name"] for body in await client.list_all(path[:-2])]


# --- pages: a page that is too large is requested again with fewer objects -----------------------


def padded(name: str, size: int) -> dict[str, Any]:
    return {**item(name, 1), "spec": "x" * size}


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 10_000)


@pytest.mark.usefixtures("_small_pages")
async def test_a_page_that_is_too_large_is_requested_with_fewer_objects(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend(
        [
            page(item("a", 1), version=1, continue_="after a"),
            page(*(padded(str(at), 6000) for at in range(4)), version=1),
            page(padded("b", 6000), version=1, continue_="after b"),
            page(item("c", 1), version=1),
        ]
    )
    results = [
        job["metadata"]["name"] async for job in faulty_client.objects(paths.jobs(KINDS["TFJob"]))
    ]
    assert results == ["a", "b", "c"]
    requested = [(query["limit"], query.get("continue", "")) for query in faulty.read_queries]
    assert requested == [("500", ""), ("500", "after a"), ("125", "after a"), ("125", "after b")]


@pytest.mark.usefixtures("_small_pages")
async def test_an_object_that_is_too_large_by_itself_is_an_error(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend([page(padded("a", 20_000), version=1)] * 6)
    with pytest.raises(errors.AnswerTooLarge):
        _ = [job async for job in faulty_client.objects(paths.jobs(KINDS["TFJob"]))]
    assert [query["limit"] for query in faulty.read_queries] == ["500", "125", "31", "7", "1"]


@pytest.mark.usefixtures("_small_pages")
async def test_the_client_continues_after_an_answer_that_was_too_large(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.extend([page(padded("a", 20_000), version=1), json.dumps({"a": 1}).encode()])
    with pytest.raises(errors.AnswerTooLarge):
        await faulty_client.read(paths.nodes(), most=100)
    assert await faulty_client.get(paths.nodes("a")) == {"a": 1}


@pytest.mark.usefixtures("_small_pages")
async def test_uids_are_listed_without_the_objects(client: Client, namespace: str) -> None:
    path = paths.config_maps(namespace)
    created = [
        await client.create(path, {"metadata": {"name": name}, "data": {"k": "v" * 5000}})
        for name in ("a", "b", "c")
    ]
    assert {body["metadata"]["uid"] for body in created} <= await client.uids(path)


# --- errors and options, without a connection ----------------------------------------------------


ERRORS = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.ApiError,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
    429: errors.TooManyRequests,
    500: errors.Unavailable,
    504: errors.Unavailable,
}


@pytest.mark.parametrize(("status", "want"), ERRORS.items())
def test_each_http_status_has_its_own_error(status: int, want: type[errors.ApiError]) -> None:
    details = {"details": {"name": "p", "kind": "pods"}}
    body = orjson.dumps({"reason": "Because", "message": "a sentence", **details})

    error = error_of(status, body)

    assert type(error) is want
    assert (error.status, error.reason, error.message) == (status, "Because", "a sentence")


UNSERVED = {
    "an unknown subresource": b'{"kind":"Status","reason":"NotFound","message":"m","details":{}}',
    "an unknown group": b"404 page not found",
    "details that are not an object": b'{"details":7}',
}


@pytest.mark.parametrize("body", UNSERVED.values(), ids=UNSERVED)
def test_a_path_that_is_not_served_differs_from_a_missing_object(body: bytes) -> None:
    error = error_of(404, body)

    assert type(error) is errors.NotServed
    assert error.final


ODD_BODIES = {
    "a proxy's page": (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
    "bytes that are not UTF-8": (b"\xff\xfe", "\ufffd\ufffd"),
    "nothing": (b"", "no message"),
    "JSON that is not an object": (b'"no"', '"no"'),
    "a Status with nulls": (b'{"reason":null,"message":null}', "no message"),
}


@pytest.mark.parametrize(("body", "want"), ODD_BODIES.values(), ids=ODD_BODIES.keys())
def test_a_malformed_body_still_becomes_an_error(body: bytes, want: str) -> None:
    assert error_of(502, body).message == want


@pytest.mark.parametrize(
    ("header", "want"), [("7", 7.0), (None, 1.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 1.0)]
)
def test_retry_after_is_in_seconds(header: str | None, want: float) -> None:
    error = error_of(429, b"", retry_after=header)

    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after == want


DELETES = {
    "without conditions": ({"uid": "", "resource_version": "", "grace": None}, {}),
    "without a grace period": (
        {"uid": "", "resource_version": "", "grace": 0},
        {"gracePeriodSeconds": 0},
    ),
    "only the object with this uid and version": (
        {"uid": "u", "resource_version": "5", "grace": None},
        {"preconditions": {"uid": "u", "resourceVersion": "5"}},
    ),
}


@pytest.mark.parametrize(("arguments", "want"), DELETES.values(), ids=DELETES.keys())
async def test_the_options_of_a_deletion(
    arguments: dict[str, str],
    want: dict[str, object],
    faulty_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes | None] = []

    async def send(request: Request) -> bytes:
        sent.append(request.body)
        return b""

    monkeypatch.setattr(faulty_client, "send", send)
    await faulty_client.delete("/x", **arguments)  # type: ignore[arg-type]

    (body,) = sent
    assert orjson.loads(body or b"") == {"apiVersion": "v1", "kind": "DeleteOptions"} | want

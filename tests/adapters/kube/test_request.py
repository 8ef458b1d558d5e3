"""Paths, requests and errors: everything about HTTP that needs no connection."""

from pathlib import Path

import orjson
import pytest

from kfext import errors
from kfext.kube import paths, request
from kfext.kube.access import NoAccess, Token, from_kubeconfig, in_cluster, namespace_of
from kfext.kube.backoff import Backoff
from kfext.kube.stream import Lines

PATHS = {
    "a core object": (paths.pods("ns", "p"), "/api/v1/namespaces/ns/pods/p", "pods"),
    "a subresource": (
        paths.pods("ns", "p", "resize"),
        "/api/v1/namespaces/ns/pods/p/resize",
        "pods/resize",
    ),
    "all namespaces": (paths.pods(), "/api/v1/pods", "pods"),
    "a namespace is an object too": (paths.namespaces("ns"), "/api/v1/namespaces/ns", "namespaces"),
    "a namespaced collection": (
        paths.jobs("tfjobs", "ns"),
        "/apis/kubeflow.org/v1/namespaces/ns/tfjobs",
        "tfjobs",
    ),
    "a cluster-wide object of a group": (
        paths.policies("default"),
        "/apis/kfext.dev/v1alpha1/trainingpolicies/default",
        "trainingpolicies",
    ),
    "a hostile name cannot leave its place": (
        paths.nodes("../secrets?x=1"),
        "/api/v1/nodes/..%2Fsecrets%3Fx%3D1",
        "nodes",
    ),
}


@pytest.mark.parametrize(("path", "want", "want_resource"), PATHS.values(), ids=PATHS.keys())
def test_path(path: str, want: str, want_resource: str) -> None:
    assert path == want
    assert paths.resource_of(path) == want_resource


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="dots only"):
        paths.pods("ns", name)


def test_a_subresource_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        paths.pods("ns", "", "resize")


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
def test_a_status_becomes_its_error(status: int, want: type[errors.ApiError]) -> None:
    about = {"details": {"name": "p", "kind": "pods"}}
    body = orjson.dumps({"reason": "Because", "message": "a sentence", **about})

    error = request.error_of(status, body)

    assert type(error) is want
    assert (error.status, error.reason, error.message) == (status, "Because", "a sentence")


UNSERVED = {
    "an unknown subresource": b'{"kind":"Status","reason":"NotFound","message":"m","details":{}}',
    "an unknown group": b"404 page not found",
    "details that are no object": b'{"details":7}',
}


@pytest.mark.parametrize("body", UNSERVED.values(), ids=UNSERVED)
def test_a_path_that_is_not_served_is_told_from_an_object_that_is_not_there(body: bytes) -> None:
    error = request.error_of(404, body)

    assert type(error) is errors.NotServed
    assert error.final


ODD_BODIES = {
    "a proxy's page": (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
    "bytes of no encoding": (b"\xff\xfe", "\ufffd\ufffd"),
    "nothing": (b"", "no message"),
    "JSON that is no object": (b'"no"', '"no"'),
    "a Status with nulls": (b'{"reason":null,"message":null}', "no message"),
}


@pytest.mark.parametrize(("body", "want"), ODD_BODIES.values(), ids=ODD_BODIES.keys())
def test_an_odd_body_still_becomes_an_error(body: bytes, want: str) -> None:
    assert request.error_of(502, body).message == want


@pytest.mark.parametrize(
    ("header", "want"), [("7", 7.0), (None, 1.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 1.0)]
)
def test_retry_after_is_in_seconds(header: str | None, want: float) -> None:
    error = request.error_of(429, b"", retry_after=header)

    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after == want


DELETES = {
    "without conditions": ({"uid": "", "resource_version": "", "grace": None}, {}),
    "with a grace of zero": (
        {"uid": "", "resource_version": "", "grace": 0},
        {"gracePeriodSeconds": 0},
    ),
    "only the very object in the very version": (
        {"uid": "u", "resource_version": "5", "grace": None},
        {"preconditions": {"uid": "u", "resourceVersion": "5"}},
    ),
}


@pytest.mark.parametrize(("arguments", "want"), DELETES.values(), ids=DELETES.keys())
def test_delete_options(arguments: dict[str, str], want: dict[str, object]) -> None:
    built = request.delete("/x", **arguments)  # type: ignore[arg-type]

    assert orjson.loads(built.body or b"") == {"apiVersion": "v1", "kind": "DeleteOptions"} | want


def test_lines_are_whole_however_they_arrive() -> None:
    lines = Lines()

    assert [lines.feed(chunk) for chunk in (b"a", b"b", b"c\nd\n\ne", b"\n")] == [
        [],
        [],
        [b"abc", b"d"],
        [b"e"],
    ]


def test_backoff_doubles_up_to_its_limit_and_begins_anew() -> None:
    backoff = Backoff(first=1, longest=30)

    waits = [backoff.next() for _ in range(2000)]

    bounds = [1, 2, 4, 8, 16, 30]
    assert all(b / 2 <= wait <= b for wait, b in zip(waits, bounds, strict=False))
    assert all(15 <= wait <= 30 for wait in waits[5:])
    assert len(set(waits[5:])) > 1000, "no jitter"
    backoff.reset()
    assert backoff.next() <= 1


async def test_a_token_is_read_anew_every_minute_and_when_refused() -> None:
    now, tokens = 0.0, iter(["one", "two", "three"])
    token = Token(lambda: next(tokens), monotonic=lambda: now)

    seen = [await token.header(), await token.header()]
    now = 60.0
    seen.append(await token.header())
    token.expire()
    seen.append(await token.header())

    assert [header["Authorization"] for header in seen] == ["one", "one", "two", "three"]


def test_a_missing_service_account_is_said(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoAccess, match="service account"):
        in_cluster(folder=tmp_path)


def test_a_missing_kubeconfig_is_said(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NoAccess, match="absent"):
        from_kubeconfig(tmp_path / "absent")


CONTEXTS = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team-a}}
- {name: bare, context: {cluster: c, user: u}}
"""
CURRENT = {"none": "", "an empty one": 'current-context: ""', "a lost one": "current-context: gone"}


@pytest.mark.parametrize("current", CURRENT.values(), ids=CURRENT)
def test_a_context_that_is_named_needs_no_current_one(tmp_path: Path, current: str) -> None:
    path = tmp_path / "config"
    path.write_text(CONTEXTS + current)
    assert from_kubeconfig(path, context="here").server == "http://127.0.0.1:1"
    assert namespace_of(path, context="here") == "team-a"
    assert namespace_of(path, context="bare") == ""
    with pytest.raises(NoAccess):
        namespace_of(path)


UNUSABLE = {
    "no YAML": "{",
    "a string": "kubeconfig",
    "a list": "[]",
    "empty": "",
    "another kind": "kind: Pod",
    "a context without a name": "contexts: [{}]",
    "a certificate that is no base64": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "#"'
    ) + "current-context: here",
    "a certificate that is none": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "AAAA"'
    ) + "current-context: here",
}  # fmt: skip


@pytest.mark.parametrize("written", UNUSABLE.values(), ids=UNUSABLE)
def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path, written: str) -> None:
    path = tmp_path / "config"
    path.write_text(written)
    with pytest.raises(NoAccess, match="no usable kubeconfig"):
        from_kubeconfig(path)

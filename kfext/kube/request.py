"""Build requests and interpret answers: the parts of API access that do no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import orjson

from kfext.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kfext.model.tolerant import mapping

FIELD_MANAGER = "kfext"

Object = dict[str, Any]
"""A JSON object of the API."""

_ERRORS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_RETRY_SECONDS = 1.0  # after a 429 without Retry-After


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `verb` is its name in metrics, the same as in RBAC (patch, watch, …)."""

    verb: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def read(path: str, query: Mapping[str, str], *, verb: str = "get") -> Request:
    """Return a request that reads."""
    return Request(verb=verb, method="GET", path=path, query=query)


def page(path: str, query: Mapping[str, str], *, metadata_only: bool) -> Request:
    """Return a request for a page of a collection, of whose objects only the metadata if wanted."""
    accept = _METADATA if metadata_only else "application/json"
    return Request(verb="list", method="GET", path=path, query=query, accept=accept)


def create(path: str, body: Object) -> Request:
    """Return a request that creates `body` in the collection `path`."""
    return Request(
        verb="create",
        method="POST",
        path=path,
        query={"fieldManager": FIELD_MANAGER},
        body=orjson.dumps(body),
    )


def json_patch(path: str, operations: Sequence[Mapping[str, Any]]) -> Request:
    """Return a request that applies RFC 6902 operations, all or none."""
    return _patch(path, list(operations), "application/json-patch+json")


def merge_patch(path: str, patch: Object) -> Request:
    """Return a request that applies an RFC 7386 merge patch."""
    return _patch(path, patch, "application/merge-patch+json")


def strategic_patch(path: str, patch: Object) -> Request:
    """Return a request that applies a strategic merge patch, which merges lists by their keys."""
    return _patch(path, patch, "application/strategic-merge-patch+json")


def apply(path: str, body: Object) -> Request:
    """Return a server-side apply that takes over conflicting fields and creates absent objects."""
    request = _patch(path, body, "application/apply-patch+yaml")
    return Request(
        verb="apply",
        method="PATCH",
        path=path,
        query={**request.query, "force": "true"},
        body=request.body,
        content_type=request.content_type,
    )


def delete(path: str, *, uid: str, resource_version: str, grace: int | None) -> Request:
    """Return a request that deletes the object if it still has that uid and resource version."""
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {key: value for key, value in conditions.items() if value}:
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return Request(verb="delete", method="DELETE", path=path, body=orjson.dumps(options))


def watch(
    path: str, query: Mapping[str, str], *, resource_version: str, server_seconds: int
) -> Request:
    """Return a request that streams the changes after `resource_version`, with bookmarks."""
    return read(
        path,
        {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_seconds),
        },
        verb="watch",
    )


def _patch(path: str, body: object, content_type: str) -> Request:
    return Request(
        verb="patch",
        method="PATCH",
        path=path,
        query={"fieldManager": FIELD_MANAGER},
        body=orjson.dumps(body),
        content_type=content_type,
    )


def error_of(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """Return the error for an answer with this HTTP status."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):  # the page of a proxy, or plain text of the API server
        answer = {"message": body[:500].decode(errors="replace").strip()}
    reason, message = str(answer.get("reason") or ""), str(answer.get("message") or "no message")
    if status == 429:
        return TooManyRequests(
            status=status, reason=reason, message=message, retry_after=_seconds(retry_after)
        )
    kind = Unavailable if status >= 500 else _ERRORS.get(status, ApiError)
    if kind is NotFound and not mapping(answer.get("details")).get("name"):
        kind = NotServed
    return kind(status=status, reason=reason, message=message)


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after and retry_after.isdecimal() else _RETRY_SECONDS

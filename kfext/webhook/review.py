"""The AdmissionReview: its body, bounded in bytes and time, its request, and the answer.

The port is not authenticated, so no client must be able to fill the memory. If kfext
answers a review with an HTTP error, the API server admits the object unchanged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import orjson
from aiohttp import web

from kfext.core.admission.review import ReviewResult
from kfext.errors import UserError

API_VERSION = "admission.k8s.io/v1"
LIMIT = 4 * 2**20
"""The largest body in bytes. An object in etcd has at most 1.5 MiB, and the review of a new object
contains it once."""
MAX_VALUES = 100_000
"""The most values in a decoded object: 1.5 MiB can hold 700,000, which take 50 MB and a second."""
MAX_BYTES = 32 * 2**20
"""The most bytes of all bodies that are being read or reviewed."""
LONGEST_SECONDS = 2.0
"""The time for a body to arrive: the API server waits no longer for the answer."""

_LONGEST_WARNING = 256  # the API server truncates longer warnings when there are many


class Bodies:
    """The bodies that are being read or reviewed; `held`: their size in bytes."""

    def __init__(self, *, longest: int, most: int = MAX_BYTES) -> None:
        self.held = 0
        self._longest = longest
        self._most = most

    @asynccontextmanager
    async def read_body(self, http: web.Request) -> AsyncIterator[bytes]:
        """Yield the body of a request; it counts towards `held` until the block ends.

        Raises HTTPBadRequest, HTTPRequestTimeout, HTTPRequestEntityTooLarge, HTTPServiceUnavailable
        or, for a compressed body, HTTPUnsupportedMediaType.
        """
        if http.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise web.HTTPUnsupportedMediaType(text="a review must not be compressed")
        body = bytearray()
        try:
            await self._read(http, body)
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _read(self, http: web.Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._read_all(http, body)
        except TimeoutError as error:
            text = f"the body did not arrive within {LONGEST_SECONDS:g} s"
            raise web.HTTPRequestTimeout(text=text) from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text=f"the body is broken: {error}") from error

    async def _read_all(self, http: web.Request, body: bytearray) -> None:
        while chunk := await http.content.readany():
            body += chunk
            self.held += len(chunk)
            if len(body) > self._longest:
                text = f"a review may have at most {self._longest} bytes"
                raise web.HTTPRequestEntityTooLarge(self._longest, len(body), text=text)
            if self.held > self._most:
                raise web.HTTPServiceUnavailable(text="too many reviews at once")


class ReviewError(UserError):
    """The body is not an AdmissionReview that kfext can answer; the message says why."""


class Request(msgspec.Struct):
    """The part of an AdmissionRequest that decisions need."""

    uid: str
    namespace: str = ""
    name: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def excess(self) -> str:
        """Why the object is too large to decode; empty if it is not."""
        values = bytes(self.object).count(b",")
        if values < MAX_VALUES:
            return ""
        return f"it has {values} values, more than the {MAX_VALUES} that kfext handles"

    def decode_object(self) -> Any:
        """Return the object. Raises ReviewError, e.g. if it is nested too deeply."""
        try:
            return msgspec.json.decode(self.object)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ReviewError(f"the object is not JSON: {error}") from error


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: Request | None = None


_decode = msgspec.json.Decoder(_Review).decode


def parse(body: bytes) -> Request:
    """Return the request of an AdmissionReview v1. Raises ReviewError."""
    try:
        review = _decode(body)
    except msgspec.ValidationError as error:
        raise ReviewError(f"the body is not an AdmissionReview: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewError(f"the body is not JSON: {error}") from error
    if review.kind != "AdmissionReview":
        raise ReviewError(f"the body is not an AdmissionReview: its kind is {review.kind[:80]!r}")
    if review.api_version != API_VERSION:
        raise ReviewError(
            f"AdmissionReview {review.api_version[:80]!r} is not supported, only {API_VERSION}"
        )
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def answer(request: Request, result: ReviewResult) -> bytes:
    """Return the AdmissionReview that answers a request.

    Raises TypeError or ValueError if the patch repeats a value that JSON libraries cannot write: an
    integer beyond 64 bits, or half of a surrogate pair.
    """
    response: dict[str, Any] = {"uid": request.uid, "allowed": not result.refusal}
    if result.refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": result.refusal}
    elif result.ops:
        response["patchType"] = "JSONPatch"
        # A msgspec encoder writes bytes in base64, as the API expects here.
        response["patch"] = orjson.dumps(result.ops)
    if result.warnings:
        response["warnings"] = [warning[:_LONGEST_WARNING] for warning in result.warnings]
    return msgspec.json.encode(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    )

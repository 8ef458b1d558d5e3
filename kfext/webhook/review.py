"""Convert an AdmissionReview from bytes to a request and a mutation to bytes, without HTTP."""

from typing import Any

import msgspec
import orjson

from kfext.core.admission.review import Mutation
from kfext.errors import UserError

API_VERSION = "admission.k8s.io/v1"
LIMIT = 4 * 2**20
"""The largest body in bytes. An object in etcd has at most 1.5 MiB, and the review of a new one
contains it once."""
MOST_VALUES = 100_000
"""Values in an object that is decoded: 1.5 MiB can hold 700,000, which take 50 MB and a second."""

_LONGEST_WARNING = 256  # the API server truncates longer ones when there are many


class ReviewError(UserError):
    """The body is not an AdmissionReview that we can answer; the message says why."""


class Kind(msgspec.Struct):
    """Group, version and kind of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, rename="camel"):
    """The part of an AdmissionRequest that decisions need."""

    uid: str
    kind: Kind = msgspec.field(default_factory=Kind)
    namespace: str = ""
    name: str = ""
    operation: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def excess(self) -> str:
        """Return why the object is not decoded, empty if it is."""
        values = bytes(self.object).count(b",")
        if values < MOST_VALUES:
            return ""
        return f"it has {values} values, more than the {MOST_VALUES} that kfext handles"

    def decoded(self) -> Any:
        """Return the object. Raises ReviewError if it is nested too deeply."""
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


def answer(request: Request, mutation: Mutation) -> bytes:
    """Return the AdmissionReview that answers a request.

    Raises TypeError or ValueError if the patch repeats a value that JSON libraries do not write: an
    integer beyond 64 bits, half of a character.
    """
    response: dict[str, Any] = {"uid": request.uid, "allowed": not mutation.refusal}
    if mutation.refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": mutation.refusal}
    elif mutation.ops:
        response["patchType"] = "JSONPatch"
        # A msgspec encoder writes bytes in base64, which is what the API wants here.
        response["patch"] = orjson.dumps(mutation.ops)
    if mutation.warnings:
        response["warnings"] = [warning[:_LONGEST_WARNING] for warning in mutation.warnings]
    return msgspec.json.encode(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    )

"""Decode watch streams and list pages, no further than the informer needs."""

import msgspec

from kfext.errors import ApiError
from kfext.kube.request import error_of
from kfext.kube.store import Key


class Metadata(msgspec.Struct, rename="camel"):
    """The part of an object's metadata that identifies it and its version."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """The object's key."""
        return Key(uid=self.uid, namespace=self.namespace, name=self.name)


class Identity(msgspec.Struct):
    """Any object, only its metadata."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class Change(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object."""

    type: str
    object: msgspec.Raw


class ListMetadata(msgspec.Struct, rename="camel"):
    """The version of a list, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; Go writes null for an empty one."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class _Status(msgspec.Struct):
    """An error inside the stream."""

    code: int = 500


identity = msgspec.json.Decoder(Identity).decode
change = msgspec.json.Decoder(Change).decode
page = msgspec.json.Decoder(Page).decode
_status = msgspec.json.Decoder(_Status).decode


def stream_error(raw: bytes) -> ApiError:
    """Return the error in an ERROR line. Raises msgspec.DecodeError if the line is garbled."""
    return error_of(_status(raw).code, raw)


class Lines:
    """Splits chunks into lines; the text after the last line break waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without empty ones."""
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join([*self._parts, complete[0]])
            self._parts = []
        if rest:
            self._parts.append(rest)
        return [line for line in complete if line]

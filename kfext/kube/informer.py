"""A local copy of a collection: it lists the objects, then follows their changes, and recovers.

The copy changes only between two awaits, so a reader on the same event loop always sees a
consistent state.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog

from kfext.errors import ApiError, Gone
from kfext.kube.client import Client, Metadata, metadata_of
from kfext.kube.connection import error_of
from kfext.model.backoff import exponential_backoff

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_SERVER_SECONDS = 300
_SILENCE_SECONDS = 100.0  # the server sends a bookmark every 60 to 75 seconds


def _ignore(old: object, new: object) -> None:
    """Do nothing about a change."""


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of an object: a name may be reused, a uid never is."""

    uid: str
    namespace: str
    name: str


class Store(Generic[T]):
    """Values by uid, with look-ups by namespace and name (namespace "" for nodes)."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Key, T]] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._values.values())

    def uids(self) -> list[str]:
        """Return the uids of all objects, as a new list."""
        return list(self._values)

    def by_uid(self, uid: str) -> T | None:
        """Return the object with this uid, or None."""
        entry = self._values.get(uid)
        return entry[1] if entry else None

    def by_name(self, name: str, *, namespace: str = "") -> T | None:
        """Return the object that has this name now, or None."""
        return self.by_uid(self._uids.get((namespace, name), ""))

    def put(self, key: Key, value: T) -> T | None:
        """Store a value; return the value that it replaces, or None."""
        old = self._values.get(key.uid)
        # Retain the key that was stored first: it is equal, and the tables share its strings.
        first = old[0] if old else key
        self._values[key.uid] = (first, value)
        self._uids[first.namespace, first.name] = first.uid
        return old[1] if old else None

    def remove(self, uid: str) -> T | None:
        """Remove an object; return its last value, or None."""
        entry = self._values.pop(uid, None)
        if entry is None:
            return None
        key, value = entry
        # A new object of the same name may have been stored before the old object was removed.
        if self._uids.get((key.namespace, key.name)) == uid:
            del self._uids[key.namespace, key.name]
        return value


class Backoff:
    """Waits with exponentially growing bounds, each drawn between half its bound and its bound.

    The jitter keeps the replicas of kfext from calling a recovering API server at the same time.
    """

    def __init__(self, *, first: float = 0.5, longest: float = 30.0) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after a further failure."""
        self._failures += 1
        bound = exponential_backoff(self._failures, first=self._first, longest=self._longest)
        return random.uniform(bound / 2, bound)

    def reset(self) -> None:
        """Start again with the shortest wait, after a success."""
        self._failures = 0


class Change(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object."""

    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    """The Status object of an ERROR line."""

    code: int = 500


decode_change = msgspec.json.Decoder(Change).decode
_status = msgspec.json.Decoder(_Status).decode


def stream_error(raw: bytes) -> ApiError:
    """Return the error in an ERROR line. Raises msgspec.DecodeError if the line is garbled."""
    return error_of(_status(raw).code, raw)


class Lines:
    """Splits chunks into lines; the text after the last line break waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without empty lines."""
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join([*self._parts, complete[0]])
            self._parts = []
        if rest:
            self._parts.append(rest)
        return [line for line in complete if line]


@dataclass(slots=True)
class Metrics:
    """Counters since the start.

    `relists`: lists of the whole collection.
    `changes`: changes that arrived on streams, without bookmarks.
    `failures`: requests and streams that failed.
    `undecodable`: objects that could not be decoded.
    `unobserved`: changes that made `on_change` fail.
    """

    relists: int = 0
    changes: int = 0
    failures: int = 0
    undecodable: int = 0
    unobserved: int = 0


class Informer(Generic[T]):
    """A copy of a collection of the API server that follows its changes.

    `decode`: turns an object's bytes into a value, or into None to exclude it from the store. After
        a ValueError, TypeError or msgspec.DecodeError the object is counted, logged and skipped,
        and the store retains its last value.
    `on_change(old, new)`: called after the store has changed, unless both are equal; None stands
        for an absent object. It must not await. An error is counted and logged, and the next change
        of the object calls it again.
    `selectors`: query parameters such as fieldSelector.

    `failure`: the present error of the list or the watch, or None.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        decode: Callable[[bytes], T | None],
        on_change: Callable[[T | None, T | None], None] = _ignore,
        selectors: Mapping[str, str] | None = None,
        silence_seconds: float = _SILENCE_SECONDS,
        backoff: Backoff | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store: Store[T] = Store()
        self.synced = asyncio.Event()
        self.metrics = Metrics()
        self.failure: Exception | None = None
        self._client = client
        self._path = path
        self._decode = decode
        self._on_change = on_change
        self._selectors = dict(selectors or {})
        self._silence_seconds = silence_seconds
        self._backoff = backoff or Backoff()
        self._monotonic = monotonic
        self._version = ""
        self._received_at = float("-inf")

    def last_event_age(self) -> float:
        """Return the seconds since the last bytes from the server, a bound on the age of the copy.

        While the server answers, this is at most `silence_seconds` plus the time for a new
        connection, even without changes. Before the first list it is infinite.
        """
        return self._monotonic() - self._received_at

    async def run(self) -> None:
        """List and follow until cancelled; after a failure of the server, wait and retry."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except Gone as error:
                _log.info("history is gone, listing again", path=self._path, error=str(error))
                self._version = ""
                await self._wait(error)
            except ApiError as error:
                _log.warning("watch failed", path=self._path, error=str(error))
                await self._wait(error)
            except (msgspec.DecodeError, RecursionError) as error:
                # The line and its change are lost. A new stream would send it again, but only a new
                # list skips a line that is garbled at the server.
                _log.warning("garbled answer, listing again", path=self._path, error=str(error))
                self._version = ""
                await self._wait(error)

    async def _wait(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.metrics.failures += 1
        await asyncio.sleep(self._backoff.next())

    async def _list(self) -> None:
        self.metrics.relists += 1
        listed: dict[str, tuple[Key, T | None]] = {}
        version = ""
        async with aclosing(self._client.pages(self._path, self._selectors)) as pages:
            async for page in pages:
                self._mark_received()
                for raw in page.items or ():
                    key = _key(metadata_of(raw))
                    listed[key.uid] = (key, self._decode_or_keep(key, bytes(raw)))
                version = page.metadata.resource_version
        # First remove the deleted objects: a new object may need their capacity or have their name.
        for uid in self.store.uids():
            if uid not in listed:
                self._remove(uid)
        for key, value in listed.values():
            self._put(key, value)
        self._version = version
        self.synced.set()

    async def _follow(self) -> None:
        """Apply changes until the server ends the stream. Raises ApiError or DecodeError."""
        received, began = False, self._monotonic()
        lines = Lines()
        chunks = self._client.watch(
            self._path,
            resource_version=self._version,
            server_seconds=_SERVER_SECONDS,
            silence_seconds=self._silence_seconds,
            **self._selectors,
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                self._mark_received()
                for line in lines.feed(chunk):
                    self._apply(decode_change(line))
                    self._backoff.reset()
                    received = True
        if received:
            return
        if self._monotonic() - began >= self._silence_seconds:
            self._backoff.reset()  # there were no changes
        else:  # no tight loop on a server that closes streams at once
            await self._wait()

    def _apply(self, change: Change) -> None:
        raw = bytes(change.object)
        if change.type == "ERROR":
            raise stream_error(raw)
        metadata = metadata_of(raw)
        if change.type == "DELETED":
            self._remove(metadata.uid)
        elif change.type != "BOOKMARK":
            key = _key(metadata)
            self._put(key, self._decode_or_keep(key, raw))
        self.metrics.changes += change.type != "BOOKMARK"
        self._version = metadata.resource_version

    def _decode_or_keep(self, key: Key, raw: bytes) -> T | None:
        """Return the decoded object, or the value in the store if it cannot be decoded."""
        try:
            return self._decode(raw)
        except (ValueError, TypeError, RecursionError, msgspec.DecodeError) as error:
            self.metrics.undecodable += 1
            _log.warning(
                "object skipped",
                path=self._path,
                namespace=key.namespace,
                name=key.name,
                error=str(error),
            )
            return self.store.by_uid(key.uid)

    def _put(self, key: Key, value: T | None) -> None:
        if value is None:
            self._remove(key.uid)
        elif (old := self.store.by_uid(key.uid)) != value:
            self.store.put(key, value)
            self._notify(key.uid, old, value)

    def _remove(self, uid: str) -> None:
        old = self.store.remove(uid)
        if old is not None:
            self._notify(uid, old, None)

    def _notify(self, uid: str, old: T | None, new: T | None) -> None:
        try:
            self._on_change(old, new)
        except Exception:
            # One object must not end the informer of all objects.
            self.metrics.unobserved += 1
            _log.exception("change skipped", path=self._path, uid=uid)

    def _mark_received(self) -> None:
        self._received_at, self.failure = self._monotonic(), None


def _key(metadata: Metadata) -> Key:
    return Key(metadata.uid, metadata.namespace, metadata.name)

"""The events of a benchmark's watches, timed by the monotonic clock of this process.

An event's time is the arrival of the last byte of its line, so all times share one clock and delay;
only the differences between them are used.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kfext.kube.client import Client

_PATIENCE_SECONDS = 60.0


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[dict[str, str]] = []
    run_policy: dict[str, Any] = {}
    pytorch_replica_specs: msgspec.Raw = msgspec.Raw(b"{}")


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Line(msgspec.Struct):
    type: str
    object: _Object


_decode = msgspec.json.Decoder(_Line).decode


class Seen:
    """When each object, by name, was first seen in a state, in monotonic seconds.

    An ungated pod has no scheduling gate of any system. `nodes`: the node of each bound pod.
    `specs`: the current replica specs of each job, in JSON.
    """

    def __init__(self) -> None:
        self.added: dict[str, float] = {}
        self.ungated: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.resumed: dict[str, float] = {}
        self.specs: dict[str, bytes] = {}
        self.gone: set[str] = set()
        self._news = asyncio.Event()

    async def until(
        self, condition: Callable[[], bool], *, what: str, seconds: float = _PATIENCE_SECONDS
    ) -> None:
        """Wait until the events fulfil a condition. Raises TimeoutError with `what`."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}") from None

    def read(self, line: bytes) -> str:
        now = time.monotonic()
        change = _decode(line)
        name, spec = change.object.metadata.name, change.object.spec
        if change.type == "DELETED":
            self.gone.add(name)
        elif change.type in {"ADDED", "MODIFIED"}:
            self.added.setdefault(name, now)
            if not spec.scheduling_gates:
                self.ungated.setdefault(name, now)
            if spec.node_name:
                self.bound.setdefault(name, now)
                self.nodes[name] = spec.node_name
            if spec.run_policy.get("suspend") is False:
                self.resumed.setdefault(name, now)
            self.specs[name] = bytes(spec.pytorch_replica_specs)
        self._news.set()
        return change.object.metadata.resource_version


@asynccontextmanager
async def watching(client: Client, *collections: str) -> AsyncIterator[Seen]:
    """Watch collections (URL paths) from now on, during a `with` block."""
    seen = Seen()
    starts = [(path, await _version(client, path)) for path in collections]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_follow(client, path, at, seen)) for path, at in starts]
        try:
            yield seen
        finally:
            for task in running:
                task.cancel()


async def _version(client: Client, path: str) -> str:
    listed = msgspec.json.decode(await client.read(path, limit="1"))
    return str(listed["metadata"]["resourceVersion"])


async def _follow(client: Client, path: str, version: str, seen: Seen) -> None:
    while True:  # a busy API server may end a watch at any time; nothing is lost by that
        rest = b""
        stream = client.watch(
            path, resource_version=version, server_seconds=600, silence_seconds=120
        )
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                version = seen.read(line)

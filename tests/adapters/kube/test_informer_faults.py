"""After any fault of the connection the informer has the objects of the server again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import pytest

from kfext.errors import Forbidden
from kfext.kube.client import Client
from kfext.kube.informer import Backoff, Informer, Lines

from .conftest import until
from .faulty_server import FallSilent, FaultyServer, HangUp, Refuse, Step, item, line, page

T = TypeVar("T")
Changes = list[tuple[str | None, str | None]]


def decode(raw: bytes) -> str | None:
    """Return NAME@VERSION; an object named `odd` cannot be decoded, and `hidden` is left out."""
    metadata = json.loads(raw)["metadata"]
    if metadata["name"] == "odd":
        raise ValueError("too odd")
    return (
        None
        if metadata["name"] == "hidden"
        else f"{metadata['name']}@{metadata['resourceVersion']}"
    )


def informer(client: Client, changes: Changes, silence_seconds: float = 30.0) -> Informer[str]:
    return Informer(
        client,
        "/api/v1/things",
        decode=decode,
        on_change=lambda old, new: changes.append((old, new)),
        silence_seconds=silence_seconds,
        backoff=Backoff(first=0.01, longest=0.02),
    )


@asynccontextmanager
async def running(followed: Informer[T]) -> AsyncIterator[Informer[T]]:
    task = asyncio.create_task(followed.run())
    try:
        yield followed
    finally:
        assert not task.done(), task
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class Fault:
    """The steps of a watch, and what they cause.

    `want_resumed_from`: the resource version of the next watch.
    """

    steps: list[Step]
    want_resumed_from: str
    want_relists: int = 1
    want_undecodable: int = 0
    silence_seconds: float = 30.0


EXPIRED = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
BROKEN = line("ERROR", {"kind": "Status", "code": 500, "message": "etcd leader changed"})

FAULTS = {
    "a proper end resumes after the last event": Fault(
        steps=[line("ADDED", item("c", 12))], want_resumed_from="12"
    ),
    "a connection dropped in mid line resumes after the last whole event": Fault(
        steps=[line("ADDED", item("c", 12)), line("ADDED", item("d", 13))[:30], HangUp()],
        want_resumed_from="12",
    ),
    "a connection dropped before any event resumes from the list": Fault(
        steps=[HangUp()], want_resumed_from="10"
    ),
    "after a bookmark the watch resumes from its version": Fault(
        steps=[line("BOOKMARK", item("", 15)), HangUp()], want_resumed_from="15"
    ),
    "an expired history inside the stream lists again": Fault(
        steps=[EXPIRED], want_resumed_from="30", want_relists=2
    ),
    "a 410 for the watch itself lists again": Fault(
        steps=[Refuse(410)], want_resumed_from="30", want_relists=2
    ),
    "an error inside the stream that is not about history resumes": Fault(
        steps=[BROKEN], want_resumed_from="10"
    ),
    "a 500 for the watch resumes": Fault(steps=[Refuse(500)], want_resumed_from="10"),
    "a 403 for the watch resumes": Fault(steps=[Refuse(403)], want_resumed_from="10"),
    "a line with truncated JSON lists again": Fault(
        steps=[b'{"type":"ADDED","object":{"meta\n'], want_resumed_from="30", want_relists=2
    ),
    "silence counts as a dead connection": Fault(
        steps=[FallSilent()], want_resumed_from="10", silence_seconds=0.1
    ),
    "an object that cannot be decoded is counted and skipped": Fault(
        steps=[line("ADDED", item("odd", 14))], want_resumed_from="14", want_undecodable=1
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_after_a_fault_of_a_watch_the_copy_is_correct_again(
    fault: Fault, faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [page(item("a", 9), version=10), page(item("e", 29), version=30)]
    # The last watch sends an event before it is silent, or its silence would be a fault too.
    faulty.watches += [fault.steps, [line("ADDED", item("b", 40)), FallSilent()]]
    changes: Changes = []
    followed = informer(faulty_client, changes, fault.silence_seconds)

    async with running(followed):
        await until(lambda: followed.store.by_name("b"), what="the event after the fault")

        assert faulty.watch_queries[1]["resourceVersion"] == fault.want_resumed_from
        assert faulty.watch_queries[1]["allowWatchBookmarks"] == "true"
        assert followed.metrics.relists == fault.want_relists
        assert followed.metrics.undecodable == fault.want_undecodable
        assert len(followed.store) == 2 + (fault.want_resumed_from == "12")
        relisted = fault.want_relists == 2
        assert (("a@9", None) in changes) is relisted
        assert ("e@29" in list(followed.store)) is relisted
        # A replay of the callbacks leads to the stored objects.
        replayed: set[str] = set()
        for old, new in changes:
            replayed -= {old}
            if new is not None:
                replayed.add(new)
        assert replayed == set(followed.store)


LIST_FAULTS: dict[str, list[bytes | Refuse]] = {
    "the server answers 500": [Refuse(500)],
    "the list is forbidden for a while": [Refuse(403)],
    "the page is truncated": [page(item("x", 1), version=5)[:40]],
    "the token of the second page expires": [
        page(item("x", 1), version=5, continue_="token"),
        Refuse(410),
    ],
}


@pytest.mark.parametrize("answers", LIST_FAULTS.values(), ids=LIST_FAULTS.keys())
async def test_a_failed_list_starts_again_and_leaves_no_objects(
    answers: list[bytes | Refuse], faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [
        *answers,
        page(item("a", 9), version=10, continue_="next"),
        page(item("b", 8), item("hidden", 7), version=10),
    ]
    changes: Changes = []

    async with running(informer(faulty_client, changes)) as followed:
        assert not followed.synced.is_set()
        await until(followed.synced.is_set, what="synced")

        assert sorted(followed.store) == ["a@9", "b@8"]
        assert changes == [(None, "a@9"), (None, "b@8")]
        assert faulty.read_queries[-1] == {"limit": "500", "continue": "next"}
        assert followed.metrics.failures == 1


async def test_each_change_is_reported_once_with_the_old_and_the_new_value(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(item("a", 9), version=10))
    successor = item("a", 14) | {"metadata": item("a", 14)["metadata"] | {"uid": "uid-second"}}
    faulty.watches.append(
        [
            line("MODIFIED", item("a", 11)) + line("MODIFIED", item("a", 11)),
            line("ADDED", successor) + line("DELETED", item("a", 15)),
            line("DELETED", item("never-seen", 16)) + line("ADDED", item("end", 17)),
            FallSilent(),
        ]
    )
    changes: Changes = []

    async with running(informer(faulty_client, changes)) as followed:
        await until(lambda: followed.store.by_name("end"), what="the last event")

        assert changes == [
            (None, "a@9"),
            ("a@9", "a@11"),
            (None, "a@14"),
            ("a@11", None),
            (None, "end@17"),
        ]
        assert followed.store.by_name("a") == "a@14"
        assert followed.store.by_uid("uid-a") is None


async def test_an_object_that_becomes_malformed_keeps_its_last_valid_value(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(item("a", 9), version=10))
    odd = {"metadata": item("odd", 12)["metadata"] | {"uid": "uid-a"}}
    faulty.watches.append([line("MODIFIED", odd) + line("ADDED", item("b", 13)), FallSilent()])

    async with running(informer(faulty_client, [])) as followed:
        await until(
            lambda: followed.store.by_name("b"), what="the event after the malformed object"
        )

        assert sorted(followed.store) == ["a@9", "b@13"]


async def test_an_event_that_arrives_in_many_pieces_is_one_event(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(version=10))
    events = line("ADDED", item("a", 11)) + line("ADDED", item("b", 12))
    faulty.watches.append([*(events[i : i + 7] for i in range(0, len(events), 7)), FallSilent()])

    async with running(informer(faulty_client, [])) as followed:
        await until(lambda: followed.store.by_name("b"), what="the second event")

        assert list(followed.store) == ["a@11", "b@12"]
        assert followed.metrics.changes == 2


async def test_a_watch_that_ends_at_once_counts_as_a_failure(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(version=10))
    faulty.watches += [[], [], [], [line("ADDED", item("a", 11)), FallSilent()]]

    async with running(informer(faulty_client, [])) as followed:
        await until(lambda: followed.store.by_name("a"), what="the event")

        assert followed.metrics.failures == 3


async def test_the_age_of_the_copy_counts_from_the_last_bytes(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    send_bookmark = asyncio.Event()
    faulty.reads.append(page(version=10))
    faulty.watches.append([send_bookmark, line("BOOKMARK", item("", 11)), FallSilent()])
    now = 100.0
    followed = Informer(faulty_client, "/api/v1/things", decode=decode, monotonic=lambda: now)
    assert followed.last_event_age() == float("inf")

    async with running(followed):
        await until(followed.synced.is_set, what="synced")
        now = 130.0
        assert followed.last_event_age() == 30.0
        send_bookmark.set()
        await until(lambda: followed.last_event_age() == 0.0, what="the bookmark")
        assert followed.metrics.changes == 0


async def test_a_collection_that_never_changes_does_not_count_as_a_dead_server(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(version=10))  # every watch stays silent, without even a bookmark
    followed = Informer(
        faulty_client,
        "/api/v1/things",
        decode=decode,
        silence_seconds=0.05,
        backoff=Backoff(first=0.01, longest=0.02),
        monotonic=lambda: float(len(faulty.watch_queries)),  # each watch takes a second
    )

    async with running(followed):
        await until(lambda: len(faulty.watch_queries) >= 6, what="the sixth watch")

        assert followed.last_event_age() <= 1
        assert followed.metrics.failures == 0


async def test_after_an_error_of_the_callback_the_informer_continues(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    observed: list[tuple[str | None, str | None]] = []

    def fail_on_a(old: str | None, new: str | None) -> None:
        observed.append((old, new))
        if "a@9" in (old, new):
            raise RuntimeError("a bug in kfext")

    faulty.reads.append(page(item("a", 9), item("b", 8), version=10))
    faulty.watches.append(
        [line("MODIFIED", item("a", 11)), line("DELETED", item("b", 12)), FallSilent()]
    )
    followed = Informer(faulty_client, "/api/v1/things", decode=decode, on_change=fail_on_a)

    async with running(followed):
        await until(lambda: len(observed) == 4, what="the last change")

    assert observed == [(None, "a@9"), (None, "b@8"), ("a@9", "a@11"), ("b@8", None)]
    assert followed.metrics.unobserved == 2


STOPS: dict[str, Step] = {"while it watches": FallSilent(), "while it backs off": Refuse(500)}


@pytest.mark.parametrize("step", STOPS.values(), ids=STOPS.keys())
async def test_cancelling_leaves_nothing_running(
    step: Step, faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(version=10))
    faulty.watches.append([step])
    followed = Informer(
        faulty_client, "/api/v1/things", decode=decode, backoff=Backoff(first=60, longest=60)
    )
    task = asyncio.create_task(followed.run())
    await until(lambda: faulty.watch_queries, what="the watch")

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not [other for other in asyncio.all_tasks() if "Informer" in repr(other)]


def test_lines_are_complete_however_the_chunks_are_cut() -> None:
    lines = Lines()

    assert [lines.feed(chunk) for chunk in (b"a", b"b", b"c\nd\n\ne", b"\n")] == [
        [],
        [],
        [b"abc", b"d"],
        [b"e"],
    ]


def test_backoff_doubles_up_to_its_limit_and_starts_again() -> None:
    backoff = Backoff(first=1, longest=30)

    waits = [backoff.next() for _ in range(2000)]

    bounds = [1, 2, 4, 8, 16, 30]
    assert all(b / 2 <= wait <= b for wait, b in zip(waits, bounds, strict=False))
    assert all(15 <= wait <= 30 for wait in waits[5:])
    assert len(set(waits[5:])) > 1000, "no jitter"
    backoff.reset()
    assert backoff.next() <= 1


async def test_the_failure_is_known_until_the_server_answers_again(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(page(item("a", 9), version=10))
    faulty.watches.extend([[Refuse(403)]] * 1000)
    async with running(informer(faulty_client, [])) as followed:
        await until(lambda: isinstance(followed.failure, Forbidden), what="the refusal")
        faulty.watches.clear()
        await until(lambda: followed.failure is None, what="a watch")

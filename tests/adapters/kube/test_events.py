"""Each event is sent once, and `record` never blocks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from e2e.testbed.cluster import Testbed
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.events import EventRecorder
from kfext.model.job import TrainingJob
from kfext.model.verdict import Verdict
from tests.builders import job


def job_in(namespace: str, uid: str = "u-1", name: str = "job") -> TrainingJob:
    return replace(job(name=name, uid=uid).worker().build(), namespace=namespace)


@asynccontextmanager
async def recording(client: Client) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, reporter="kfext.dev/controller", instance="kfext-0")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


SEQUENCES = {
    "a verdict is an event": ([("NoRoom", "4 of 8")], [("NoRoom", "4 of 8")]),
    "an equal verdict is sent once": (
        [("NoRoom", "4 of 8"), ("NoRoom", "4 of 8")],
        [("NoRoom", "4 of 8")],
    ),
    "a new message with the same reason is not sent": (
        [("NoRoom", "4 of 8"), ("NoRoom", "5 of 8")],
        [("NoRoom", "4 of 8")],
    ),
    "a change of reason is sent": (
        [("NoRoom", "4 of 8"), ("Placed", "on n1")],
        [("NoRoom", "4 of 8"), ("Placed", "on n1")],
    ),
    "a return to an earlier reason is sent if the message is new": (
        [("NoRoom", "4 of 8"), ("Placed", "on n1"), ("NoRoom", "2 of 8")],
        [("NoRoom", "2 of 8"), ("NoRoom", "4 of 8"), ("Placed", "on n1")],
    ),
    "an alternation of two verdicts is sent as two events": (
        [("NoRoom", "x"), ("Placed", "y")] * 5,
        [("NoRoom", "x"), ("Placed", "y")],
    ),
}


@pytest.mark.parametrize(("verdicts", "want"), SEQUENCES.values(), ids=SEQUENCES.keys())
async def test_the_events_that_reach_the_cluster(
    verdicts: list[tuple[str, str]], want: list[tuple[str, str]], client: Client, namespace: str
) -> None:
    async with recording(client) as recorder:
        for reason, message in verdicts:
            recorder.record(job_in(namespace), Verdict(reason, message), action="Waiting")
        await recorder.drain()

    result = await client.list_all(paths.events(namespace))
    assert sorted((event["reason"], event["note"]) for event in result) == want
    assert recorder.dropped == 0
    assert all(event["regarding"]["uid"] == "u-1" for event in result)


async def test_a_new_process_does_not_repeat_events_of_the_old_process(
    client: Client, namespace: str
) -> None:
    for _ in range(2):
        async with recording(client) as recorder:
            recorder.record(job_in(namespace), Verdict("NoRoom", "x"), action="Waiting")
            await recorder.drain()

    assert len(await client.list_all(paths.events(namespace))) == 1
    assert recorder.dropped == 0


async def test_a_repeated_event_causes_no_request(testbed: Testbed, namespace: str) -> None:
    sent: list[int] = []
    client = await Client.connect(
        testbed.kubeconfig, observe=lambda _verb, _what, status: sent.append(status)
    )
    async with client, recording(client) as recorder:
        for reason in ("NoRoom", "Placed", "NoRoom", "Placed", "NoRoom"):
            recorder.record(job_in(namespace), Verdict(reason, "x"), action="Waiting")
        await recorder.drain()

    assert sent == [201, 201]


async def test_two_jobs_may_have_the_same_reason(client: Client, namespace: str) -> None:
    async with recording(client) as recorder:
        for uid in ("u-1", "u-2"):
            recorder.record(
                job_in(namespace, uid=uid), Verdict("NoRoom", "x"), action="Waiting", warning=True
            )
        await recorder.drain()

    result = await client.list_all(paths.events(namespace))
    assert [event["type"] for event in result] == ["Warning", "Warning"]


async def test_long_names_and_messages_are_cut_to_the_limits_of_the_api(
    client: Client, namespace: str
) -> None:
    async with recording(client) as recorder:
        long = job_in(namespace, name="a" * 199 + "." + "b" * 53)
        recorder.record(long, Verdict("NoRoom", "ä" * 2000), action="Waiting")
        await recorder.drain()

    (event,) = await client.list_all(paths.events(namespace))
    assert event["note"].endswith("ä…")
    assert event["regarding"]["name"] == long.name


async def test_half_of_a_surrogate_pair_is_written_as_a_question_mark(
    client: Client, namespace: str
) -> None:
    async with recording(client) as recorder:
        recorder.record(job_in(namespace), Verdict("NoRoom", "a\ud800"), action="Waiting")
        await recorder.drain()

    (event,) = await client.list_all(paths.events(namespace))
    assert event["note"] == "a?"


async def test_an_event_that_cannot_be_encoded_is_dropped_and_the_next_is_written(
    client: Client, namespace: str
) -> None:
    async with recording(client) as recorder:
        recorder.record(job_in(namespace), Verdict("a\ud800", "x"), action="Waiting")
        recorder.record(job_in(namespace), Verdict("NoRoom", "x"), action="Waiting")
        await recorder.drain()
        assert recorder.dropped == 1
    assert len(await client.list_all(paths.events(namespace))) == 1


async def test_a_failed_event_is_counted_and_the_next_event_is_sent(
    client: Client, namespace: str
) -> None:
    async with recording(client) as recorder:
        nowhere = job_in("no-such-namespace")
        recorder.record(nowhere, Verdict("NoRoom", "x"), action="Waiting")
        await recorder.drain()
        assert recorder.dropped == 1

        same_job = job_in(namespace)
        recorder.record(same_job, Verdict("NoRoom", "x"), action="Waiting")
        await recorder.drain()
        assert recorder.dropped == 1
    assert len(await client.list_all(paths.events(namespace))) == 1


async def test_a_full_queue_drops_events_and_never_waits(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, reporter="kfext.dev/controller", instance="kfext-0")

    for number in range(1005):
        recorder.record(
            job_in(namespace, uid=str(number)), Verdict("NoRoom", "x"), action="Waiting"
        )

    assert recorder.dropped == 5

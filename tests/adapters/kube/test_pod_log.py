"""Each line of a log is read once, and the newest lines are read whatever a job prints."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.kube.client import Client
from kfext.kube.pod_log import MAX_BYTES, PodLog, lines_of, newer


class FakeKubelet:
    """Answers like the kubelet: the first bytes of the last lines."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.requests = 0

    def write(self, *lines: str, second: int = 0) -> None:
        """Write lines as a container, each with its own timestamp."""
        for line in lines:
            stamp = f"2026-11-22T10:{second // 60:02}:{second % 60:02}.{len(self.written):09}Z"
            self.written.append(f"{stamp} {line}\n".encode())

    async def read(self, _path: str, **query: str) -> bytes:
        self.requests += 1
        assert query["timestamps"] == "true"
        tail = b"".join(self.written[-int(query["tailLines"]) :])
        return tail[: int(query["limitBytes"])]


def reader(kubelet: FakeKubelet) -> PodLog:
    return PodLog(cast(Client, kubelet), "team", "train-worker-0", "pytorch")


async def texts(log: PodLog) -> list[str]:
    return [line.text for line in await log.read()]


async def test_each_line_is_read_once() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    assert await texts(log) == []
    kubelet.write("a", "b")
    assert await texts(log) == ["a", "b"]
    assert await texts(log) == []
    kubelet.write("c", second=1)
    assert await texts(log) == ["c"]


async def test_of_many_new_lines_the_newest_are_read() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    kubelet.write(*map(str, range(10_000)))
    assert await texts(log) == [str(number) for number in range(9_800, 10_000)]
    assert kubelet.requests == 1


async def test_fewer_long_lines_are_requested_until_the_newest_is_among_them() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    kubelet.write(*("x" * 16_384 + str(number) for number in range(300)))
    result = await texts(log)
    assert result[-1].endswith("299")
    assert kubelet.requests <= 3
    kubelet.write(*("short" for _ in range(200)))
    for _ in range(6):
        await log.read()
    kubelet.write(*map(str, range(150)))
    assert await texts(log) == [str(number) for number in range(150)]


async def test_a_line_longer_than_an_answer_is_cut_and_the_next_line_is_read() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    kubelet.write("x" * 2 * MAX_BYTES)
    (cut,) = await texts(log)
    assert len(cut) < MAX_BYTES
    kubelet.write("next", second=1)
    assert await texts(log) == ["next"]


async def test_lines_of_a_new_file_are_read_after_the_old_file_was_rotated() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    kubelet.write("a", "b")
    await log.read()
    kubelet.written = []
    kubelet.write("c", second=5)
    assert await texts(log) == ["c"]


async def test_after_the_clock_was_set_back_lines_are_still_read() -> None:
    kubelet = FakeKubelet()
    log = reader(kubelet)
    kubelet.write("a", second=600)
    await log.read()
    kubelet.written = []
    kubelet.write("b", second=1)
    assert await texts(log) == ["b"]
    kubelet.write("c", second=2)
    assert await texts(log) == ["c"]


ANSWERS: dict[str, tuple[bytes, list[str]]] = {
    "no output": (b"", []),
    "bytes that are not UTF-8": (b"2026-11-22T10:00:00Z a\xff\x00b\n", ["a\ufffd\x00b"]),
    "an empty line": (b"2026-11-22T10:00:00Z \n", [""]),
    "a line without an end": (b"2026-11-22T10:00:00Z a", ["a"]),
    "the end of a line that was cut": (b"rest\n2026-11-22T10:00:00Z a\n", ["a"]),
    "a node in a different time zone": (b"2026-11-22T18:00:00.123456789+08:00 a\n", ["a"]),
    "an answer that is not a log": (b"unable to retrieve container logs\n", []),
}


@pytest.mark.parametrize(("body", "want"), ANSWERS.values(), ids=ANSWERS)
def test_the_lines_of_an_answer(body: bytes, want: list[str]) -> None:
    assert [line.text for line in lines_of(body)] == want


def test_the_time_of_a_line_respects_its_time_zone() -> None:
    here, there = lines_of(b"2026-11-22T10:00:00.5Z a\n2026-11-22T02:30:00.5-07:30 b\n")
    assert here.at == there.at


@given(st.binary(max_size=500))
def test_any_answer_is_read_without_an_error(body: bytes) -> None:
    assert newer(lines_of(body), "2026-11-22T10:00:00Z") is not None

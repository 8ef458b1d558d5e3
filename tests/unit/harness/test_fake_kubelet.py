"""The logs of fake nodes: as a kubelet would send them."""

from hypothesis import given
from hypothesis import strategies as st

from e2e.harness.fake_kubelet import FakeKubelet, PodLog
from kfext.kube.pod_log import lines_of, newer


def printed(count: int) -> PodLog:
    log = PodLog()
    for number in range(count):
        log.write(f"line {number}")
    return log


def read(log: PodLog, *, tail: int | None = None, most: int | None = None) -> bytes:
    return log.read(tail=tail, most=most, timestamps=True)


def test_each_line_has_a_time_of_its_own() -> None:
    lines = lines_of(read(printed(1000)))
    assert [line.text for line in lines] == [f"line {number}" for number in range(1000)]
    assert len({line.stamp for line in lines}) == 1000


@given(before=st.integers(0, 30), after=st.integers(0, 30))
def test_who_reads_again_finds_what_is_new(before: int, after: int) -> None:
    log = printed(before)
    known = lines_of(read(log))
    for number in range(after):
        log.write(f"new {number}")
    fresh = newer(lines_of(read(log)), known[-1].stamp if known else "")
    assert [line.text for line in fresh] == [f"new {number}" for number in range(after)]


def test_only_the_last_lines_are_sent_and_of_these_the_first_bytes() -> None:
    log = printed(10)
    assert [line.text for line in lines_of(read(log, tail=2))] == ["line 8", "line 9"]
    assert read(log, tail=2, most=40) == read(log, tail=2)[:40]
    assert read(log, tail=0) == b""


def test_without_timestamps_there_is_only_what_was_printed() -> None:
    assert printed(2).read(tail=None, most=None, timestamps=False) == b"line 0\nline 1\n"


def test_a_pod_that_takes_a_name_begins_a_log() -> None:
    kubelet = FakeKubelet(0)
    kubelet.log_of("a", "pod").write("old")
    assert read(kubelet.log_of("b", "pod")) == b""
    kubelet.forget("a", "pod")
    assert read(kubelet.log_of("a", "pod")) == b""

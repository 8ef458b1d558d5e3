"""The benchmark of reading logs: what it counts, and its table."""

import pytest

from e2e.bench.polling import Cost, Counted, Size, cost_table, log_requests

SIZE = Size(jobs=100, nodes=4, seconds=10, samples=1)


def test_only_requests_for_logs_are_counted_whatever_their_verb_and_code() -> None:
    page = "\n".join(
        [
            "# HELP apiserver_request_total Counter of apiserver requests",
            'apiserver_request_total{code="200",resource="pods",subresource="log",verb="GET"} 40',
            'apiserver_request_total{code="500",resource="pods",subresource="log",verb="GET"} 2e0',
            'apiserver_request_total{code="200",resource="pods",subresource="",verb="GET"} 900',
            'apiserver_request_duration_seconds_count{subresource="log",verb="GET"} 42',
        ]
    )
    assert log_requests(page) == 42


def counted(at: float, logs: float, cpu: float) -> Counted:
    return Counted(at, logs, writes=logs / 2, cpu={"controller": cpu})


def test_a_cost_is_what_was_added_in_a_second() -> None:
    cost = Cost.between(counted(100, 40, 2.0), counted(110, 90, 2.5), memory=150, ready=20)
    assert (cost.logs, cost.writes, cost.memory) == (5, 2.5, 150)
    assert cost.cpu == {"controller": pytest.approx(0.05)}


def test_a_read_costs_what_the_controller_uses_beyond_its_use_without_reading() -> None:
    off, on, again = (
        Cost(logs, logs, {"controller": cpu}, 100, ready=20 + logs)
        for logs, cpu in ((0, 0.01), (20, 0.21), (0, 0.03))
    )
    lines = cost_table(SIZE, [off, on, again], ages=[1, 2, 9]).splitlines()
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for line in lines[2:]
        for cells in [line.split("|")]
    }
    # 0.21 cores against 0.02 on the average, for 20 reads.
    assert rows["CPU ms of the controller for a read, all told"] == ["", "9.5", ""]
    assert rows["turned on to every log read once, s"] == ["", "40", ""]
    assert rows["seconds between two reads of a job"] == ["", "5", ""]
    assert rows["age of what is known of a job, longest s"] == ["", "9", ""]
    assert rows["requests for logs a second (API server)"] == ["0.00", "20.00", "0.00"]
    assert "faked" in lines[0]

"""The history of a job and its curve: bounded, in order, with the first and the last of each."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.job_history import (
    LONGEST_CURVE,
    LONGEST_WHY,
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_NODES,
    MAX_POINTS,
    JobHistory,
    decode_curve,
    decode_history,
)
from tests.unit.objects import json_values

KINDS = (*names.PHASES, names.RESIZED, names.SCALED, names.MOVED, names.STOPPED)
Event = tuple[str, float, int]
"""What happened, the seconds since the event before, and the number of workers."""


def history(*events: Event, why: str = "", nodes: tuple[str, ...] = ()) -> JobHistory:
    history, at = JobHistory(), 0.0
    for number, (what, after, workers) in enumerate(events):
        at += after
        history = history.with_entry(what, why or str(number), at=at, workers=workers, nodes=nodes)
    return history


def read_back(original: JobHistory) -> JobHistory:
    fields = json.loads(json.dumps(original.encode()))
    return decode_history(fields["history"], fields["curve"])


_event = st.tuples(st.sampled_from(KINDS), st.floats(0, 1000), st.integers(0, 9))


@given(
    events=st.lists(_event, min_size=1, max_size=120),
    why=st.text(max_size=300),
    nodes=st.lists(st.text(max_size=63), max_size=12).map(tuple),
)
def test_a_history_is_bounded_in_order_and_keeps_its_first_and_its_last(
    events: list[Event], why: str, nodes: tuple[str, ...]
) -> None:
    result = history(*events, why=why, nodes=nodes)
    entries = result.entries
    assert len(entries) <= MAX_ENTRIES
    written = json.dumps(result.encode()["history"], ensure_ascii=False, separators=(",", ":"))
    assert len(written.encode()) <= MAX_BYTES or len(entries) <= 2
    times = [entry.at for entry in entries]
    assert times == sorted(times)
    assert times[0] == int(events[0][1])
    assert (entries[-1].event, entries[-1].workers) == (events[-1][0], events[-1][2])
    assert sum(entry.count for entry in entries) <= len(events)
    assert all(len(entry.nodes) <= MAX_NODES for entry in entries)
    assert all(len(entry.nodes) + entry.more_nodes == len(nodes) for entry in entries)
    assert all(len(entry.why) <= LONGEST_WHY for entry in entries)
    assert read_back(result) == result


FULL = [("Placed", 0.0, 0), *(("Scaled", 100.0, number) for number in range(1, MAX_ENTRIES))]
CYCLE = [(what, 100.0, 2) for _ in range(MAX_ENTRIES) for what in ("Stopped", "Queued", "Placed")]


def test_in_a_full_history_the_closest_neighbours_of_one_kind_are_merged() -> None:
    assert all(entry.count == 1 for entry in history(*FULL).entries)
    short = [*FULL[:10], ("Scaled", 7.0, 90), *FULL[10:]]
    entries = history(*short).entries
    (merged,) = (entry for entry in entries if entry.count > 1)
    # All fields but the time are from the second entry.
    assert (merged.at, merged.workers, merged.count, merged.why) == (900.0, 90, 2, "10")
    assert len(entries) == MAX_ENTRIES


def test_neighbours_are_merged_before_an_entry_between_others_is_dropped() -> None:
    stops = [("Stopped", 1.0, 2), ("Queued", 1.0, 2), ("Placed", 1.0, 2)]
    grows = [("Scaled", 1000.0, number) for number in range(MAX_ENTRIES - 4)]
    entries = history(*stops, *stops, *grows).entries
    assert [entry.event for entry in entries[:6]] == [what for what, *_ in stops] * 2
    assert sum(entry.count for entry in entries) == 6 + len(grows) > len(entries)


def test_no_phase_seems_longer_because_entries_are_left_out() -> None:
    """A phase never seems to last until the end of a later phase that was left out."""
    entries = history(*CYCLE).entries
    assert len(entries) <= MAX_ENTRIES
    kinds = [entry.event for entry in entries]
    assert "Placed" in kinds
    assert kinds[-1] == "Placed"
    assert sum(entry.count for entry in entries) > len(entries)
    # Each entry has the time of an original entry of its kind.
    begins = {(what, 100.0 * number) for number, (what, *_) in enumerate(CYCLE, 1)}
    assert {(entry.event, entry.at) for entry in entries} <= begins


def test_names_of_nodes_are_dropped_before_entries_and_stay_on_the_last() -> None:
    nodes = tuple(f"gpu-pool-a-{number:04}.internal" for number in range(10))
    result = history(*[("Scaled", 60.0, number) for number in range(12)], nodes=nodes)
    assert [entry.count for entry in result.entries] == [1] * 12
    assert result.entries[0].nodes == nodes[:2]
    assert (result.entries[-1].nodes, result.entries[-1].more_nodes) == (nodes[:MAX_NODES], 2)


def test_a_repeated_entry_is_counted() -> None:
    twice = [("Resized", 10.0, 2), ("Resized", 5.0, 2)]
    (entry,) = history(*twice, why="it would end first").entries
    assert (entry.at, entry.count) == (10.0, 2)
    assert len(history(*twice).entries) == 2, "another reason"


def test_a_clause_of_the_previous_entry_is_left_out() -> None:
    history = JobHistory()
    for what, why in (("Moved", "b has room"), ("Queued", "b has room; 2 pods still end")):
        history = history.with_entry(what, why, at=1.0, workers=2, nodes=())
    assert [entry.why for entry in history.entries] == ["b has room", "2 pods still end"]


WHYS: dict[str, tuple[str, str]] = {
    "a sentence": ("3 pods go to a", "3 pods go to a"),
    "a time in front": ("2026-01-02T03:04:05Z: 3 pods go to a", "3 pods go to a"),
    "as many clauses as fit": (f"short; {'x' * 150}; {'y' * 50}", f"short; {'x' * 150}"),
    "a clause that is too long": ("x" * 300, "x" * LONGEST_WHY),
}


@pytest.mark.parametrize(("why", "want"), WHYS.values(), ids=WHYS)
def test_a_reason_is_cut_between_its_clauses(why: str, want: str) -> None:
    (entry,) = history(("Placed", 1.0, 2), why=why).entries
    assert entry.why == want


def test_a_clock_that_was_set_back_changes_no_order() -> None:
    result = history(("Queued", 100.0, 2), ("Placed", -50.0, 2), ("Finished", 10.0, 2))
    assert [entry.at for entry in result.entries] == [100.0, 100.0, 100.0]


def test_the_last_phase_is_known_after_any_later_changes() -> None:
    assert history(("Queued", 1.0, 2), ("Placed", 1.0, 2), ("Scaled", 1.0, 3)).phase == "Placed"
    assert JobHistory().phase == ""


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


_point = st.tuples(
    st.floats(-100, 10_000),
    st.none() | st.integers(0, 10**15),
    st.none() | st.floats(),
)


@given(st.lists(_point, max_size=200))
def test_a_curve_is_bounded_with_growing_times_and_exact_ends(
    reported: list[tuple[float, int | None, float | None]],
) -> None:
    history, at, wanted = JobHistory(), 1_700_000_000.0, list[tuple[int | None, float | None]]()
    for after, step, value in reported:
        at += after
        history = history.with_point(at, step, value)
        known = value if value is not None and abs(value) < float("inf") else None
        if (step, known) not in {(None, None), wanted[-1] if wanted else None}:
            wanted.append((step, known))
    points = decode_curve(history.curve)
    assert len(points) == min(len(wanted), MAX_POINTS)
    assert len(history.curve) <= LONGEST_CURVE
    times = [point.at for point in points]
    assert times == sorted(set(times))
    if points:
        assert (points[0][1:], points[-1][1:]) == (wanted[0], wanted[-1])
    reports = ((step, rounded(value)) for step, value in wanted)
    # Each point is a report, in the order of the reports.
    assert all((step, rounded(value)) in reports for _, step, value in points)
    assert read_back(history) == history


@pytest.mark.parametrize("number", [65, 100, 1000, 5000])
def test_a_thinned_curve_is_spread_over_the_whole_life(number: int) -> None:
    history = JobHistory()
    for second in range(number):
        history = history.with_point(10.0 * second, second, 1.0)
    times = [point.at for point in decode_curve(history.curve)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) <= 2 * 10.0 * number / MAX_POINTS, "at most twice the mean gap"
    assert (times[0], times[-1]) == (0, 10 * (number - 1))


def test_a_new_metric_keeps_the_steps_of_the_curve() -> None:
    history = JobHistory().with_point(10.0, 1, 0.5).with_point(20.0, None, 0.4)
    changed = history.with_point(30.0, 3, 0.3).without_values()
    assert decode_curve(changed.curve) == [(10, 1, None), (30, 3, None)]


JSON_FIELDS = ("time", "what", "workers", "nodes", "moreNodes", "why", "times")


@given(history=json_values, curve=json_values | st.text(max_size=50), entries=st.lists(json_values))
def test_malformed_data_is_read_without_an_error(history: Any, curve: Any, entries: Any) -> None:
    for written in (history, entries, [dict.fromkeys(JSON_FIELDS, history)]):
        decoded = decode_history(written, curve).with_point(1.0, 1, 1.0)
        extended = decoded.with_entry("Placed", "", at=1.0, workers=1, nodes=())
        assert len(extended.entries) <= MAX_ENTRIES
        assert read_back(extended).entries == extended.entries


ODD_TIMES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon", None]


@pytest.mark.parametrize("time", ODD_TIMES)
def test_a_time_that_no_calendar_has_can_be_written_again(time: str | None) -> None:
    decoded = decode_history([{"what": "Placed", "time": time}], "")
    assert read_back(decoded) == decoded

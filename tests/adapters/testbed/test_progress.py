"""How much of planned work is done, how long the rest takes, and what a log gets of it."""

import io

import pytest
from rich.console import Console

from e2e.testbed import progress
from e2e.testbed.progress import Planned, RoundQueue

FETCH, BUILD, UNPACK = Planned("fetch", 60), Planned("build", 180), Planned("unpack", 60)
ALL = (FETCH, BUILD, UNPACK)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Where progress is written that no terminal shows."""
    written = io.StringIO()
    monkeypatch.setattr(progress, "_live", progress._Live(Console(file=written, width=200)))
    return written


def test_before_the_first_step_all_takes_its_usual_time() -> None:
    agenda = RoundQueue(ALL)
    assert (agenda.left(0.0), agenda.share(0.0)) == (300.0, 0.0)


def test_steps_at_their_usual_pace_leave_the_usual_time_of_the_others() -> None:
    agenda = RoundQueue(ALL)
    assert agenda.begin(FETCH, 0.0) == "[1/3] "
    agenda.end(60.0)
    assert agenda.begin(BUILD, 60.0) == "[2/3] "
    assert agenda.left(120.0) == pytest.approx(180.0)
    assert agenda.share(150.0) == pytest.approx((60 + 90) / 300)


def test_a_busy_machine_is_expected_to_stay_busy() -> None:
    agenda = RoundQueue(ALL)
    agenda.begin(FETCH, 0.0)
    agenda.end(540.0)  # with the 60 s that count as usual: five times as long as usual
    assert agenda.left(540.0) == pytest.approx(5 * 240.0)


def test_a_step_that_takes_too_long_says_so_before_it_ends() -> None:
    agenda = RoundQueue(ALL)
    agenda.begin(FETCH, 0.0)
    lefts = [agenda.left(now) for now in (60.0, 120.0, 300.0)]
    assert lefts == sorted(lefts)
    assert agenda.share(10_000.0) < 60 / 300


def test_a_step_that_another_process_has_done_is_passed_over() -> None:
    agenda = RoundQueue(ALL)
    assert agenda.begin(UNPACK, 0.0) == "[3/3] "
    assert agenda.done == 2


def test_a_step_that_is_not_listed_has_no_place() -> None:
    agenda = RoundQueue(ALL)
    assert agenda.begin(Planned("other", 5), 0.0) == ""
    assert agenda.done == 0


def test_a_log_has_the_list_and_two_lines_a_step(log: io.StringIO) -> None:
    with progress.agenda((FETCH, UNPACK)):
        for planned in (FETCH, UNPACK):
            with progress.step(planned), progress.bar("parts", 4) as advance:
                for done in range(5):
                    advance(done, "")
    lines = log.getvalue().splitlines()
    assert lines[:3] == [
        "2 steps, about 2 min in all:",
        "    1.   60 s  fetch",
        "    2.   60 s  unpack",
    ]
    assert [line.split(" in ")[0] for line in lines[3:]] == [
        "  [1/2] fetch ... (about 60 s)",
        "    parts: 2 of 4",
        "    parts: 4 of 4",
        "  [1/2] fetch: done",
        "  [2/2] unpack ... (about 60 s)",
        "    parts: 2 of 4",
        "    parts: 4 of 4",
        "  [2/2] unpack: done",
        "all of it took 0 s",
    ]
    assert "left" in lines[6]
    assert "left" not in lines[10]


def test_nothing_is_listed_where_nothing_is_to_be_done_or_a_list_is_shown(log: io.StringIO) -> None:
    with progress.agenda(()), progress.agenda((FETCH,)), progress.agenda((FETCH, BUILD)):
        pass
    assert log.getvalue().splitlines()[:2] == [
        "1 step, about 60 s in all:",
        "    1.   60 s  fetch",
    ]


def test_a_step_that_fails_leaves_the_list_in_order(log: io.StringIO) -> None:
    with progress.agenda((FETCH, BUILD)):
        with pytest.raises(OSError, match="no disk"), progress.step(FETCH):
            raise OSError("no disk")
        with progress.step(BUILD):
            pass
    said = log.getvalue()
    assert "[1/2] fetch: failed" in said
    assert "[2/2] build: done" in said

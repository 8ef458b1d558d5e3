"""Logs in the forms of many frameworks: what is read is right or not known, and never wrong."""

from collections import Counter

import pytest

from kfext.core.progress.course import Course
from kfext.core.progress.lines import read_line
from tests.unit.core.progress.corpus import CASES, Case

RIGHT, NOT_KNOWN, WRONG = "right", "not known", "wrong"


def read(case: Case) -> Course:
    course = Course(30.0)
    for number, raw in enumerate(case.lines):
        line = read_line(raw)
        if line is not None:
            course.take(line, at=float(number), now=1e9)
    return course


def judged(case: Case) -> dict[str, str]:
    """How each part is read: a wrong position, end, measure or restart is wrong."""
    course = read(case)
    found = course.progress()
    measure = next(
        (name for name in case.measures or () if found.metric.endswith(name.rpartition(" ")[2])),
        None,
    )
    value = case.measures[measure] if case.measures and measure else None
    return {
        "position": _judged(found.step, case.position),
        "total": _judged(found.total, case.total),
        "measure": (
            _judged(found.metric or None, None if case.measures is None else measure)
            if found.metric == "" or case.measures is None
            else (RIGHT if measure and value == found.value else WRONG)
        ),
        "restarts": RIGHT if course.restarts == case.restarts else WRONG,
    }


def _judged(found: object, want: object) -> str:
    if found == want:
        return RIGHT
    return NOT_KNOWN if found is None else WRONG


def verdict(case: Case) -> str:
    parts = set(judged(case).values())
    return WRONG if WRONG in parts else NOT_KNOWN if NOT_KNOWN in parts else RIGHT


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nothing_is_read_wrong(case: Case) -> None:
    assert WRONG not in judged(case).values(), (judged(case), read(case).progress())


def test_most_of_the_logs_are_read_right() -> None:
    counts = Counter(verdict(case) for case in CASES)
    assert counts[WRONG] == 0
    assert counts[RIGHT] >= len(CASES) * 0.95, counts

"""Which jobs are not to meet on a GPU again, by what their states say."""

from collections.abc import Callable

import pytest

from kfext.model.job_state import MOST_APART
from kfext.state.apart import Apart

NOTES: dict[str, tuple[list[Callable[[Apart], None]], dict[str, set[str]]]] = {
    "nobody had to leave": ([], {"low": set(), "high": set()}),
    "it holds for both": (
        [lambda one: one.note("low", ("high",))],
        {"low": {"high"}, "high": {"low"}, "other": set()},
    ),
    "one left beside two, and two beside one": (
        [lambda one: one.note("low", ("high", "first")), lambda one: one.note("b", ("high",))],
        {"low": {"high", "first"}, "high": {"low", "b"}, "first": {"low"}},
    ),
    "its state has forgotten one": (
        [lambda one: one.note("low", ("a", "b")), lambda one: one.note("low", ("b",))],
        {"low": {"b"}, "a": set(), "b": {"low"}},
    ),
    "the one that left is gone": (
        [lambda one: one.note("low", ("high",)), lambda one: one.forget("low")],
        {"low": set(), "high": set()},
    ),
    "the one beside which it was is gone": (
        [
            lambda one: one.note("low", ("high",)),
            lambda one: one.forget("high"),
            lambda one: one.note("low", ("high", "next")),
        ],
        {"high": set(), "next": {"low"}},
    ),
}


@pytest.mark.parametrize(("given", "want"), NOTES.values(), ids=NOTES)
def test_who_is_kept_from_whom(
    given: list[Callable[[Apart], None]], want: dict[str, set[str]]
) -> None:
    apart = Apart()
    for happens in given:
        happens(apart)
    assert {uid: apart.of(uid) for uid in want} == want


FULL = tuple(f"high-{number}" for number in range(MOST_APART))


def test_a_job_that_left_as_many_as_are_remembered_is_placed_beside_no_job_any_more() -> None:
    apart = Apart()
    apart.note("low", FULL[1:])
    assert (apart.alone("low"), apart.of("other")) == (False, set())
    apart.note("low", FULL)
    assert (apart.alone("low"), apart.of("other")) == (True, {"low"})
    apart.forget("low")
    assert (apart.alone("low"), apart.of("other")) == (False, set())


def test_nothing_stays_of_jobs_that_are_gone() -> None:
    apart = Apart()
    for number in range(100):
        apart.note(f"low-{number}", ("high", f"high-{number}"))
    for number in range(100):
        apart.forget(f"low-{number}")
    assert (len(apart._left), len(apart._leavers)) == (0, 0)

"""The words of messages: numbers, times and lists of names."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.words import age, clock, cpus, has, listed, listed_with_others, pods

NUMBERS: dict[str, tuple[int, str]] = {
    "none": (0, "0 pods"),
    "one": (1, "1 pod"),
    "several": (12, "12 pods"),
}


@pytest.mark.parametrize(("number", "want"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_of_pods(number: int, want: str) -> None:
    assert pods(number) == want


AMOUNTS: dict[str, tuple[int, str]] = {
    "one": (1000, "1 CPU"),
    "several": (4000, "4 CPUs"),
    "a fraction of a CPU": (300, "0.3 CPUs"),
}


@pytest.mark.parametrize(("millicores", "want"), AMOUNTS.values(), ids=AMOUNTS)
def test_an_amount_of_cpu(millicores: int, want: str) -> None:
    assert cpus(millicores) == want


TIMES: dict[str, tuple[float, str]] = {
    "the start of the epoch": (0.0, "00:00:00 UTC"),
    "a time of day": (86400.0 + 3661.9, "01:01:01 UTC"),
    "a time before the epoch counts as its start": (-5.0, "00:00:00 UTC"),
    "a time that no calendar has": (1e300, "07:06:40 UTC"),
    "never": (math.inf, "07:06:40 UTC"),
}


@pytest.mark.parametrize(("seconds", "want"), TIMES.values(), ids=TIMES)
def test_a_time_of_day(seconds: float, want: str) -> None:
    assert clock(seconds) == want


LISTS: dict[str, tuple[list[str], str]] = {
    "no name": ([], ""),
    "one": (["a"], "a"),
    "two": (["a", "b"], "a and b"),
    "three": (["a", "b", "c"], "a, b and c"),
    "four": (["a", "b", "c", "d"], "a, b and 2 more nodes"),
    "many": ([f"n{number}" for number in range(90)], "n0, n1 and 88 more nodes"),
}


@pytest.mark.parametrize(("names", "want"), LISTS.values(), ids=LISTS)
def test_a_list_of_names(names: list[str], want: str) -> None:
    assert listed(names, noun="nodes") == want


def test_the_message_counts_the_omitted_names() -> None:
    assert listed("abcd", noun="policies").endswith("2 more policies")


@given(st.lists(st.from_regex(r"[a-z]{1,9}-[0-9]", fullmatch=True), unique=True))
def test_at_most_three_names_are_listed_and_the_others_counted(names: list[str]) -> None:
    words = listed(names, noun="nodes").replace(",", "").split()
    shown = [word for word in words if word in names]
    others = [int(word) for word in words if word.isdecimal()]
    assert len(shown) <= 3
    assert shown == names[: len(shown)]
    assert len(shown) + sum(others) == len(names)


OTHERS: dict[str, tuple[list[str], int, str, str]] = {
    "no job": ([], 0, "", "has"),
    "two names": (["a", "b"], 0, "a and b", "have"),
    "a job of another namespace": ([], 1, "1 job of another namespace", "has"),
    "ten of other namespaces": ([], 10, "10 jobs of other namespaces", "have"),
    "a name and two others": (["a"], 2, "a and 2 jobs of other namespaces", "have"),
    "a single name": (["a"], 0, "a", "has"),
}


@pytest.mark.parametrize(("jobs", "others", "want", "form"), OTHERS.values(), ids=OTHERS)
def test_jobs_that_must_not_be_named_are_counted(
    jobs: list[str], others: int, want: str, form: str
) -> None:
    assert listed_with_others(jobs, others=others) == want
    assert has(want) == form


AGES = {0: "0s", 59.9: "59s", 119: "119s", 120: "2m", 7199: "119m", 7200: "2h", 172_800: "2d"}


@pytest.mark.parametrize(("seconds", "want"), AGES.items())
def test_a_duration_is_printed_as_by_kubectl(seconds: float, want: str) -> None:
    assert age(seconds) == want

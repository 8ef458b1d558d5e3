"""The annotations and requests that are kept; counting costs no more for larger objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.model.bounds import (
    LONGEST_SETTING,
    MAX_ANNOTATION_BYTES,
    MAX_ANNOTATIONS,
    MAX_PODS,
    MAX_REPLICA_TYPES,
    MAX_RESOURCES,
    bounded,
    bounded_resources,
    bytes_of,
    count_values,
    job_excess,
    kfext_annotations,
    plan_excess,
    pods_excess,
)
from tests.unit.objects import json_values

UNKNOWN_SETTINGS = {f"kfext.dev/{number:05}": "" for number in range(9_000)}


class Unread(list[Any]):
    """A list with a length that must not be read."""

    def __iter__(self) -> Any:
        raise AssertionError("it was read")


VALUES: dict[str, tuple[Any, int]] = {
    "a number": (7, 0),
    "a list counts its values": ([1, 2, 3], 3),
    "values inside values": ({"a": [1, 2], "b": {"c": None}}, 5),
    "a short text is one value": (["x" * 63], 1),
    "a long text counts as several": (["x" * 640], 11),
    "a long key counts as more": ({"k" * 128: 1}, 3),
}


@pytest.mark.parametrize(("value", "want"), VALUES.values(), ids=VALUES)
def test_the_number_of_values_in_a_value(value: Any, want: int) -> None:
    assert count_values(value, most=100) == want


@given(json_values, st.integers(1, 20))
def test_counting_ends_beyond_the_bound_and_is_exact_within(value: Any, most: int) -> None:
    exact = count_values(value, most=10**9)
    result = count_values(value, most=most)
    assert (result == exact) if exact <= most else (result > most)


def test_a_text_that_is_too_long_is_not_read() -> None:
    assert count_values(Unread([0] * 101), most=100) == 101
    assert count_values([Unread([0] * 60), Unread([0] * 60)], most=10) > 10


def test_only_annotations_of_kfext_are_kept_and_too_long_settings_are_cut() -> None:
    written = {"mine": "1", names.METRICS: "x" * 5000, names.PLAN: "p" * 5000, 3: "4"}
    result = kfext_annotations(written)
    assert result == {names.METRICS: "x" * (LONGEST_SETTING + 1), names.PLAN: "p" * 5000}


def test_of_too_many_annotations_only_the_marks_are_kept() -> None:
    marks = {names.HELD: "true", names.COLOCATION: "required"}
    settings = {**marks, names.NETWORK: "host"}
    assert bounded(settings) == settings
    assert bounded({**UNKNOWN_SETTINGS, **settings}) == marks
    result = kfext_annotations({**UNKNOWN_SETTINGS, **settings, names.PLAN: "{}"})
    assert job_excess({}, result) == f"more than {MAX_ANNOTATIONS} annotations of kfext"
    assert bounded(result) == {**marks, names.PLAN: "{}"}


class CountedReads(dict[Any, Any]):
    """A mapping that counts the reads of its values."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        self.read += 1
        return super().__getitem__(key)


def test_of_too_many_annotations_only_the_first_and_the_marks_are_read() -> None:
    written = CountedReads({**UNKNOWN_SETTINGS, names.HELD: "true"})
    assert names.HELD in kfext_annotations(written)
    assert written.read == MAX_ANNOTATIONS + 2  # one too many, and the mark


def test_a_job_with_too_many_replica_types_exceeds_a_bound() -> None:
    specs: dict[str, Any] = {f"worker{number}": {} for number in range(MAX_REPLICA_TYPES + 1)}
    assert job_excess(specs, {}) == "more than 16 replica types"
    specs.popitem()
    assert job_excess(specs, {}) == ""


@pytest.mark.parametrize(("pods", "exceeds"), [(MAX_PODS, False), (2**31 - 1, True)])
def test_whether_the_number_of_pods_exceeds_the_bound(pods: int, *, exceeds: bool) -> None:
    assert bool(pods_excess(pods)) is exceeds


def test_requests_with_too_many_names_keep_the_native_resources() -> None:
    invented = {f"x.y/{number:05}": 1 for number in range(30_000)}
    result = bounded_resources({**invented, "cpu": 5, "memory": 6, "pods": 1})
    assert len(result) == MAX_RESOURCES
    assert {"cpu": 5, "memory": 6, "pods": 1}.items() <= result.items()
    assert bounded_resources({"cpu": 5}) == {"cpu": 5}


def test_the_size_of_annotations_is_the_size_that_the_api_server_counts() -> None:
    # The plan and the value that is not a string do not count.
    assert bytes_of({"ä": "öö", "b": "", names.PLAN: "x" * 99, "c": 3}) == 2 + 4 + 1


PLAN_SIZES = {
    "a small plan": (500, 0, True),
    "a plan as large as all annotations together may be": (MAX_ANNOTATION_BYTES, 0, False),
    "a plan beside large annotations of the user": (50_000, 210_000, False),
    "annotations that leave no space": (10, MAX_ANNOTATION_BYTES, False),
}


@pytest.mark.parametrize(("size", "beside", "fits"), PLAN_SIZES.values(), ids=PLAN_SIZES)
def test_a_plan_must_fit_into_the_annotations(size: int, beside: int, *, fits: bool) -> None:
    assert (plan_excess(size, other_bytes=beside) == "") is fits

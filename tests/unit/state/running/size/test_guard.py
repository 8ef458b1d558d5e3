"""The choice of the donors of a waiting job.

Names with D3 or another code check the statements of tests/statements.md.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.state.running.size.guard import (
    MAX_CALLS,
    MAX_CONSIDERED,
    MAX_DONORS,
    Donor,
    Fits,
    donors_for,
    lowest_size,
)
from kfext.state.running.size.scale import Sizes


def donor(
    uid: str,
    now: int = 4,
    *,
    lowest: int = 1,
    requested: int = 4,
    remaining: float = 100.0,
    priority: int = 0,
    missed: int = 0,
    no_checkpoint: bool = False,
) -> Donor:
    return Donor(uid, priority, now, lowest, requested, remaining, (missed, no_checkpoint))


class Capacity:
    """The capacity that donors release; the waiting job fits with `needed` units.

    `workers`: the units that each worker of a job releases on useful nodes, by uid, by default 1.
    """

    def __init__(
        self, donors: list[Donor], needed: int, workers: Mapping[str, int] | None = None
    ) -> None:
        self.now = {donor.uid: donor.now for donor in donors}
        self.needed, self.workers, self.calls = needed, workers or {}, 0

    def fits(self, sizes: Mapping[str, int]) -> bool:
        self.calls += 1
        released = sum(
            (self.now[uid] - size) * self.workers.get(uid, 1) for uid, size in sizes.items()
        )
        return released >= self.needed


class Choice(NamedTuple):
    """The donors, the needed units, and the chosen sizes by uid.

    `workers`: the units that each worker of a job releases, by uid; None means 1 for all.
    """

    donors: list[Donor]
    needed: int
    want: dict[str, int] | None
    workers: dict[str, int] | None = None


CHOICES: dict[str, Choice] = {
    "a job releases the needed workers": Choice([donor("a")], 2, {"a": 2}),
    "no job is a donor if the waiting job fits already": Choice([donor("a")], 0, {}),
    "the job with the longest remaining time is first": Choice(
        [donor("a", 3), donor("b", 4, remaining=200.0)], 1, {"b": 3}
    ),
    "a job is scaled down to its lowest size before the next is a donor": Choice(
        [donor("a", 3), donor("b", 4, remaining=200.0)], 4, {"a": 2, "b": 1}
    ),
    "workers beyond a requested size are released before workers within it": Choice(
        [donor("a", 4, remaining=900.0), donor("b", 6)], 2, {"b": 4}
    ),
    "the job with more workers of two with equal remaining time": Choice(
        [donor("a", 2, requested=2), donor("b", 5, requested=5)], 1, {"b": 4}
    ),
    "then the first by uid": Choice([donor("b"), donor("a")], 1, {"a": 3}),
    "a job that did not save in time is last": Choice(
        [donor("a", missed=1, remaining=900.0), donor("b", 3)], 3, {"b": 1, "a": 3}
    ),
    "a job without a checkpoint is after jobs with one, before jobs that missed one": Choice(
        [
            *(donor("a", missed=1, remaining=900.0), donor("c", 3)),
            donor("b", remaining=500.0, no_checkpoint=True),
        ],
        6,
        {"c": 1, "b": 1, "a": 3},
    ),
    "no job is a donor in vain": Choice([donor("a"), donor("b")], 7, None),
    "no job goes below its lowest size": Choice([donor("a"), donor("b")], 6, {"a": 1, "b": 1}),
    "jobs on useless nodes are no donors": Choice(
        [donor("a"), donor("b"), donor("c", 3)], 2, {"c": 1}, {"a": 0, "b": 0}
    ),
    "no more workers are released than needed if a worker releases four units": Choice(
        [donor("a", remaining=200.0), donor("b", 3)], 4, {"b": 2}, {"b": 4}
    ),
    "no job at its lowest size is a donor": Choice(
        [donor("a", 2, lowest=2, requested=2), donor("b", 3, lowest=3)], 1, None
    ),
    "no donor": Choice([], 1, None),
}


@pytest.mark.parametrize(("donors", "needed", "want", "workers"), CHOICES.values(), ids=CHOICES)
def test_D3_the_donors_of_a_waiting_job(
    donors: list[Donor], needed: int, workers: dict[str, int] | None, want: dict[str, int] | None
) -> None:
    assert donors_for(donors, Capacity(donors, needed, workers).fits, priority=0) == want


def test_D3_no_job_gives_for_a_job_of_lower_priority() -> None:
    donors = [donor("high", 8, priority=2), donor("same", 3, priority=1), donor("low", 3)]
    assert donors_for(donors, Capacity(donors, 4).fits, priority=1) == {"low": 1, "same": 1}
    assert donors_for(donors, Capacity(donors, 5).fits, priority=1) is None


def test_D3_the_servers_of_the_waiting_job_need_a_node_too() -> None:
    """Two workers with 2 CPUs each and parameter servers with 1, on nodes with 4 CPUs."""
    donors = [donor("a", 4), donor("b", 4)]

    def fits(sizes: Mapping[str, int], *, servers: int) -> bool:
        free = sorted(4 - sizes.get(uid, 4) for uid in ("a", "b"))
        workers = sum(cpus // 2 for cpus in free)
        return workers >= 2 and sum(free) >= 4 + servers

    def with_servers(servers: int) -> Mapping[str, int] | None:
        return donors_for(donors, lambda sizes: fits(sizes, servers=servers), priority=0)

    assert with_servers(0) == {"a": 2, "b": 2}
    assert with_servers(1) == {"a": 1, "b": 2}
    assert with_servers(3) is None


def test_the_donors_are_found_among_many_jobs() -> None:
    donors = [donor(f"{number:03}", 5, requested=5) for number in range(MAX_CONSIDERED)]
    useful = {"017": 1, "090": 1, "127": 1}
    capacity = Capacity(
        donors, 9, dict.fromkeys((candidate.uid for candidate in donors), 0) | useful
    )
    assert donors_for(donors, capacity.fits, priority=0) == {"017": 2, "090": 2, "127": 2}
    assert capacity.calls <= MAX_CALLS


def test_a_search_among_many_jobs_ends_after_a_bounded_number_of_calls() -> None:
    donors = [donor(f"{number:03}", 5, requested=5) for number in range(MAX_CONSIDERED)]
    useful = dict.fromkeys((candidate.uid for candidate in donors[::8]), 1)
    capacity = Capacity(
        donors, 3 * len(useful), dict.fromkeys((candidate.uid for candidate in donors), 0) | useful
    )
    result = donors_for(donors, capacity.fits, priority=0)
    assert capacity.calls == MAX_CALLS
    assert result is None or capacity.fits(result)


def test_only_a_bounded_number_of_jobs_gives() -> None:
    def chosen(number: int) -> Mapping[str, int] | None:
        """Return the chosen donors if all of `number` donors are needed."""
        donors = [donor(f"{index:03}", 2, requested=2) for index in range(number)]
        return donors_for(donors, Capacity(donors, number).fits, priority=0)

    assert len(chosen(MAX_DONORS) or {}) == MAX_DONORS
    assert chosen(MAX_DONORS + 1) is None


def test_of_too_many_jobs_only_the_jobs_with_most_remaining_time_are_considered() -> None:
    donors = [donor(f"{index:03}", 3) for index in range(MAX_CONSIDERED)]
    donors += [donor("long", remaining=200.0), donor("short", remaining=50.0)]
    useless = dict.fromkeys((candidate.uid for candidate in donors), 0)
    long, short = (Capacity(donors, 1, useless | {uid: 1}) for uid in ("long", "short"))
    assert donors_for(donors, long.fits, priority=0) == {"long": 3}
    assert donors_for(donors, short.fits, priority=0) is None


@st.composite
def all_donors(draw: st.DrawFn, most: int = 12) -> list[Donor]:
    donors = []
    for number in range(draw(st.integers(0, most))):
        least = draw(st.integers(1, 4))
        requested = least + draw(st.integers(0, 6))
        now = draw(st.integers(1, requested + 4))
        priority, remaining = draw(st.integers(0, 2)), draw(st.sampled_from([10.0, 60.0, 400.0]))
        bounds: dict[str, Any] = {"lowest": least, "requested": requested, "priority": priority}
        donors.append(donor(f"u{number}", now, remaining=remaining, **bounds))
    return donors


UNITS = st.lists(st.integers(0, 3), min_size=12, max_size=12)
"""The units that a worker of each donor releases on useful nodes."""


def capacity_of(donors: list[Donor], needed: int, units: list[int]) -> Capacity:
    return Capacity(donors, needed, {f"u{number}": value for number, value in enumerate(units)})


@given(all_donors(), st.integers(0, 60), UNITS)
def test_the_released_workers_suffice_and_each_is_necessary(
    donors: list[Donor], needed: int, units: list[int]
) -> None:
    capacity = capacity_of(donors, needed, units)
    result = donors_for(donors, capacity.fits, priority=1)
    calls, by_uid = capacity.calls, {donor.uid: donor for donor in donors}
    every = {donor.uid: min(donor.now, donor.lowest) for donor in donors if donor.priority <= 1}
    assert calls <= MAX_CALLS
    if result is None:
        assert not capacity.fits(every)
        return
    assert capacity.fits(result)
    for uid, size in result.items():
        assert by_uid[uid].lowest <= size < by_uid[uid].now
        assert by_uid[uid].priority <= 1
        assert not capacity.fits({**result, uid: size + 1})


@given(all_donors(), st.integers(0, 60), st.integers(1, 5), UNITS)
def test_a_job_that_needs_more_never_fits_if_a_smaller_job_does_not(
    donors: list[Donor], needed: int, more: int, units: list[int]
) -> None:
    if donors_for(donors, capacity_of(donors, needed, units).fits, priority=1) is None:
        assert (
            donors_for(donors, capacity_of(donors, needed + more, units).fits, priority=1) is None
        )


@given(all_donors(), st.integers(1, 60))
def test_of_equal_workers_the_workers_beyond_a_requested_size_are_released_first(
    donors: list[Donor], needed: int
) -> None:
    result = donors_for(donors, Capacity(donors, needed).fits, priority=2) or {}
    by_uid = {donor.uid: donor for donor in donors}
    if any(size < min(by_uid[uid].requested, by_uid[uid].now) for uid, size in result.items()):
        for donor in donors:
            kept = result.get(donor.uid, donor.now)
            assert kept <= max(donor.requested, donor.lowest)


SIZES = Sizes(now=6, least=1, most=8, requested=4)


class Question(NamedTuple):
    """`length`, `most`: the expected and the longest possible duration of the waiting job.

    `lowest`: the expected lowest size of a donor with 100 s remaining. `sizes`: its sizes.
    `rested`: whether its last change is long ago.
    """

    length: float
    most: float
    lowest: int
    sizes: Sizes = SIZES
    rested: bool = True


LOWEST: dict[str, Question] = {
    "its requested size for a longer job": Question(500.0, 500.0, 4),
    "its minimum for a job of half its remaining time": Question(50.0, 50.0, 1),
    "its requested size for a job of more than half of it": Question(51.0, 51.0, 4),
    "its requested size soon after its last change": Question(10.0, 10.0, 4, rested=False),
    "half of its workers for a job of unknown length": Question(50.0, math.inf, 3),
    "half of its workers for a job with a late deadline": Question(50.0, 51.0, 3),
    "its requested size if half of its workers are more": Question(
        50.0, math.inf, 2, Sizes(now=5, least=1, most=8, requested=2)
    ),
    "its present size below its requested size": Question(
        500.0, 500.0, 3, Sizes(now=3, least=1, most=8, requested=4)
    ),
}


@pytest.mark.parametrize("case", LOWEST.values(), ids=LOWEST)
def test_the_lowest_size_of_a_donor_is(case: Question) -> None:
    sizes, length, most = case.sizes, case.length, case.most
    result = lowest_size(sizes, remaining=100.0, length=length, most=most, rested=case.rested)
    assert result == case.lowest


@given(all_donors(), st.integers(0, 30), UNITS, st.randoms())
def test_the_order_in_which_jobs_are_listed_does_not_matter(
    donors: list[Donor], needed: int, units: list[int], random: Any
) -> None:
    shuffled = list(donors)
    random.shuffle(shuffled)
    fits: Fits = capacity_of(donors, needed, units).fits
    assert donors_for(donors, fits, priority=1) == donors_for(shuffled, fits, priority=1)


@given(all_donors(), st.randoms())
def test_searches_are_bounded_and_their_result_has_fitted(donors: list[Donor], random: Any) -> None:
    fitting: list[Mapping[str, int]] = []
    answers: list[bool] = []

    def fits(sizes: Mapping[str, int]) -> bool:
        answers.append(random.random() < 0.7)
        if answers[-1]:
            fitting.append(dict(sizes))
        return answers[-1]

    result = donors_for(donors, fits, priority=2)
    assert len(answers) <= MAX_CALLS
    assert result is None or result in fitting

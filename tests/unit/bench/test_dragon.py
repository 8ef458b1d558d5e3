"""DRAGON as published: its rules, computed by hand from its published code."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from e2e.bench.model.dragon import (
    Action,
    Dragon,
    Free,
    Grow,
    Job,
    Passes,
    Places,
    Running,
    Shrink,
    Start,
    schedule,
)

ONE = (100, 10)


def nodes(*millicores: int) -> Free:
    return {f"node-{letter}": (cpu, 1000) for letter, cpu in zip("abcd", millicores, strict=False)}


def job(name: str, *, at: float = 0.0, servers: int = 0, workers: tuple[int, int, int]) -> Job:
    least, asked, most = workers
    return Job(name, at, servers, ONE, ONE, least, asked, most)


def running(job_: Job, workers: str, servers: str = "") -> Running:
    """Return a running job. `workers`, `servers`: a letter for the node of each pod."""
    places = [
        {index: f"node-{letter}" for index, letter in enumerate(letters)}
        for letters in (servers, workers)
    ]
    return Running(job_, *places)


def after(
    now: float, free: Free, *, waiting: Sequence[Job] = (), runs: Sequence[Running] = ()
) -> list[Action]:
    """Return the actions of a pass `now` seconds after the start of the controller."""
    return Dragon(began=0).run(free, waiting=waiting, running=runs, now=now)


@pytest.mark.parametrize(
    ("free", "servers", "workers", "expected"),
    [
        pytest.param(
            nodes(100, 300, 400), 1, 2, ("b", "bb"), id="the first node that holds all of it"
        ),
        # No node holds three: b and c hold two workers, and b comes first.
        pytest.param(
            nodes(100, 200, 200),
            0,
            3,
            ("", "bba"),
            id="else the node with the largest capacity comes first",
        ),
        pytest.param(
            nodes(100, 200, 100), 1, 2, ("a", "bb"), id="servers are packed before workers"
        ),
        pytest.param(nodes(100, 0, 100), 0, 3, ("", "ac"), id="fewer if there is no more capacity"),
        # a holds a server and a worker, b two workers beside no server: a is not the best.
        pytest.param(
            nodes(200, 300), 1, 3, ("b", "bba"), id="the most of one group is counted in order"
        ),
        pytest.param({"node-a": (900, 25)}, 0, 3, ("", "aa"), id="memory counts as well"),
    ],
)
def test_a_job_goes_to_one_node_or_else_fills_the_best_node_first(
    free: Free, servers: int, workers: int, expected: tuple[str, str]
) -> None:
    before = dict(free)
    named = Places(*(tuple(f"node-{letter}" for letter in letters) for letters in expected))
    assert schedule(free, [ONE] * servers, [ONE] * workers) == named
    assert free == before


OLD, NEW = (job(name, workers=(1, 3, 3)) for name in ("old", "new"))
FULL = [running(OLD, "aab"), running(NEW, "bcc")]
"""Six pods on three nodes of two each."""
GANG = job("gang", at=0.0, workers=(2, 2, 2))
SINGLE = replace(GANG, least=1, asked=1, most=1)


def test_a_pass_admits_only_the_first_job_that_fits() -> None:
    big, small, late = (
        job("big", workers=(4, 4, 4)),
        job("small", workers=(1, 1, 1)),
        job("late", workers=(1, 1, 1)),
    )
    result = after(10, nodes(200, 100), waiting=[big, small, late])
    assert result == [Start(small, (), ("node-a",))]


def test_a_job_starts_with_fewer_workers_than_requested_but_with_all_servers() -> None:
    elastic = job("elastic", servers=1, workers=(1, 3, 5))
    assert after(0, nodes(100, 200), waiting=[elastic]) == [
        Start(elastic, ("node-a",), ("node-b", "node-b"))
    ]
    assert after(0, nodes(100), waiting=[elastic]) == []
    assert after(0, nodes(0), waiting=[replace(elastic, servers=0)]) == []


def test_workers_are_removed_once_the_head_of_the_queue_has_waited_for_30_s() -> None:
    assert after(29.9, nodes(0, 0, 0), waiting=[GANG], runs=FULL) == []
    assert after(30, nodes(0, 0, 0), waiting=[GANG], runs=FULL) == [
        Shrink("old", frozenset({1, 2}))
    ]


def test_workers_are_removed_only_for_the_head_of_the_queue() -> None:
    young = replace(GANG, name="young", submitted=20.0)
    assert after(35, nodes(0, 0, 0), waiting=[young, GANG], runs=FULL) == []


def test_the_longest_running_job_loses_workers_first_whatever_its_size_a_fault() -> None:
    rich = running(job("rich", workers=(1, 5, 5)), "abcab")
    poor = running(job("poor", workers=(1, 2, 2)), "cc")
    assert after(30, nodes(0, 0, 0), waiting=[SINGLE], runs=[poor, rich]) == [
        Shrink("poor", frozenset({1}))
    ]


def test_no_job_is_shrunk_below_its_fewest_workers() -> None:
    bigger = replace(GANG, least=3, asked=3, most=3)
    assert after(30, nodes(0, 0, 0), waiting=[bigger], runs=FULL) == [
        Shrink("old", frozenset({1, 2})),
        Shrink("new", frozenset({2})),
    ]
    runs = [running(job("any", workers=(3, 4, 4)), "abab")]
    assert after(30, nodes(0, 0), waiting=[SINGLE], runs=runs) == [Shrink("any", frozenset({2}))]
    assert after(30, nodes(0, 0), waiting=[GANG], runs=runs) == []


def test_the_first_worker_is_never_removed_even_if_the_job_may_have_none() -> None:
    runs = [running(job("any", workers=(0, 2, 2)), "ab")]
    assert after(30, nodes(0, 0), waiting=[SINGLE], runs=runs) == [Shrink("any", frozenset({1}))]
    assert after(30, nodes(0, 0), waiting=[GANG], runs=runs) == []


def test_of_the_workers_on_a_node_the_last_are_removed_first() -> None:
    runs = [running(job("any", workers=(1, 4, 4)), "aaaa")]
    assert after(30, nodes(0), waiting=[GANG], runs=runs) == [Shrink("any", frozenset({3, 2}))]


def test_workers_on_the_node_of_the_server_are_removed_last() -> None:
    trained = running(job("trained", servers=1, workers=(1, 3, 3)), "aba", servers="a")
    assert after(30, nodes(0, 0), waiting=[SINGLE], runs=[trained]) == [
        Shrink("trained", frozenset({1}))
    ]
    assert after(30, nodes(0, 0), waiting=[GANG], runs=[trained]) == [
        Shrink("trained", frozenset({1, 2}))
    ]


def test_no_capacity_is_freed_for_the_server_of_the_head_a_fault() -> None:
    needs_three = job("trained", servers=1, workers=(2, 2, 2))
    # The freed capacity fits two pods: the workers, but not the server.
    result = after(30, nodes(0, 0, 0), waiting=[needs_three], runs=FULL)
    assert result == [Shrink("old", frozenset({1, 2}))]


def test_no_worker_is_removed_if_the_heads_minimum_already_fits() -> None:
    needs_three = job("trained", servers=1, workers=(2, 2, 2))
    # There is no capacity for the server, so the job starves: the same fault.
    assert after(30, nodes(100, 100, 0), waiting=[needs_three], runs=FULL) == []


def test_if_no_capacity_can_be_freed_for_the_head_no_other_job_is_admitted() -> None:
    huge = job("huge", workers=(9, 9, 9))
    small = job("small", workers=(1, 1, 1))
    assert after(29, nodes(100), waiting=[huge, small]) == [Start(small, (), ("node-a",))]
    assert after(30, nodes(100), waiting=[huge, small]) == []


def test_removed_workers_are_free_only_later_so_a_younger_job_may_start_a_fault() -> None:
    small = job("small", workers=(1, 1, 1))
    runs = [running(OLD, "aab")]
    assert after(30, nodes(0, 100), waiting=[GANG, small], runs=runs) == [
        Shrink("old", frozenset({1})),
        Start(small, (), ("node-b",)),
    ]


def test_after_a_minute_without_action_running_jobs_fill_the_nodes_one_by_one() -> None:
    first, second = (
        job(name, workers=(1, 1, most)) for name, most in (("first", 2), ("second", 9))
    )
    runs = [running(first, "a"), running(second, "a")]
    assert after(59.9, nodes(200, 100), runs=runs) == []
    assert after(60, nodes(200, 100), runs=runs) == [
        Grow("first", ("node-a",)),
        Grow("second", ("node-a", "node-b")),
    ]
    assert after(60, nodes(0, 0), runs=runs) == []


def test_a_job_gets_more_than_its_maximum_if_the_first_node_is_full_a_fault() -> None:
    runs = [running(job("one", workers=(1, 1, 3)), "a")]
    assert after(60, nodes(200, 200), runs=runs) == [Grow("one", ("node-a", "node-a"))]
    assert after(60, nodes(100, 200), runs=runs) == [Grow("one", ("node-a", "node-b", "node-b"))]


def test_a_job_grows_even_if_that_does_not_help_and_while_a_job_waits_a_fault() -> None:
    fewest = replace(GANG, submitted=40.0)
    result = after(60, nodes(100), waiting=[fewest], runs=[running(replace(OLD, most=9), "aab")])
    assert result == [Grow("old", ("node-a",))]


def test_nothing_grows_while_the_head_of_the_queue_starves() -> None:
    huge = job("huge", workers=(9, 9, 9))
    runs = [running(job("one", workers=(1, 1, 3)), "a")]
    dragon = Dragon(began=0)
    for now in (60, 120):
        assert dragon.run(nodes(100), waiting=[huge], running=runs, now=now) == []
    assert dragon.run(nodes(100), waiting=[], running=runs, now=179) == []
    assert dragon.run(nodes(100), waiting=[], running=runs, now=180) != []


def test_growth_is_tried_each_minute_and_postponed_by_each_action() -> None:
    dragon, runs = Dragon(began=0), [running(OLD, "a")]

    def at(now: float, free: Free, *waiting: Job) -> list[Action]:
        return dragon.run(free, waiting=waiting, running=runs, now=now)

    assert at(60, nodes(0)) == []  # nothing can grow, but the attempt counts as an action
    assert at(100, nodes(100)) == []
    assert at(110, nodes(300), replace(GANG, submitted=105))
    assert at(120, nodes(100)) == []
    assert at(170, nodes(100)) == [Grow("old", ("node-a",))]


def test_a_pass_is_made_at_each_change_and_each_15_s() -> None:
    passes = Passes()
    looks = [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (16, "b"), (17, "b"), (18, "b")]
    assert [now for now, seen in looks if passes.due(seen, now=now)] == [0, 2, 17]

"""The benchmark with timed waits in place of compute: its jobs, loads, links and tables."""

from pathlib import Path
from typing import Any

import pytest

from e2e.bench.cluster import timed
from e2e.bench.cluster.run import Outcome, Story
from e2e.bench.cluster.timed import ALONE, COMPANION, claims_table
from e2e.bench.cluster.waiting import (
    FEW_WAITING,
    LOADS,
    MILLICORES,
    SLOTS,
    SLOWED,
    WAITING,
    WaitingJob,
    arrivals_at,
    slowed,
)
from e2e.bench.cluster.workload import GREEDILY, PLAIN, Arm
from e2e.harness.jobs import specs
from e2e.testbed.realnodes import cpu_budget, memory_budget
from e2e.testbed.realnodes.node import burst
from kfext.model.quantity import parse_quantity

Object = dict[str, Any]
EACH_JOB = pytest.mark.parametrize("job", WAITING, ids=lambda job: job.name)
_GIB = 2**30


def manifest(job: WaitingJob, minutes: float = 10) -> Object:
    return job.manifest(minutes=minutes, scheduler="any", folder=Path("/any"))


@EACH_JOB
def test_two_pods_fit_a_node_and_have_limits_equal_to_their_requests(job: WaitingJob) -> None:
    types = specs(manifest(job))
    assert sum(spec["replicas"] for spec in types.values()) == job.pods <= SLOTS
    for spec in types.values():
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert resources["limits"]["cpu"] == f"{MILLICORES}m"
        assert pod["schedulerName"] == "any"
        memory = parse_quantity(resources["limits"]["memory"])
        assert 2 * MILLICORES <= cpu_budget(2, 4) < 3 * MILLICORES
        assert 2 * memory <= memory_budget(23 * _GIB, 4)


@pytest.mark.parametrize("load", LOADS)
def test_jobs_arrive_at_the_load(load: float) -> None:
    arrived = arrivals_at(load, WAITING, minutes=10)
    assert arrived == arrivals_at(load, WAITING, minutes=10)
    assert {arrival.job for arrival in arrived} == set(WAITING)
    work = sum(job.pods * job.seconds(10) for job in WAITING)
    span = work / (SLOTS * load)
    assert 0.7 * span < arrived[-1].seconds <= span
    assert arrived[0].seconds == 0


@pytest.mark.parametrize("link", ["10gbit", "25gbit", "1gbit", "200mbit"])
def test_links_are_slowed_by_the_same_factor_as_waits(link: str) -> None:
    bits = {"gbit": 1e9, "mbit": 1e6}[link[-4:]] * int(link[:-4])
    result = slowed(link)
    assert float(result.removesuffix("kbit")) * 1e3 * SLOWED == pytest.approx(bits, rel=1e-4)
    assert burst(result) > 0
    assert slowed("none") == "none"


_SMALL, _LARGE = FEW_WAITING[-1], FEW_WAITING[0]


def outcome(arm: Arm, *, small: float, large: float) -> Outcome:
    """Return a run of two jobs that take these seconds and use a tenth of their CPU."""
    stories = [
        Story(job, 0.0, started=0.0, whole=0.0, ended=seconds, outcome="Succeeded")
        for job, seconds in ((_SMALL, small), (_LARGE, large))
    ]
    for story in stories:
        story.homes = {"a": "n1", "b": "n1"}
        story.stepping = {"a": [0.0, 0.0, 100.0, 1.7]}
    reserved = {PLAIN.name: 50.0}.get(arm.name, 65.0)
    return Outcome(arm, stories, until=max(small, large), reserved=reserved, capacity=100.0)


def runs_at(load: float, *, large: float) -> timed.Runs:
    arms = {arm.name: [outcome(arm, small=100, large=large)] for arm in (ALONE, COMPANION)}
    return {
        load: {
            PLAIN.name: [outcome(PLAIN, small=100, large=200)],
            GREEDILY.name: [outcome(GREEDILY, small=100, large=120)],
            **arms,
        }
    }


def row(text: str, *cells: str) -> str:
    """Return the only row of a table with first cells that begin with `cells`."""
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in text.splitlines()]
    matching = [result for result in rows if all(map(str.startswith, result, cells)) and result]
    (only,) = [result for result in matching if len(result) > len(cells)]
    return " | ".join(only)


def test_a_claim_that_no_load_reaches_shows_where_the_gain_begins() -> None:
    text = claims_table({**runs_at(0.5, large=198), **runs_at(0.8, large=100)})
    assert "timed wait" in text
    against_plain = row(text, "CMS-DL", ALONE.title, PLAIN.title)
    assert "-0.7 % (-0.7 to -0.7): MISS" in against_plain
    assert "-33.3 % (-33.3 to -33.3): MISS" in against_plain
    assert f"at load 0.8 from {_LARGE.megabytes:g} MB on" in against_plain


def test_a_claim_that_a_load_reaches_passes_there() -> None:
    text = claims_table(runs_at(0.8, large=100))
    reserved = row(text, "DRAGON: utilisation")
    assert "+30.0 % (+30.0 to +30.0): PASS" in reserved
    assert "begins" not in reserved
    assert "MB on" not in reserved


def test_without_any_gain_the_gain_begins_at_no_load() -> None:
    text = claims_table(runs_at(0.5, large=200))
    assert "at no load" in row(text, "DRAGON: elapsed")

"""The benchmark of a stream: its jobs have the same compute in every arm, and its tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.bench.companion.arms import PLAIN, PLAIN_AGAIN
from e2e.bench.stream.measure import arms_table, worst_table
from e2e.bench.stream.run import KFEXT, Outcome, Story
from e2e.bench.stream.workload import (
    JOBS,
    MILLICORES,
    SERVER_LOAD,
    StreamJob,
    arrivals,
    with_servers,
)
from e2e.harness.jobs import specs
from e2e.testbed.realnodes import cpu_budget
from kfext import names
from kfext.model.kinds.torchrun import why_not_torchrun

Object = dict[str, Any]
EACH_JOB = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)


def manifest(job: StreamJob) -> Object:
    return job.manifest(minutes=10, folder=Path("/any"))


@EACH_JOB
def test_every_pod_has_limits_equal_to_its_requests_and_two_pods_fit_a_node(job: StreamJob) -> None:
    for spec in specs(manifest(job)).values():
        (container,) = spec["template"]["spec"]["containers"]
        requests = container["resources"]["requests"]
        assert requests == container["resources"]["limits"]
        assert requests["cpu"] == f"{MILLICORES}m"
    assert 2 * MILLICORES <= cpu_budget(2, 4) < 3 * MILLICORES


@EACH_JOB
def test_a_job_fits_the_nodes_and_only_an_elastic_job_may_be_scaled(job: StreamJob) -> None:
    body = manifest(job)
    pods = sum(spec["replicas"] for spec in specs(body).values())
    assert pods == job.asked + (job.kind == "TFJob") <= 8
    elastic = body["metadata"]["annotations"].get(names.ELASTIC)
    assert elastic == (f"{job.least}-{job.most}" if job.elastic else None)
    if job.elastic and job.kind == "PyTorchJob":
        (container,) = specs(body)["Worker"]["template"]["spec"]["containers"]
        assert why_not_torchrun(container) == ""


def test_jobs_come_at_the_same_times_in_each_run_in_the_first_half() -> None:
    arrived = arrivals(JOBS, minutes=10)
    assert arrived == arrivals(JOBS, minutes=10) != arrivals(JOBS, minutes=10, seed=2)
    times = [arrival.seconds for arrival in arrived]
    assert (times[0], times) == (0.0, sorted(times))
    assert times[-1] <= 300
    assert {arrival.job for arrival in arrived} == set(JOBS)


def body_of(replicas: int, ended: str = "") -> Object:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    result = {"Master": {"replicas": 1}, "Worker": {"replicas": replicas - 1}}
    return {
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": result},
        "status": {"conditions": conditions},
    }


def phases(*names: str) -> list[Object]:
    return [{"status": {"phase": phase}} for phase in names]


def test_a_job_waits_until_all_of_its_pods_run_and_then_runs() -> None:
    story = Story(10.0)
    story.record(body_of(2), phases("Running", "Pending"), now=20)
    assert story.trained is None
    assert (story.wait(50), story.run(50), story.elapsed(50)) == (40, 0, 40)
    story.record(body_of(2), phases("Running", "Running"), now=30)
    story.record(body_of(4), phases("Running", "Running"), now=40)
    story.record(body_of(4), phases("Running", "Running"), now=41)
    story.record(body_of(1), phases("Running"), now=60)
    assert story.rescales == 2
    story.record(body_of(1, "Succeeded"), phases("Succeeded"), now=90)
    assert story.succeeded
    assert (story.wait(500), story.run(500), story.elapsed(500)) == (20, 60, 80)


def test_a_job_that_fails_has_ended_but_not_succeeded() -> None:
    story = Story(0.0)
    story.record(body_of(2, "Failed"), [], now=7)
    assert (story.ended, story.succeeded, story.wait(9), story.run(9)) == (7, False, 7, 0)


def outcome(*elapsed: float, used: float = 40.0, last_outcome: str = "Succeeded") -> Outcome:
    """Return a run of jobs that came at 0, 5, ... s and waited for 10 s each; `elapsed`: by job."""
    jobs = {
        f"job-{number}": Story(
            5.0 * number, 5.0 * number + 10, 5.0 * number + seconds, "Succeeded", [2, 3]
        )
        for number, seconds in enumerate(elapsed)
    }
    name = list(jobs)[-1]
    jobs[name] = replace(jobs[name], outcome=last_outcome, redone=7)
    return Outcome(jobs, until=max(elapsed) + 20, used=used, reserved=60.0, capacity=100.0)


RUNS = {
    PLAIN: [outcome(100, 200, last_outcome="Failed"), outcome(110, 200), outcome(100, 200)],
    PLAIN_AGAIN: [outcome(101, 200), outcome(110, 198), outcome(100, 200)],
    KFEXT: [outcome(60, 180, used=50), outcome(55, 200, used=48), outcome(50, 180, used=52)],
}


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_figures_are_compared_with_plain_in_the_same_repeat_and_with_published_changes() -> None:
    head, *rows = cells(arms_table(RUNS, title="any"))
    assert head == [
        "",
        PLAIN,
        "plain again (A/A)",
        "against plain",
        KFEXT,
        "against plain",
        "published",
    ]
    result = {row[0]: row[1:] for row in rows}
    assert result["CPU used %"][3:] == [
        "50.0 (48.0-52.0)", "+25.0 % (+20.0 to +30.0)", "+20 to +30 %"
    ]  # fmt: skip
    # Means of 150, 155, 150 become 120, 127.5, 115.
    assert result["elapsed s, mean"][3:] == [
        "120 (115-128)", "-20.0 % (-23.3 to -17.7)", "-65 %"
    ]  # fmt: skip
    assert result["wait s, mean"][0] == "10 (10-10)"
    assert result["not ended well"] == ["0 (0-1)", "0 (0-0)", "", "0 (0-0)", "", ""]
    assert result["changes of size"][0] == "2 (2-2)"
    assert result["repeated steps"][0] == "7 (7-7)"


def test_the_best_and_the_worst_job_have_the_least_and_the_largest_median_change() -> None:
    rows = cells(worst_table(RUNS))[1:]
    assert [row[0] for row in rows] == ["plain again (A/A)", KFEXT]
    assert rows[1][2:] == [
        "job-0: -50.0 % (-50.0 to -40.0)",
        "job-1: -10.0 % (-10.0 to +0.0)",
        "2",
        "0",
    ]
    assert rows[1][1] == "-25.0 % (-30.0 to -25.0)"


def test_jobs_with_servers_are_elastic_fit_the_nodes_and_come_at_their_load() -> None:
    arrived = with_servers(minutes=10)
    assert arrived == with_servers(minutes=10) != with_servers(minutes=10, seed=2)
    work = 0.0
    for job in (arrival.job for arrival in arrived):
        assert job.elastic
        assert job.servers == 1
        assert 1 <= job.least <= job.asked < job.most <= 2 * job.asked
        assert job.asked + job.servers <= 8
        work += (job.asked + 1) * (job.steps * 0.0586 / job.asked + 13)
    assert arrived[-1].seconds <= work / (8 * SERVER_LOAD)

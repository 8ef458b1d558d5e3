"""The benchmark of real training: jobs compute equally fast in any placement; times of a job."""

from pathlib import Path
from typing import Any, cast

import pytest

from e2e.bench.cluster.run import Story
from e2e.bench.cluster.workload import JOBS, TrainingJob, arrivals
from e2e.testbed.realnodes import cpu_budget


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_whole_job_fits_one_node_with_limits_equal_to_its_requests(job: TrainingJob) -> None:
    body = job.manifest(minutes=10, scheduler="any", folder=Path("/any"))
    specs = body["spec"].get("pytorchReplicaSpecs") or body["spec"]["tfReplicaSpecs"]
    pods = [spec["template"]["spec"] for spec in specs.values() for _ in range(spec["replicas"])]
    assert len(pods) == job.pods
    for pod in pods:
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["resources"]["limits"]["cpu"] == f"{job.millicores}m"
        assert pod["schedulerName"] == "any"
    assert job.pods * job.millicores <= cpu_budget(2, 4)


def test_arrivals_are_the_same_each_time_and_within_the_time() -> None:
    arrived = arrivals(JOBS, seconds=600)
    assert arrived == arrivals(JOBS, seconds=600)
    assert arrived != arrivals(JOBS, seconds=600, seed=2)
    assert {arrival.job for arrival in arrived} == set(JOBS)
    times = [arrival.seconds for arrival in arrived]
    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] <= 600


def _pod(name: str, phase: str, node: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


def _job(*conditions: str, pods: int = 2) -> dict[str, Any]:
    return {
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": pods}}},
        "status": {"conditions": [{"type": name, "status": "True"} for name in conditions]},
    }


def test_a_job_holds_capacity_partly_until_its_last_pod_runs() -> None:
    story = Story(JOBS[0], submitted=1.0)
    story.record(_job("Created"), [_pod("a", "Pending"), _pod("b", "Pending")], now=2.0)
    story.record(_job("Running"), [_pod("a", "Running", "n1"), _pod("b", "Pending")], now=5.0)
    pods = [_pod("a", "Running", "n1"), _pod("b", "Running", "n2")]
    story.record(_job("Running"), pods, now=9.0)
    story.record(_job("Running", "Succeeded"), pods, now=20.0)
    assert story.trained
    assert (story.training(99.0), story.elapsed(99.0)) == (15.0, 19.0)
    assert story.held_by_partial_gang(99.0) == 4.0
    assert set(story.homes.values()) == {"n1", "n2"}


def test_a_job_without_an_end_counts_until_the_deadline() -> None:
    story = Story(JOBS[0], submitted=1.0)
    assert (story.training(99.0), story.elapsed(99.0)) == (0.0, 98.0)
    story.record(_job("Running"), [_pod("a", "Running", "n1")], now=4.0)
    assert not story.trained
    assert (story.training(99.0), story.held_by_partial_gang(99.0)) == (95.0, 95.0)


def test_a_resized_job_is_whole_with_its_new_number_of_pods() -> None:
    story = Story(JOBS[0], submitted=0.0)
    story.record(_job("Running", pods=1), [_pod("a", "Running", "n1")], now=3.0)
    assert (story.whole, story.running) == (3.0, 1)
    story.record(_job("Succeeded", pods=1), [_pod("a", "Running", "n1")], now=9.0)
    assert (story.whole, story.running) == (3.0, 0)


class _Node:
    """A fake node; `used`: the CPU seconds of each pod."""

    name = "n1"

    def __init__(self) -> None:
        self.used = dict.fromkeys("abc", 0.0)

    def pod_cpu_seconds(self, uid: str) -> float | None:
        return self.used[uid]


def test_the_cpu_of_sending_is_the_busiest_pods_since_the_first_step() -> None:
    story, node = Story(JOBS[0], submitted=0.0), _Node()

    def record(now: float, *names: str, steps: bool) -> None:
        pods = [_pod(name, "Running", "n1") for name in names]
        story.record_cpu(pods, {"n1": cast(Any, node)}, steps=steps, now=now)

    node.used = {"a": 5.0, "b": 8.0, "c": 0.0}
    record(10.0, "a", "b", steps=False)
    assert story.highest_cpu_fraction() == 0.0
    node.used = {"a": 5.3, "b": 8.6, "c": 4.0}
    record(30.0, "a", "b", "c", steps=True)  # c is new, so it does not count
    assert story.highest_cpu_fraction() == pytest.approx(0.6 / 20 / 0.150)

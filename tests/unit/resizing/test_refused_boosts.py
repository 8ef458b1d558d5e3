"""The CPU of a node if a boost is refused, deferred or no longer measured."""

from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.errors import Forbidden
from kfext.model.pod import ReplicaKey
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict
from tests.builders import job, pod
from tests.unit.resizing.bed import CpuBed

HOUR = 3600.0
NAMES = ("a", "b", "c", "d")


def full_bed() -> CpuBed:
    """Return a node with four jobs that request all of its CPU; the first would end first."""
    bed = CpuBed()
    for number, name in enumerate(NAMES):
        bed.add(name, cpu=350, work=20_000.0 * (number + 1) if number else 8000.0)
    bed.after(5)
    return bed


def writes(bed: CpuBed, *, since: float = 0.0) -> int:
    return sum(isinstance(write.step, Resize) and write.at > since for write in bed.driver.written)


@pytest.mark.parametrize("unmeasured", [("a",), NAMES], ids=["one job", "all jobs"])
def test_the_cpu_of_a_job_with_unknown_use_is_restored_once(unmeasured: tuple[str, ...]) -> None:
    bed = CpuBed()
    bed.add("a", cpu=20, work=8000.0)
    bed.add("b", cpu=20, work=20_000.0)
    bed.after(200)
    assert bed.request("a") > 20
    use_of, since = bed.driver.use_of, bed.clock.now
    bed.driver.measure = lambda live: None if live.job.spec.name in unmeasured else use_of(live)
    bed.after(1200)
    assert bed.request("a") == 20
    assert writes(bed, since=since) <= 2
    assert bed.reason("a") == names.REASON_STANDS_DOWN


def test_a_boost_uses_no_more_cpu_than_a_new_pod_leaves() -> None:
    bed = full_bed()
    while bed.kubelets.used["a"][CPU] > 1300:
        bed.after(1)
    bed.kubelets.used["a"][CPU] += 100
    other = job(name="other", uid="other").worker(1, cpu="100m").build()
    foreign = pod(other, "worker", 0, bound="a", phase="Running", uid="foreign")
    bed.planner.cluster.observe_pod(None, foreign)
    added = bed.clock.now
    bed.after(HOUR)
    # 1400m less 100m for the new pod, and 10m for each of the three lowered jobs
    assert (bed.cpu("a").allocated, writes(bed, since=added)) == (1270, 1)


def test_requests_lowered_for_a_refused_boost_are_restored() -> None:
    bed = full_bed()

    def refusal(_: str, change: Any) -> Forbidden | None:
        if not isinstance(change, dict):
            return None
        request = change["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        denied = int(request.removesuffix("m")) > 350
        return Forbidden(status=403, reason="Forbidden", message="denied") if denied else None

    bed.faults.refusal = refusal
    bed.after(HOUR)
    sums = []
    for _ in range(30):
        bed.after(10)
        sums.append(sum(bed.cpu(name).request for name in NAMES))
    assert max(sums) == 1400


def test_a_boost_that_a_kubelet_defers_removes_no_other_boost() -> None:
    bed = CpuBed()
    for name, work in (("a", 9000.0), ("b", 20_000.0), ("c", 30_000.0)):
        bed.add(name, cpu=20, work=work)
    bed.faults.resize = lambda live: (
        Verdict("Deferred", "not now")
        if live.job.spec.name == "a" and live.pod.trainer and live.pod.trainer.request > 20
        else None
    )
    bed.after(1500)
    reasons = [step.verdict.message for name, step in bed.resized if name != "a"]
    assert reasons
    assert not any("another pod needs" in reason for reason in reasons)


def test_no_lowered_pod_loses_its_request() -> None:
    bed = CpuBed()
    bed.add("a", cpu=400, work=8000.0)
    bed.add("b", workers=1, servers=11, serves=5, cpu=80, work=40_000.0)
    bed.after(HOUR / 2)
    requests = [live.pod.trainer.request for live in bed.job("b").pods.values() if live.pod.trainer]
    assert min(requests) == 1
    assert bed.request("a") > 400


def test_a_limit_with_CPU_of_another_pod_gets_no_boost() -> None:
    bed = CpuBed()
    bed.add("train", servers=1, serves=20, cpu=20, limit=400, work=20_000.0)
    bed.after(300)
    bed.add("b", cpu=20, work=90_000.0)
    bed.after(300)
    worker, server = (bed.cpu("train", ReplicaKey(type_, 0)) for type_ in ("worker", "ps"))
    assert worker.limit is not None
    assert server.limit is not None
    assert worker.limit > 400 > worker.request
    assert worker.limit + server.limit == 800

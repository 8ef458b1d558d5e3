"""A gang without a chance to get its pods blocks no other job for long."""

from copy import deepcopy
from itertools import count

import jsonpatch
import pytest

from kfext.core.lifecycle.steps import Step, Suspend, Unsuspend, job_operations
from kfext.names import REASON_CREATE_TIMEOUT, REASON_WAITING_FOR_OPERATOR
from kfext.state.mirror import pod_backlog
from kfext.state.mirror.tracked_job import TrackedJob
from tests.builders import JobBuilder, job, moment, node, pod, pods
from tests.unit.controller.bench import Bench, gang, last_verdict

NEVER = 1e9


def submit_live(bench: Bench, *jobs: JobBuilder) -> None:
    """Submit jobs, and change them from now on as the API server and the operator would."""
    raws = {builder.raw["metadata"]["uid"]: deepcopy(builder.raw) for builder in jobs}
    versions = count(10)

    async def answer(tracked: TrackedJob, step: Step) -> bool:
        if isinstance(step, Unsuspend | Suspend):
            uid = tracked.job.uid
            operations = job_operations(step, tracked.raw, tracked.job) or []
            raw = raws[uid] = jsonpatch.apply_patch(raws[uid], operations)
            raw["metadata"]["resourceVersion"] = str(next(versions))
            if isinstance(step, Suspend):
                condition = {"type": "Suspended", "status": "True"}
                condition["lastTransitionTime"] = moment(bench.now)
                raw["status"] = {"conditions": [condition]}
            bench.cluster.observe_job(deepcopy(raw))
        return True

    bench.writer.answer = answer
    for builder in jobs:
        bench.submit(builder)


def suspensions(bench: Bench, uid: str) -> int:
    """Return how often a job was suspended because its pods were not created."""
    stops = [step for job, step in bench.writer.steps if job == uid and isinstance(step, Suspend)]
    assert {step.state.reason for step in stops} <= {REASON_CREATE_TIMEOUT}
    return len(stops)


async def run_an_hour(bench: Bench, *, crash_every: float) -> None:
    """Let an hour pass; only the job `crash` gets pods, a new one every `crash_every` seconds."""
    crashing = job(name="crash", uid="crash").worker(1, cpu="0").resumed()
    bench.submit(crashing)
    number, old, next_crash = 0, None, 0.0
    while bench.now < 3600:
        if bench.now >= next_crash:
            number, next_crash = number + 1, bench.now + crash_every
            new = pod(crashing.build(), "worker", 0, bound="b", uid=f"crash-{number}")
            if old is not None:
                bench.cluster.observe_pod(old, None)
            bench.cluster.observe_pod(None, new)
            old = new
        for uid in list(bench.cluster.jobs):
            bench.cluster.mark(uid)
        await bench.tick()
        bench.now += 5


@pytest.mark.parametrize("crash_every", [NEVER, 25.0], ids=["no other pods", "another job crashes"])
async def test_a_gang_never_created_frees_its_capacity(bench: Bench, crash_every: float) -> None:
    submit_live(
        bench, gang("refused", workers=3, created=1), gang("good", cpu="2", workers=1, created=2)
    )
    await run_an_hour(bench, crash_every=crash_every)
    assert "good" in bench.started()
    assert suspensions(bench, "refused") > 1


@pytest.mark.parametrize("crash_every", [NEVER, 25.0], ids=["no other pods", "another job crashes"])
async def test_600_refused_pods_do_not_block_the_queue(bench: Bench, crash_every: float) -> None:
    bench.cluster.observe_node(None, node("big", cpu="2000", pods=2000))
    submit_live(bench, gang("refused", workers=600, created=1), gang("good", workers=1, created=2))
    await bench.tick()
    assert last_verdict(bench, "good")[0] == REASON_WAITING_FOR_OPERATOR
    await run_an_hour(bench, crash_every=crash_every)
    assert "good" in bench.started()
    assert suspensions(bench, "refused") > 1


async def test_13_refused_gangs_in_a_row_do_not_block_the_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_backlog, "MAX_OUTSTANDING", 10)
    bench.cluster.observe_node(None, node("big", cpu="2000", pods=2000))
    refused = [gang(f"refused-{number}", workers=12, created=number) for number in range(13)]
    submit_live(bench, *refused, gang("good", workers=1, created=100))
    await run_an_hour(bench, crash_every=NEVER)
    assert "good" in bench.started(), "each gang blocks the queue only once"


def by_kueue(uid: str, *, workers: int) -> JobBuilder:
    """A job that ran under a plan and that Kueue has started again."""
    places = ",".join(["0"] * workers)
    plan = f'{{"uid":"{uid}","generation":1,"nodes":["big"],"replicas":{{"worker":[{places}]}}}}'
    builder = gang(uid, workers=workers).resumed().queued_by_kueue()
    del builder.raw["metadata"]["annotations"]["kfext.dev/held"]
    return builder.annotated("kfext.dev/plan", plan)


async def test_pods_of_a_job_that_only_kueue_may_stop_do_not_block_the_queue(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("big", cpu="2000", pods=2000))
    bench.submit(by_kueue("kueue", workers=600))
    bench.submit(gang("good", workers=1, created=2))
    await bench.tick()
    assert last_verdict(bench, "good")[0] == REASON_WAITING_FOR_OPERATOR
    bench.now = 30.0
    bench.planner._retry("kueue")
    await bench.tick()
    assert bench.started() == ["good"]


async def test_a_large_gang_with_slowly_created_pods_is_not_suspended(bench: Bench) -> None:
    bench.cluster.observe_node(None, node("big", cpu="2000", pods=2000))
    names = ("first", "second")
    submit_live(bench, *(gang(uid, workers=100, created=at) for at, uid in enumerate(names)))
    await bench.tick()
    for uid in ("first", "second"):
        for gated_pod in pods(bench.cluster.jobs[uid].job, gated=True):
            bench.now += 5.0
            bench.cluster.observe_pod(None, gated_pod)
            for marked in ("first", "second"):
                bench.cluster.mark(marked)
            await bench.tick()
    assert not [step for _, step in bench.writer.steps if isinstance(step, Suspend)]

"""The shares that kubelet has allocated are compared with kfext's plans while jobs come and go."""

import random
from collections import Counter
from typing import Any

import pytest

from e2e.harness.gpu import kubelet_allocations, unique_name, wait_unreserved
from e2e.harness.gpu_jobs import Team, dial_job
from e2e.harness.wait import until
from e2e.testbed.realnodes import Node
from kfext import names
from kfext.model.gpu import UNITS, resource_of
from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import ReplicaKey

JOBS, AT_ONCE, CARDS = 12, 4, 2
SECONDS = 900.0
MASTER, POD_SUFFIX = ReplicaKey("master", 0), "-master-0"
"""The only pod of each job."""
Object = dict[str, Any]


def sharing_job(name: str, draw: random.Random) -> Object:
    """Return a job with a random share of a card and 100 to 300 steps."""
    share = draw.choice(["0.2", "0.35", "0.5", "0.7"])
    priority = draw.choice(["low", "low", "high"])
    settings = {"share": share, "priority": priority, "min_share": "0"}
    return dial_job(name, settings, layers=5, steps=draw.randint(100, 300))


def plan_of(job: Object) -> Plan | None:
    metadata = job["metadata"]
    return decode_plan(metadata["annotations"].get(names.PLAN), job_uid=metadata["uid"])


def ended(job: Object) -> bool:
    """Return whether a job has ended; it must not fail."""
    conditions = job.get("status", {}).get("conditions", [])
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    assert "Failed" not in true, job["metadata"]["name"]
    return "Succeeded" in true


@pytest.mark.long
def test_G2_kubelet_allocates_the_shares_of_the_plans_and_never_more_than_a_card(
    team: Team, gpu_node: Node
) -> None:
    draw, submitted = random.Random(1), list[str]()
    seen, most_allocated = set[str](), 0

    def all_have_ended() -> bool:
        nonlocal most_allocated
        allocated = [
            device
            for device in kubelet_allocations(team.bed, gpu_node)
            if device.namespace == team.namespace
        ]
        jobs = team.jobs()  # read last: kubelet allocates only planned shares
        for device in allocated:
            job = jobs[device.pod.removesuffix(POD_SUFFIX)]
            if job["spec"]["runPolicy"].get("suspend"):
                continue  # the job was stopped, and its pod is about to end
            plan = plan_of(job)
            assert plan is not None
            assert device.resource == resource_of(plan.slots[MASTER])
            assert len(device.devices) == plan.shares[MASTER.type].units
            seen.add(device.pod)
        units = Counter[str]()
        for device in allocated:
            units[device.resource] += len(device.devices)
        assert max(units.values(), default=0) <= UNITS
        most_allocated = max(most_allocated, len(allocated))
        training = [name for name in submitted if not ended(jobs[name])]
        if len(submitted) < JOBS and len(training) < AT_ONCE:
            submitted.append(unique_name("job"))
            team.submit(sharing_job(submitted[-1], draw))
        return len(submitted) == JOBS and not training

    until(all_have_ended, what="all jobs have ended", account=team.messages, seconds=SECONDS)
    assert seen == {f"{name}{POD_SUFFIX}" for name in submitted}, "each job got a share"
    assert most_allocated > CARDS, "cards were shared"
    wait_unreserved(team.bed)

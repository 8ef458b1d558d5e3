"""The cards that kubelet has allocated, beside the plans of kfext, while jobs come and go."""

import random
from collections import Counter
from typing import Any

import pytest

from e2e.harness.gpu import kubelet_allocations, named, unreserved
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.wait import until
from e2e.testbed.realnodes import Node
from kfext import names
from kfext.model.gpu import UNITS, resource_of
from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import ReplicaKey

JOBS, AT_ONCE, CARDS = 12, 4, 2
SECONDS = 900.0
ONLY, OF_POD = ReplicaKey("master", 0), "-master-0"
Object = dict[str, Any]


def sharing_job(name: str, chance: random.Random) -> Object:
    """Return a job that requests a share of a card, and trains for a while."""
    share = chance.choice(["0.2", "0.35", "0.5", "0.7"])
    priority = chance.choice(["low", "low", "high"])
    settings = {"share": share, "priority": priority, "min_share": "0"}
    return dialled(name, settings, layers=5, steps=chance.randint(100, 300))


def promised(job: Object) -> Plan | None:
    """Return the plan of a job."""
    metadata = job["metadata"]
    return decode_plan(metadata["annotations"].get(names.PLAN), job_uid=metadata["uid"])


def ended(job: Object) -> bool:
    """Return whether a job has ended; it must not fail."""
    conditions = job.get("status", {}).get("conditions", [])
    holds = {condition["type"] for condition in conditions if condition["status"] == "True"}
    assert "Failed" not in holds, job["metadata"]["name"]
    return "Succeeded" in holds


@pytest.mark.long
def test_G2_kubelet_allocates_the_shares_of_the_plans_and_never_more_than_a_card(
    team: Team, gpu_node: Node
) -> None:
    chance, submitted = random.Random(1), list[str]()
    seen, most = set[str](), 0

    def all_have_ended() -> bool:
        nonlocal most
        allocated = [
            device
            for device in kubelet_allocations(team.bed, gpu_node)
            if device.namespace == team.namespace
        ]
        jobs = team.jobs()  # read last: kubelet allocates only planned shares
        for device in allocated:
            job = jobs[device.pod.removesuffix(OF_POD)]
            if job["spec"]["runPolicy"].get("suspend"):
                continue  # it was stopped, and its pod is about to end
            plan = promised(job)
            assert plan is not None
            assert device.resource == resource_of(plan.slots[ONLY])
            assert len(device.devices) == plan.shares[ONLY.type].units
            seen.add(device.pod)
        units = Counter[str]()
        for device in allocated:
            units[device.resource] += len(device.devices)
        assert max(units.values(), default=0) <= UNITS
        most = max(most, len(allocated))
        training = [name for name in submitted if not ended(jobs[name])]
        if len(submitted) < JOBS and len(training) < AT_ONCE:
            submitted.append(named("some"))
            team.submit(sharing_job(submitted[-1], chance))
        return len(submitted) == JOBS and not training

    until(all_have_ended, what="all jobs have ended", account=team.said, seconds=SECONDS)
    assert seen == {f"{name}{OF_POD}" for name in submitted}, "kubelet allocated a share to each"
    assert most > CARDS, "cards were shared"
    unreserved(team.bed)

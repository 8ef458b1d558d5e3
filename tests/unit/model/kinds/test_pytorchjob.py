"""The elasticPolicy of a PyTorchJob: the number of workers, and their rendezvous."""

from typing import Any

import pytest

from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds.job_kind import Scaling
from tests.builders import JobBuilder, job
from tests.unit.objects import job as raw_job
from tests.unit.objects import replica


def scaling(policy: Any) -> Scaling:
    """Return the possible sizes of a job of two workers with an elasticPolicy."""
    raw = raw_job(specs={"Worker": replica(2)})
    raw["spec"]["elasticPolicy"] = policy
    parsed = parse_job(raw)
    assert parsed is not None
    return parsed.scaling


POLICIES: dict[str, tuple[Any, int, int, bool]] = {
    "none": (None, 1, 0, False),
    "empty": ({}, 1, 0, False),
    "all fields": ({"minReplicas": 2, "maxReplicas": 8, "metrics": [{}]}, 2, 8, True),
    "no metrics": ({"metrics": []}, 1, 0, False),
    "malformed": ({"minReplicas": "2", "maxReplicas": "8", "metrics": "x"}, 1, 0, False),
    "below one": ({"minReplicas": 0, "maxReplicas": -1}, 1, 0, False),
    "booleans": ({"minReplicas": True, "maxReplicas": True, "metrics": True}, 1, 0, False),
    "fractions": ({"minReplicas": 1.5, "maxReplicas": 1.5}, 1, 0, False),
    "not an object": ([], 1, 0, False),
    "a huge number": ({"maxReplicas": 10**400}, 1, 10**400, False),
}


@pytest.mark.parametrize(
    ("policy", "fewest", "most", "autoscaled"), POLICIES.values(), ids=POLICIES
)
def test_the_sizes_that_an_elastic_policy_allows(
    policy: Any, fewest: int, most: int, *, autoscaled: bool
) -> None:
    result = scaling(policy)
    assert (result.fewest, result.most, result.autoscaled) == (fewest, most, autoscaled)


RESTARTS: dict[str, tuple[dict[str, Any], bool]] = {
    "some": ({"maxRestarts": 100}, True),
    "none, which torchrun reads as 0": ({}, False),
    "0": ({"maxRestarts": 0}, False),
    "negative": ({"maxRestarts": -1}, False),
    "a boolean": ({"maxRestarts": True}, False),
    "a fraction": ({"maxRestarts": 1.5}, False),
}


@pytest.mark.parametrize(("policy", "can_scale"), RESTARTS.values(), ids=RESTARTS)
def test_a_job_can_be_scaled_only_if_torchrun_may_restart_its_workers(
    policy: dict[str, Any], *, can_scale: bool
) -> None:
    fixed = scaling({"maxReplicas": 8, **policy}).fixed
    assert ("maxRestarts" not in fixed) is can_scale
    assert (fixed == "") is can_scale


RENDEZVOUS: dict[str, tuple[JobBuilder, bool, bool]] = {
    "c10d is the operator's default": (job().worker(2).elastic(), True, True),
    "at the first worker by its name": (
        job().worker(2).elastic(rdzvHost="train-worker-0.team.svc"), True, True,
    ),
    "at a host outside": (job().worker(2).elastic(rdzvHost="etcd.example"), True, False),
    "at another worker": (job().worker(2).elastic(rdzvHost="train-worker-1"), True, False),
    "in etcd, by torch's own rendezvous": (
        job().worker(2).elastic(rdzvBackend="etcd-v2"), True, False,
    ),
    "in etcd, which gives the ranks": (job().worker(2).elastic(rdzvBackend="etcd"), False, False),
    "at the master": (job().master().worker(1), False, False),
}  # fmt: skip


@pytest.mark.parametrize(("builder", "dynamic", "at_worker"), RENDEZVOUS.values(), ids=RENDEZVOUS)
def test_where_the_workers_meet(builder: JobBuilder, *, dynamic: bool, at_worker: bool) -> None:
    result = builder.build().rendezvous
    assert (result.dynamic, result.at_worker) == (dynamic, at_worker)
    assert bool(result.alike) is dynamic


NO_PORT: dict[str, tuple[TrainingJob, str]] = {
    "a master": (job().master().worker(2).build(), ""),
    "agents": (job().worker(2).elastic().build(), ""),
    "one worker that meets no other": (job().worker(1).build(), ""),
    "workers that meet at an unknown place": (job().worker(2).build(), "neither a Master nor"),
    "a master beside agents": (job().master().worker(2).elastic().build(), "both a Master and"),
}


@pytest.mark.parametrize(("job_", "why"), NO_PORT.values(), ids=NO_PORT)
def test_the_port_where_the_ranks_meet_must_be_known(job_: TrainingJob, why: str) -> None:
    obstacle = job_.rendezvous.obstacle
    assert (why in obstacle) if why else not obstacle

"""The soak's checks of the final state, after a while without actions."""

import pytest

from e2e.soak.capacity import Reserved, unbalanced, unsettled
from e2e.soak.facts import GATE
from tests.unit.soak.raw import Raw, cluster, job, pod, view

PLACED = (pod(0, node="n1"), pod(1, node="n1"))
GATED = (pod(0, node="n1"), pod(1, gates=(GATE,)))
JOBS = {
    "all pods are bound": (job(plan=["n1", "n1"]), PLACED, view(), True),
    "the job waits with a reason": (job(suspend=True, held=True), (), view("job", "Queued"), True),
    "a survivor waits for capacity beside the others": (
        job(plan=["n1", "n1"]),
        GATED,
        view("job", "Gated", reason="NoRoom"),
        True,
    ),
    "a survivor asks for a node beside the others": (
        job(plan=["n1", "n1"]),
        GATED,
        view("job", "Gated", reason="WaitingForNodes"),
        True,
    ),
    "a survivor waits beside the others where a person pinned it, and never fits there": (
        job(plan=["n1", "n1"]),
        (pod(0, node="n1"), pod(1, gates=(GATE,), pinned="n2")),
        view("job", "Placed", reason="TooBig"),
        True,
    ),
    "a survivor without a pin never fits": (
        job(plan=["n1", "n1"]),
        GATED,
        view("job", "Placed", reason="TooBig"),
        False,
    ),
    "a pod created while the webhook was down waits for kube-scheduler": (
        job(plan=["n1", "n1"]),
        (pod(0, node="n1"), pod(1)),
        view("job", "Gated", reason="WaitingForBind"),
        True,
    ),
    "a gang is bound by half and has no reason for it": (
        job(plan=["n1", "n1"]),
        GATED,
        view("job", "Gated", reason="WaitingForPods"),
        False,
    ),
    "pods of a suspended job still stand": (
        job(suspend=True, held=True),
        PLACED[:1],
        view("job", "Queued"),
        False,
    ),
}


@pytest.mark.parametrize(("job", "pods", "view", "settled"), JOBS.values(), ids=JOBS.keys())
def test_a_cluster_is_settled_once_each_job_is_whole_or_waits_with_a_reason(
    job: Raw, pods: tuple[Raw, ...], view: Raw, settled: bool
) -> None:
    assert (unsettled(cluster(jobs=(job,), pods=pods, views=(view,))) == []) is settled


CLAIMS = {
    "a claim of each pod with a node and each replica without": (2, 0, True),
    "an extra claim, for no pod": (3, 0, False),
    "an extra claim of the reservation for the head of the queue": (3, 1, True),
    "a missing claim: kfext does not count a pod": (1, 1, False),
    "kfext does not answer": (-1, -1, False),
}


@pytest.mark.parametrize(("claims", "kept", "balanced"), CLAIMS.values(), ids=CLAIMS.keys())
def test_kfexts_claims_must_be_those_of_pods_and_plans(
    claims: float, kept: float, balanced: bool
) -> None:
    half_placed = cluster(jobs=(job(plan=["n1", "n1"]),), pods=GATED)
    assert (unbalanced(half_placed, Reserved(claims, kept)) == []) is balanced

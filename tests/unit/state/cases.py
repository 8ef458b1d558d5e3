"""Jobs and pods for tests of the mirror, and questions to the mirror."""

from typing import Any

from kfext import names
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.state.mirror.cluster import Cluster
from tests.builders import JobBuilder, job, pod

JOB = job().worker(2, cpu="1").build()


def planned(*nodes: str, uid: str = "uid-1", generation: int = 1) -> JobBuilder:
    """Return a job of two workers that runs under a plan on these nodes."""
    assignment = {ReplicaKey("worker", n): node for n, node in enumerate(nodes)}
    plan = Plan(uid, generation, assignment)
    return job(uid=uid).worker(2, cpu="1").resumed().annotated(names.PLAN, plan.encode())


def worker(index: int, **more: Any) -> Pod:
    return pod(JOB, "worker", index, **more)


def free(cluster: Cluster, node: str) -> int:
    """Return the CPUs that are free on a node."""
    cluster.settle(0.0)
    return int(cluster.ledger.free(["cpu"])[0, cluster.ledger.row(node)]) // 1000


def marked_jobs(cluster: Cluster) -> set[str]:
    """Return the jobs to decide on again; freed capacity counts as help for every waiting job."""
    cluster.settle(0.0)
    result, cluster.changed = cluster.changed, set()
    waiting = {uid for uid, tracked in cluster.jobs.items() if tracked.waiting}
    offer = cluster.offer()
    return result | (waiting if offer.retried or offer.rows else set())

"""Jobs, pods and nodes of a small mirror."""

from typing import Any

from kfext import names
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.state.mirror.cluster import Cluster
from tests.builders import JobBuilder, job, pod

OF = job().worker(2, cpu="1").build()


def planned(*places: str, uid: str = "uid-1", generation: int = 1) -> JobBuilder:
    """A job that runs under a plan."""
    assignment = {ReplicaKey("worker", n): to for n, to in enumerate(places)}
    plan = Plan(uid, generation, assignment)
    return job(uid=uid).worker(2, cpu="1").resumed().annotated(names.PLAN, plan.encode())


def worker(index: int, **more: Any) -> Pod:
    return pod(OF, "worker", index, **more)


def free(cluster: Cluster, where: str) -> int:
    """Return the CPUs that are free on a node."""
    cluster.settle(0.0)
    return int(cluster.ledger.free(["cpu"])[0, cluster.ledger.row(where)]) // 1000


def changed(cluster: Cluster) -> set[str]:
    """Return the jobs to decide on again, if all freed capacity may help every waiting job."""
    cluster.settle(0.0)
    result, cluster.changed = cluster.changed, set()
    waiting = {uid for uid, tracked in cluster.jobs.items() if tracked.waiting}
    offer = cluster.offer()
    return result | (waiting if offer.resumed or offer.rows else set())

"""The ConfigMap with the free capacity: its content, who may read it, and when it is written."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.jobs import Object, workers
from e2e.harness.space import Space
from e2e.harness.tenant import Tenant
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
RECORD = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.CAPACITY_RECORD}"
USAGE = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.USAGE_RECORD}"
_CALM_SECONDS = 25.0
"""Longer than two periods in which the leader may write the ConfigMap."""


def free(space: Space) -> dict[str, Any]:
    """Return the free GPUs of the case's nodes, by name; empty without the ConfigMap."""
    stored = space.kube.find(RECORD)
    nodes = json.loads(stored["data"]["capacity"])["nodes"] if stored else {}
    in_space = {name: value for name, value in nodes.items() if name in space.standing_nodes}
    return {name: value["free"][names.NATIVE_GPU] for name, value in in_space.items()}


def version_when_calm(space: Space) -> str:
    """Return the version of the ConfigMap once it no longer changes."""
    before, since = "", time.monotonic()

    def calm() -> str:
        nonlocal before, since
        now: str = space.kube.get(RECORD)["metadata"]["resourceVersion"]
        if now != before:
            before, since = now, time.monotonic()
        return now if time.monotonic() - since > _CALM_SECONDS else ""

    version: str = space.patiently(calm, seconds=180)
    return version


def test_the_free_capacity_follows_the_jobs_and_a_user_with_the_role_reads_it(
    space: Space, tmp_path: Path
) -> None:
    first, second = space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    space.until(lambda: free(space) == {first: 8, second: 8}, "the nodes are free")
    job: Object = workers("runs", 8, each=GPU)
    space.submit(space.steer(job))
    space.phase("runs", "Placed")
    space.until(lambda: sorted(free(space).values()) == [0, 8], "one node is in use")

    tenant = Tenant(space, tmp_path)
    assert tenant.kube.ask("GET", RECORD).status == 403
    tenant.bind("Role", names.CLUSTER_VIEW, namespace=names.NAMESPACE)
    read = space.until(
        lambda: answer if (answer := tenant.kube.ask("GET", RECORD)).ok else None,
        "the user reads the capacity",
    )
    assert "runs" not in read.body["data"]["capacity"]
    assert tenant.kube.ask("GET", USAGE).status == 403
    assert tenant.kube.ask("DELETE", RECORD).status == 403

    space.kube.delete(space.path("pytorchjobs", "runs"))
    space.until(lambda: free(space) == {first: 8, second: 8}, "the nodes are free again")


@pytest.mark.long
def test_an_idle_cluster_and_a_new_leader_write_nothing(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    space.until(lambda: list(free(space).values()) == [8], "the node is free")
    before = version_when_calm(space)
    space.kfext.kill_controller()
    space.kfext.restart_killed_controller()
    assert version_when_calm(space) == before

    space.kube.patch(RECORD, {"data": {"capacity": "{"}})
    space.submit(space.steer(workers("runs", 8, each=GPU)))
    space.patiently(lambda: _free_gpus(space) == {0}, seconds=60)


def _free_gpus(space: Space) -> set[int]:
    """Return the numbers of free GPUs; empty while the ConfigMap is garbled."""
    try:
        return set(free(space).values())
    except ValueError:
        return set()

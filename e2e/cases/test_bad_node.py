"""A node where pods fail at their start: the gang leaves it, and `kfext nodes` shows this."""

import json

from e2e.cases.test_cli import kfext
from e2e.harness.jobs import conditions, suspended, workers
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def fail_on(space: Space, node: str) -> None:
    """Make the running pods on a node fail, as if its GPUs were broken."""
    for pod in space.pods("gang"):
        if pod["spec"].get("nodeName") == node and pod["status"].get("phase") == "Running":
            path = space.path("pods", pod["metadata"]["name"])
            space.kube.patch(f"{path}/status", {"status": {"phase": "Failed"}})


def used_nodes(space: Space) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in space.pods("gang")}


def test_a_gang_leaves_a_node_where_its_pods_fail_at_their_start(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU))
    (node,) = set(space.bound("gang", 4).values())

    def has_moved() -> bool:
        fail_on(space, node)
        return len(used_nodes(space)) == 1 and not used_nodes(space) & {node, ""}

    space.until(has_moved, "all of its pods are on the other node")
    space.phase("gang", "Placed")
    assert not suspended(space.job("gang"))
    assert "Failed" not in conditions(space.job("gang"))
    notes = [each["note"] for each in space.events("gang") if each["reason"] == "Replanned"]
    assert any(f"pods failed at their start on {node}" in note for note in notes)

    shown = kfext(space, "nodes", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    rows = {row["node"]["name"]: row for row in json.loads(shown.stdout)}
    used = {name: row["taken"].get(f"PyTorchJob {space.name}/gang") for name, row in rows.items()}
    (other,) = used_nodes(space)
    assert (used[node], used[other]["nvidia.com/gpu"]) == (None, 4)
    assert rows[node]["suspicion"] == "", "one job is not enough to suspect a node"


def test_a_user_who_may_not_list_nodes_is_told_the_missing_permissions(space: Space) -> None:
    refused = kfext(space, "nodes", user="nodes-user")
    assert refused.returncode == 1
    assert "you need the right to list in the whole cluster: " in refused.stderr

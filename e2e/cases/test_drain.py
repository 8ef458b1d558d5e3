"""`kubectl kfext drain`: which gangs leave a node, why the others stay, and `uncordon`."""

from e2e.cases.test_cli import kfext
from e2e.harness import nodes
from e2e.harness.jobs import Object, conditions, workers
from e2e.harness.pods import uids
from e2e.harness.space import Space
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
KUEUE = {"kueue.x-k8s.io/queue-name": "mine"}
REMAIN = 3
"""The exit code while jobs remain on the node."""


def cordon_and_taints(space: Space, node: str) -> tuple[bool, list[Object]]:
    """Return whether a node is cordoned, and its taints that kfext drain has set."""
    spec = space.kube.get(nodes.path(node))["spec"]
    taints = [taint for taint in spec.get("taints", []) if taint["key"] == names.DRAIN]
    return spec.get("unschedulable", False), taints


def gang_on(space: Space, *, labels: dict[str, str] | None = None) -> str:
    """Place a gang of four on one of two nodes; return the node."""
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("gang", 4, each=GPU, labels=labels or {}))
    (node,) = set(space.bound("gang", 4).values())
    space.phase("gang", "Placed")
    return node


def test_a_gang_that_did_not_opt_in_leaves_as_a_whole_only_with_force(space: Space) -> None:
    node = gang_on(space)
    before = uids(space, "gang")
    refused = kfext(space, "drain", node, "--timeout=60")
    assert (refused.returncode, cordon_and_taints(space, node)[0]) == (REMAIN, True)
    assert "ineligible: it set neither kfext.dev/migrate nor kfext.dev/preempt" in refused.stdout
    assert uids(space, "gang") == before

    forced = kfext(space, "drain", node, "--force", "--timeout=60")
    assert forced.returncode == 0, forced.stdout + forced.stderr
    nodes_by_pod = space.bound("gang", 4)
    assert len({*nodes_by_pod.values()} - {node}) == 1
    assert not set(uids(space, "gang").values()) & set(before.values())
    assert "Failed" not in conditions(space.job("gang"))

    assert kfext(space, "uncordon", node).returncode == 0
    assert cordon_and_taints(space, node) == (False, [])


def test_a_dry_run_names_the_gang_and_writes_nothing(space: Space) -> None:
    node = gang_on(space)
    dry = kfext(space, "drain", node, "--force", "--dry-run")
    assert (dry.returncode, cordon_and_taints(space, node)) == (REMAIN, (False, []))
    assert f"{space.name}/gang: it would save its work and leave" in dry.stdout


def test_a_job_that_kueue_manages_is_only_reported(space: Space) -> None:
    node = gang_on(space, labels=KUEUE)
    before = uids(space, "gang")
    forced = kfext(space, "drain", node, "--force", "--timeout=60")
    assert forced.returncode == REMAIN
    assert "ineligible: Kueue manages it: stop it there" in forced.stdout
    space.until(
        lambda: f"{node} is being drained: Kueue manages it" in stop_message(space),
        "its TrainingPlan shows the reason",
    )
    assert uids(space, "gang") == before


def test_a_user_who_may_not_write_nodes_drains_nothing(space: Space) -> None:
    node = gang_on(space)
    refused = kfext(space, "drain", node, "--force", user="drain-user")
    assert (refused.returncode, cordon_and_taints(space, node)) == (1, (False, []))
    assert "403 Forbidden" in refused.stderr


def stop_message(space: Space) -> str:
    """Return the message of the condition Stopped in the gang's TrainingPlan."""
    shown = space.view("gang").get("conditions", [])
    return next((each["message"] for each in shown if each["type"] == names.STOPPED), "")

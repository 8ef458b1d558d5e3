"""FlowCon and SpeCon in the model: jobs of one thread on nodes of one CPU."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from e2e.bench.model.flowcon import FlowCon, FlowCon2
from e2e.bench.model.mapped import Mapped
from e2e.bench.model.measure import ARMS, arms_of
from e2e.bench.model.specon import SpeCon
from e2e.bench.model.worlds import threads
from kfext.sim.cluster import Cluster, World
from kfext.sim.nodes import NodeSize
from kfext.sim.worlds import thread

NODES = {"node-0": NodeSize(1000), "node-1": NodeSize(1000)}
FAST = replace(thread("fast", 200), halves=2000.0)
"""Its loss falls to the end."""
FLAT = replace(thread("flat", 400), halves=20.0)
"""Its loss has converged after a tenth of its work."""


@pytest.mark.parametrize("arm", arms_of("threads-20-blind"))
def test_each_arm_ends_all_jobs(arm: str) -> None:
    cluster = ARMS[arm](threads(1, jobs=20, within=300.0), 1).run()
    assert cluster.over
    assert not cluster.operator.failed


def on_one_node(rule: Callable[[Cluster], Mapped], *names: str) -> tuple[Cluster, Mapped]:
    """Return a cluster under a rule, and the rule; the named jobs are on the first node."""
    rules: list[Mapped] = []

    def scheduler(cluster: Cluster) -> Mapped:
        rules.append(rule(cluster))
        rules[0].homes |= {f"uid-{name}": "node-0" for name in names}
        return rules[0]

    return Cluster(World(NODES, (FAST, FLAT)), 0, scheduler=scheduler), rules[0]


def test_flowcon_caps_a_converged_job_at_a_third_beside_one_other_job() -> None:
    cluster, rule = on_one_node(partial(FlowCon, alpha=0.001), "fast", "flat")
    cluster.at(250)
    assert isinstance(rule, FlowCon)
    assert rule.caps["uid-flat"] == pytest.approx(1 / 3)
    assert cluster.api.jobs["uid-flat"].training.share == pytest.approx(0.333, abs=0.001)


def test_specon_moves_a_slow_job_once_and_it_continues_from_its_checkpoint() -> None:
    cluster, rule = on_one_node(SpeCon, "fast", "flat")
    other = replace(FAST, name="more")
    rule.homes["uid-more"] = "node-0"
    cluster.submit(other)
    cluster.at(150)
    assert rule.homes == {"uid-fast": "node-0", "uid-more": "node-0", "uid-flat": "node-1"}
    flat = cluster.api.jobs["uid-flat"]
    assert [pod.pod.node_name for pod in flat.pods.values()] == ["node-1"]
    assert flat.training.lost < 20
    assert not cluster.operator.failed


def test_flowcon_2_places_a_job_on_the_node_with_the_smallest_sum_of_caps() -> None:
    cluster, rule = on_one_node(FlowCon2, "fast")
    cluster.at(20)
    assert rule.homes == {"uid-fast": "node-0", "uid-flat": "node-1"}

"""kfext's verdicts match the verdicts of the real kube-scheduler and API server."""

import pytest

from e2e.harness import quota_verdicts, verdicts
from e2e.testbed.cluster import Testbed

COVERED = (
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) had untolerated taint(s)",
    "node(s) were unschedulable",
    "node(s) didn't have free ports for the requested pod ports",
    "Too many pods",
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient ephemeral-storage",
    "Insufficient nvidia.com/gpu",
    "Insufficient example.com/card",
    "Insufficient hugepages-2Mi",
)


@pytest.fixture(scope="module")
def compared(testbed: Testbed) -> list[verdicts.Compared]:
    return verdicts.compare(testbed, seed=1, nodes=60, pinned_rounds=5, free_rounds=4)


def test_kfext_and_kube_scheduler_differ_only_in_documented_classes(
    compared: list[verdicts.Compared],
) -> None:
    differing = [pair for pair in compared if not (pair.agreed and pair.template_agreed)]
    assert [str(pair) for pair in differing if not pair.explained] == []


def test_pods_were_bound_and_were_refused_for_every_cause_that_kfext_models(
    compared: list[verdicts.Compared],
) -> None:
    causes = {cause for pair in compared for cause in pair.causes}
    assert [cause for cause in COVERED if cause not in causes] == []
    assert sum(bool(pair.bound) for pair in compared) > len(compared) // 5
    assert len(compared) == 5 * 60 + 4 * 60 // 4  # a pod for each node, then for each group


def test_kfext_and_the_api_server_agree_on_every_quota(testbed: Testbed) -> None:
    comparison = quota_verdicts.compare(testbed, seed=1, namespaces=15, pods=12)
    assert [str(pair) for pair in comparison if not pair.agreed] == []
    assert any("exceeded quota" in pair.server_message for pair in comparison)
    assert any("must specify" in pair.server_message for pair in comparison)
    assert sum(pair.admitted for pair in comparison) > len(comparison) // 5

"""kube-scheduler's configuration: the default profile, and a greedy one to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

GREEDY = "greedy"
"""The schedulerName of pods that go, one by one, to the fullest node that has room for them."""
# By default (50 requests a second) the scheduler binds no more than 55 pods a second.
_FAST = {"qps": 2000, "burst": 4000}
# No score but this one: what else the default profile prefers would spread the pods again.
_FULLEST_FIRST = {
    "schedulerName": GREEDY,
    "plugins": {
        "score": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 1}],
        }
    },
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                }
            },
        }
    ],
}


def write_configuration(testbed: Testbed, *, kubeconfig: Path) -> Path:
    """Write the scheduler's configuration file and return its path."""
    content: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            **(_FAST if testbed.fast else {}),
        },
        "profiles": [{"schedulerName": "default-scheduler"}, _FULLEST_FIRST],
    }
    path = testbed.folder / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path

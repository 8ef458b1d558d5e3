"""Recorded answers of a real kubelet and a real metrics-server, of a pod that may use 200m of CPU.

They were recorded on the testbed: a kubelet of Kubernetes 1.35.4, without its lines about swap, and
metrics-server 0.9.0. Only the namespace was given another name.
"""

import pytest

from kfext.kube.kubelet import parsed
from kfext.kube.metrics_api import decoded
from kfext.model.cpu_use import CpuReading
from kfext.model.timestamps import timestamp
from tests.contract.manifests import REPOSITORY

ANSWERS = REPOSITORY / "tests" / "contract" / "usage"


def test_of_what_a_kubelet_answers_the_counter_of_each_pod_and_of_the_node_is_read() -> None:
    found = parsed((ANSWERS / "kubelet-v1.35.4.txt").read_bytes(), read=1.0)
    assert len(found.pods) == 3
    busy = CpuReading(6.542586718, at=1795366797.808, read=1.0)
    assert found.pods["team", "busy-master-0"] == busy
    assert found.node == CpuReading(51081.06624957, at=1795366794.651, read=1.0)


def test_of_what_metrics_server_answers_cores_and_window_are_read() -> None:
    found = decoded((ANSWERS / "metrics-server-v0.9.0.json").read_bytes())
    assert found.keys() == {"busy-master-0"}
    use = found["busy-master-0"]
    assert use.cores == pytest.approx(0.200132778)
    assert (use.at, use.window) == (timestamp("2026-11-22T16:59:39Z"), 8.282)

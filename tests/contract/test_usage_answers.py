"""An answer of metrics-server 0.9.0, recorded on the testbed, about a pod with a limit of 200m.

Only the namespace was renamed.
"""

import pytest

from kfext.kube.usage import uses_of
from kfext.model.timestamps import timestamp
from tests.contract.manifests import REPOSITORY

ANSWERS = REPOSITORY / "tests" / "contract" / "usage"


def test_cores_and_window_are_read_from_an_answer_of_metrics_server() -> None:
    result = uses_of((ANSWERS / "metrics-server-v0.9.0.json").read_bytes())
    assert result.keys() == {"busy-master-0"}
    use = result["busy-master-0"]
    assert use.cores == pytest.approx(0.200132778)
    assert (use.at, use.window) == (timestamp("2026-11-22T16:59:39Z"), 8.282)

import pytest

from e2e.demo.claims import by_node, pod_run
from tests.unit.demo.rounds import pod

NOW = 5000.0
RUNNING = {"running": {"startedAt": "1970-01-01T00:00:20Z"}}
ENDED = {"terminated": {"startedAt": "1970-01-01T00:00:20Z", "finishedAt": "1970-01-01T00:00:50Z"}}
STATES = {
    "a pod that waits has not started": ({"waiting": {}}, (None, NOW)),
    "a pod that runs has not ended": (RUNNING, (20.0, NOW)),
    "a pod that has ended has both times": (ENDED, (20.0, 50.0)),
}


@pytest.mark.parametrize(("state", "times"), STATES.values(), ids=STATES.keys())
def test_the_times_of_a_pod(state: dict[str, object], times: tuple[float | None, float]) -> None:
    labels = {"job-name": "ddp", "replica-type": "worker", "replica-index": "3"}
    body = {
        "metadata": {
            "creationTimestamp": "1970-01-01T00:00:10Z",
            "labels": {f"training.kubeflow.org/{key}": word for key, word in labels.items()},
        },
        "spec": {},
        "status": {"containerStatuses": [{"state": state}]},
    }
    run = pod_run(body, NOW)
    assert (run.job, run.replica, run.node, run.created) == ("ddp", "worker-3", "", 10.0)
    assert (run.started, run.ended) == times


def test_pods_without_a_node_come_last() -> None:
    runs = [pod("a", "x", node=node) for node in ("", "node-1", "node-0", "node-1")]
    assert {node: len(found) for node, found in by_node(runs).items()} == {
        "node-0": 1, "node-1": 2, "": 1,
    }  # fmt: skip
    assert list(by_node(runs)) == ["node-0", "node-1", ""]

"""Which gangs count as half: partly bound for longer than a swap, and never whole before."""

import pytest

from e2e.harness.half_gangs import GRACE_SECONDS, Gang
from e2e.harness.jobs import TRAIN_JOB, job, train_job, workers
from e2e.harness.kube import Object

_PODS = 4
JOBS = {
    "a PyTorchJob": workers("gang", _PODS),
    "a TFJob": job("gang", {"PS": 1, "Worker": 3}, kind="TFJob"),
    "a TrainJob": train_job("gang", _PODS, resources={}),
}
# Second -> the number of bound pods; and how many seconds each time the gang was half.
HISTORIES: dict[str, tuple[dict[float, int], list[float]]] = {
    "all pods are bound at once": ({0: 0, 1: 4, 60: 4}, []),
    "the pods are bound within the grace": ({0: 0, 1: 2, GRACE_SECONDS: 3, 6: 4}, []),
    "the last pod is never bound": ({0: 0, 1: 3, 30: 3, 61: 3}, [60]),
    "it is half twice": ({0: 2, 10: 2, 11: 0, 20: 1, 40: 1}, [10, 20]),
    "a member is lost after it was whole": ({0: 4, 10: 3, 60: 3}, []),
}


@pytest.mark.parametrize("manifest", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize(("bound", "half"), HISTORIES.values(), ids=HISTORIES)
def test_a_gang_is_half_while_some_of_its_pods_are_bound_and_others_are_not(
    manifest: Object, bound: dict[float, int], half: list[float]
) -> None:
    gang = Gang("gang")
    for at, count in bound.items():
        pods = [_pod(f"pod-{n}", node="node" if n < count else None) for n in range(_PODS)]
        gang.observe(manifest, pods, at=at)
    assert gang.wanted == _PODS
    assert gang.half == half


@pytest.mark.parametrize("manifest", JOBS.values(), ids=JOBS)
def test_a_start_is_the_end_of_a_suspension(manifest: Object) -> None:
    waits = {"suspend": True} if manifest["kind"] == TRAIN_JOB else {"runPolicy": {"suspend": True}}
    gang = Gang("gang")
    for at, spec in enumerate([waits, {}, waits, {}]):
        gang.observe({**manifest, "spec": {**manifest["spec"], **spec}}, [], at=at)
    assert gang.starts == 2


def _pod(name: str, node: str | None) -> Object:
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}

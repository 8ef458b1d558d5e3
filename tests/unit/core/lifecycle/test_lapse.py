"""For how long a plan claims for pods that kfext does not hold back."""

import math
from collections.abc import Sequence

import pytest

from kfext.core.lifecycle.lapse import claims_last
from kfext.model.pod import Pod
from tests.builders import JobBuilder, situation_of
from tests.unit.core.lifecycle.cases import plan, three, worker, workers

OURS, KUEUE = three().resumed(), three().resumed().queued_by_kueue()
CASES: dict[str, tuple[JobBuilder, Sequence[Pod], float]] = {
    "its pods are being created, and kfext suspends it if they do not come": (OURS, [], math.inf),
    "its pods are gated": (OURS, workers(gated=True), math.inf),
    "its pods are pinned, and kfext deletes them if they are not bound": (
        OURS,
        workers(pinned="a"),
        math.inf,
    ),
    "a pod that kfext's webhook missed": (OURS, [*workers(gated=True)[1:], worker(0)], 50.0),
    "such a pod is being deleted": (OURS, [worker(0, deleting=True)], math.inf),
    "such a pod is bound": (OURS, workers(bound="a"), math.inf),
    "Kueue's job without pods": (KUEUE, [], 50.0),
    "Kueue's job with one pod missing": (KUEUE, workers(pinned="a")[1:], 50.0),
    "Kueue's job waits at the gate": (KUEUE, workers(gated=True), 50.0),
    "Kueue's job is pinned": (KUEUE, workers(pinned="a"), math.inf),
    "Kueue's job runs": (KUEUE, workers(bound="a"), math.inf),
    "suspended": (three().suspended().queued_by_kueue(), [], math.inf),
    "ended": (three().resumed().queued_by_kueue().condition("Failed"), [], math.inf),
}


@pytest.mark.parametrize(("made", "pods", "want"), CASES.values(), ids=CASES)
def test_when_the_claims_of_a_plan_end(made: JobBuilder, pods: Sequence[Pod], want: float) -> None:
    unbound = {one.uid: 10.0 for one in pods if not one.node_name}
    quiet = 10.0 if len(pods) < 3 else 0.0
    of = situation_of(made.build(), tuple(pods), plan("a", "a", "a"), unbound=unbound, quiet=quiet)
    assert claims_last(of) == want


def test_without_a_plan_nothing_is_claimed() -> None:
    assert claims_last(situation_of(KUEUE.build(), (), None, quiet=99.0)) == math.inf

"""The caps of a job on several nodes."""

from dataclasses import replace

import pytest

from kfext.core.companion.contest import contests
from kfext.core.companion.pace import caps_on_nodes
from kfext.core.companion.signals import JobSignal
from kfext.core.progress.reported import GrowthState
from tests.unit.core.companion.jobs import job, pod, signals

SPREAD = job(
    "spread", pod("here", use=700), pod("there", node="n2", use=700), growth=0.1, left=None
)
GROWER = job("grower", pod("g", use=700), growth=0.3)
DONE = replace(job("done", pod("d", node="n2", use=700), growth=0.0), state=GrowthState.COMPLETING)
IDLE = replace(DONE, pods=(pod("d", node="n2", use=200),))
LITTLE = replace(SPREAD, pods=(pod("here", use=100), pod("there", node="n2", use=700)))
CAPS: dict[str, tuple[tuple[JobSignal, ...], tuple[int, int]]] = {
    "the smallest share holds on both, and the rest goes to the job beside it": (
        (SPREAD, GROWER, DONE),
        (466, 466),
    ),
    "a node that has enough for all is left out": ((SPREAD, GROWER, IDLE), (466, 1400)),
    "a node on which it takes less than its share sets no pace": (
        (LITTLE, GROWER, DONE),
        (466, 651),
    ),
}


@pytest.mark.parametrize(("jobs", "want"), CAPS.values(), ids=CAPS)
def test_the_caps_of_a_job_on_two_nodes(jobs: tuple[JobSignal, ...], want: tuple[int, int]) -> None:
    found = caps_on_nodes(jobs, contests(jobs, signals(*jobs)), budget=lambda _: 0.1)
    assert (found["n1"]["spread"], found["n2"]["spread"]) == want


def test_what_a_job_cannot_use_on_a_node_is_left_to_the_others_there() -> None:
    jobs = (SPREAD, GROWER, DONE)
    found = caps_on_nodes(jobs, contests(jobs, signals(*jobs)), budget=lambda _: 0.1)
    assert found["n2"]["done"] == int(0.93 * 1400) - 466

"""Jobs that share a node of one CPU: resize shortens the mean time, and no job ends later."""

import pytest

from kfext.core.lifecycle.steps import Resize
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.arms import ARMS
from kfext.sim.cluster import Cluster
from kfext.sim.compare import compare, run_of
from kfext.sim.driver import Written
from kfext.sim.worlds import WORLDS
from tests.unit.sim.rules import Rules

OFF = TrainingPolicy("off", companion={"resize": PolicyChoice(Mode.OFF)})
ONLY_RESIZE = "only-resize"


@pytest.mark.parametrize(("world", "sooner"), [("node-3", 0.10), ("node-10", 0.27)])
def test_the_mean_job_ends_sooner_and_none_later(world: str, sooner: float) -> None:
    """Fair sojourn guarantees that no job ends later if its length is known from its start.

    Lengths are known some seconds late, and the favourite changes when the companion decides.
    """
    (result,) = compare([ONLY_RESIZE], range(5), run_of(ARMS, WORLDS[world]))
    assert result.unended == 0
    assert result.against < -sooner
    assert result.worst < 1.02


def test_a_favourite_is_known_before_its_use_is_measured() -> None:
    seed = 8  # the first job has far less to do than the second
    cluster = Cluster(WORLDS["node-3"](seed), seed)
    cluster.driver.measure = lambda _pod: None
    cluster.at(50)  # kfext's first decision that knows the length of both jobs
    raised = [written.job for written in cluster.driver.written if _resizes(written)]
    assert raised == ["job-0"]


@pytest.mark.parametrize(
    "policy", [pytest.param(None, id="by default"), pytest.param(OFF, id="off")]
)
def test_limits_stay_and_requests_fit_the_node(policy: TrainingPolicy | None) -> None:
    for seed in range(5):
        rules = Rules(Cluster(WORLDS["node-10"](seed), seed, policy=policy))
        rules.cluster.run()
        assert rules.ended() == []
        assert any(map(_resizes, rules.cluster.driver.written)) is (policy is None)


def _resizes(written: Written) -> bool:
    return isinstance(written.step, Resize)

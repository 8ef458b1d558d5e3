"""The questions of a policy about a job: whether it may look at it, and its parameters."""

import pytest

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice
from kfext.state.running.policy import Condition, Parameter, Policy
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job

DEPTH = Parameter(2.0, 0.0, 9.0, "how deep it is")
DREAMING = Condition("Dreaming", "Dream", "DreamRefused", frozenset({"DreamRefused"}))
DREAM = Policy("dream", "dreams", DREAMING, lambda _: Mode.ACT, "none", {"depth": DEPTH})


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(job(policy="dream"), True, id="a job that opted in"),
        pytest.param(job(policy="resize"), False, id="a job that opted in to another policy"),
        pytest.param(job(policy="dream", disabled=frozenset(["dream"])), False, id="it rests"),
        pytest.param(
            job(policy="dream", disabled=frozenset(["other"])), True, id="another is disabled"
        ),
    ],
)
def test_which_jobs_a_policy_looks_at(of: JobSignal, *, want: bool) -> None:
    assert DREAM.applies_to(of) is want


def test_a_parameter_comes_from_the_settings_or_is_the_default() -> None:
    chosen = Settings(companion={"dream": PolicyChoice(parameters={"depth": 3.0})})
    assert DREAM.parameter(Settings(), "depth") == 2.0
    assert DREAM.parameter(chosen, "depth") == 3.0

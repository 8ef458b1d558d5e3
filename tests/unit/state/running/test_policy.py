"""Policies: the jobs that a policy may decide on, and its parameters."""

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
    ("signal", "want"),
    [
        pytest.param(job(policy="dream"), True, id="a job that opted in"),
        pytest.param(job(policy="resize"), False, id="a job that opted in to another policy"),
        pytest.param(job(policy="dream", disabled=frozenset(["dream"])), False, id="disabled"),
        pytest.param(
            job(policy="dream", disabled=frozenset(["other"])), True, id="another is disabled"
        ),
    ],
)
def test_a_policy_decides_only_on_jobs_that_opted_in(signal: JobSignal, *, want: bool) -> None:
    assert DREAM.applies_to(signal) is want


def test_a_parameter_comes_from_the_settings_or_is_the_default() -> None:
    chosen = Settings(companion={"dream": PolicyChoice(parameters={"depth": 3.0})})
    assert DREAM.parameter(Settings(), "depth") == 2.0
    assert DREAM.parameter(chosen, "depth") == 3.0

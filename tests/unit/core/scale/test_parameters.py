"""How the policy that scales workers is to run for a job."""

import pytest

from kfext.core.scale.parameters import DEFAULTS, NAME, choice_of, parameter
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Range
from kfext.model.policy import Mode, PolicyChoice

RANGE = Range(2, 8)
OBSERVES = {NAME: PolicyChoice(mode=Mode.OBSERVE, parameters={"wait": 5.0})}
CHOICES = {
    "a job that opted in": (Settings(elastic=RANGE), Mode.ACT),
    "a job that did not": (Settings(), Mode.OFF),
    "an administrator lets it only observe": (
        Settings(elastic=RANGE, companion=OBSERVES),
        Mode.OBSERVE,
    ),
    "the mode is of another policy": (
        Settings(elastic=RANGE, companion={"resize": PolicyChoice(mode=Mode.OFF)}),
        Mode.ACT,
    ),
    "a namespace that is not opted in": (Settings(elastic=RANGE, managed=False), Mode.OFF),
}


@pytest.mark.parametrize(("settings", "want"), CHOICES.values(), ids=CHOICES)
def test_the_policy_acts_for(settings: Settings, want: Mode) -> None:
    assert choice_of(settings).mode is want


def test_a_parameter_that_no_administrator_sets_has_its_default() -> None:
    settings = Settings(elastic=RANGE, companion=OBSERVES)
    assert parameter(settings, "wait") == 5.0
    assert {parameter(settings, name) for name in DEFAULTS.keys() - {"wait"}} == {
        DEFAULTS[name] for name in DEFAULTS.keys() - {"wait"}
    }

"""The parameters of scaling, and which jobs it may look at."""

import pytest

from kfext.core.scale.parameters import DEFAULTS, choice_of, parameter
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.policy import Mode, PolicyChoice

SOME = Range(1, 4)
OBSERVED = {"scale": PolicyChoice(Mode.OBSERVE, {"wait": 5.0, "unknown": 1.0})}
MODES: dict[str, tuple[Settings, Mode]] = {
    "a job that opts in is scaled": (Settings(elastic=SOME), Mode.ACT),
    "one that does not is left alone": (Settings(), Mode.OFF),
    "as is one of a namespace that is not managed": (
        Settings(elastic=SOME, managed=False),
        Mode.OFF,
    ),
    "an administrator decides": (Settings(elastic=SOME, companion=OBSERVED), Mode.OBSERVE),
    "but not against the job": (Settings(companion=OBSERVED), Mode.OFF),
    "what is set for another policy does not count": (
        Settings(elastic=SOME, companion={"resize": PolicyChoice(Mode.OFF)}),
        Mode.ACT,
    ),
}


@pytest.mark.parametrize(("settings", "want"), MODES.values(), ids=MODES)
def test_the_mode(settings: Settings, want: Mode) -> None:
    assert choice_of(settings).mode is want


def test_a_parameter_is_the_administrators_or_the_default() -> None:
    settings = Settings(companion=OBSERVED)
    assert parameter(settings, "wait") == 5.0
    assert parameter(settings, "idle") == DEFAULTS["idle"] == 60.0

"""Which policies apply to a job."""

from typing import Any

import pytest

from kfext import names
from kfext.core.settings.resolve import settings_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.namespace import Namespace
from kfext.model.policy import Mode, PolicyChoice, parse_policy
from kfext.state.running.cpu.record import CPU_POLICIES
from kfext.state.running.policy import chosen_policies
from kfext.state.running.registry import POLICIES
from kfext.state.running.size.scale import SCALE
from tests.builders import job

MANAGED = {names.MANAGED: "true"}
ALL = {policy.name: "act" for policy in CPU_POLICIES}
SHOWN = dict.fromkeys(ALL, "observe")


def chosen(
    resize: str = "",
    *,
    companion: dict[str, Any] | None = None,
    default: str = "",
    managed: bool = True,
) -> dict[str, str]:
    """By name of a policy its mode, for a job with an annotation and a TrainingPolicy."""
    builder = job().worker(2)
    if resize:
        builder.annotated(names.RESIZE, resize)
    spec = {"companion": companion or {}, "settings": {"resize": default} if default else {}}
    settings = settings_of(
        builder.build(),
        Namespace("team", MANAGED if managed else {}),
        [parse_policy({"metadata": {"name": "p"}, "spec": spec})],
    )
    return {name: choice.mode for name, choice in chosen_policies(POLICIES, settings).items()}


CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "without the setting, none": (chosen(), {}),
    "off, none": (chosen("off", default="cpu"), {}),
    "cpu, all of them act": (chosen("cpu"), ALL),
    "observe, all of them only show": (chosen("observe"), SHOWN),
    "what the administrator has switched off stays off": (
        chosen("cpu", companion={"resize": {"mode": "off"}, "shift": {"mode": "off"}}),
        {},
    ),
    "each policy has a mode of its own": (
        chosen("cpu", companion={"resize": {"mode": "observe"}}),
        {**ALL, "resize": "observe"},
    ),
    "a job that observes gets no policy that is off": (
        chosen("observe", companion={"shift": {"mode": "off"}, "resize": {"mode": "act"}}),
        {"resize": "observe"},
    ),
    "a policy that acts opts no job in": (chosen(companion={"resize": {"mode": "act"}}), {}),
    "a default of the administrator opts in": (chosen(default="cpu"), ALL),
    "nothing in a namespace that is not managed": (chosen("cpu", managed=False), {}),
    "an unknown policy applies nowhere": (
        chosen("cpu", companion={"speed": {"mode": "act"}}),
        ALL,
    ),
}


@pytest.mark.parametrize(("found", "want"), CASES.values(), ids=CASES)
def test_which_policies_apply_to_a_job(found: dict[str, str], want: dict[str, str]) -> None:
    assert found == want


@pytest.mark.parametrize("resize", ["observe", "cpu"])
def test_the_parameters_of_the_administrator_are_kept(resize: str) -> None:
    spec = {"companion": {"resize": {"parameters": {"depth": 0.05}}}}
    settings = settings_of(
        job().annotated(names.RESIZE, resize).build(),
        Namespace("team", MANAGED),
        [parse_policy({"spec": spec})],
    )
    assert chosen_policies(POLICIES, settings)["resize"].parameters == {"depth": 0.05}


SOME = Range(1, 4)
OBSERVED = {"scale": PolicyChoice(Mode.OBSERVE, {"wait": 5.0, "unknown": 1.0})}
MODES: dict[str, tuple[Settings, Mode]] = {
    "a job that opts in is scaled": (Settings(elastic=SOME), Mode.ACT),
    "a job that does not opt in is not scaled": (Settings(), Mode.OFF),
    "a job of an unmanaged namespace is not scaled": (
        Settings(elastic=SOME, managed=False),
        Mode.OFF,
    ),
    "an administrator decides": (Settings(elastic=SOME, companion=OBSERVED), Mode.OBSERVE),
    "an administrator does not overrule the job": (Settings(companion=OBSERVED), Mode.OFF),
    "what is set for another policy does not count": (
        Settings(elastic=SOME, companion={"resize": PolicyChoice(Mode.OFF)}),
        Mode.ACT,
    ),
}


@pytest.mark.parametrize(("settings", "want"), MODES.values(), ids=MODES)
def test_the_mode_of_a_policy(settings: Settings, want: Mode) -> None:
    assert SCALE.effective(settings).mode is want


def test_a_parameter_comes_from_the_administrator_or_is_the_default() -> None:
    settings = Settings(companion=OBSERVED)
    assert SCALE.parameter(settings, "wait") == 5.0
    assert SCALE.parameter(settings, "idle") == SCALE.parameters["idle"].default == 10.0

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
ALL_ACT = {policy.name: "act" for policy in CPU_POLICIES}
ALL_OBSERVE = dict.fromkeys(ALL_ACT, "observe")


def modes(
    resize: str = "",
    *,
    companion: dict[str, Any] | None = None,
    default: str = "",
    managed: bool = True,
) -> dict[str, str]:
    """Return the mode of each chosen policy, by name, for a job in a namespace.

    `resize`: its annotation; empty means that it has none.
    `companion`, `default`: `spec.companion` and the default of `resize` in a TrainingPolicy.
    """
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
    "no annotation: no policy": (modes(), {}),
    "off: no policy": (modes("off", default="cpu"), {}),
    "cpu: all policies act": (modes("cpu"), ALL_ACT),
    "observe: all policies observe": (modes("observe"), ALL_OBSERVE),
    "a policy that the administrator has switched off stays off": (
        modes("cpu", companion={"resize": {"mode": "off"}, "shift": {"mode": "off"}}),
        {},
    ),
    "each policy has its own mode": (
        modes("cpu", companion={"resize": {"mode": "observe"}}),
        {**ALL_ACT, "resize": "observe"},
    ),
    "observe on the job switches no policy on": (
        modes("observe", companion={"shift": {"mode": "off"}, "resize": {"mode": "act"}}),
        {"resize": "observe"},
    ),
    "the mode act opts no job in": (modes(companion={"resize": {"mode": "act"}}), {}),
    "a default of the administrator opts in": (modes(default="cpu"), ALL_ACT),
    "no policy in a namespace that is not managed": (modes("cpu", managed=False), {}),
    "unknown policies are ignored": (modes("cpu", companion={"speed": {"mode": "act"}}), ALL_ACT),
}


@pytest.mark.parametrize(("chosen", "want"), CASES.values(), ids=CASES)
def test_the_modes_of_the_policies_of_a_job(chosen: dict[str, str], want: dict[str, str]) -> None:
    assert chosen == want


@pytest.mark.parametrize("resize", ["observe", "cpu"])
def test_the_parameters_of_the_administrator_are_kept(resize: str) -> None:
    spec = {"companion": {"resize": {"parameters": {"depth": 0.05}}}}
    settings = settings_of(
        job().annotated(names.RESIZE, resize).build(),
        Namespace("team", MANAGED),
        [parse_policy({"spec": spec})],
    )
    assert chosen_policies(POLICIES, settings)["resize"].parameters == {"depth": 0.05}


RANGE = Range(1, 4)
OBSERVED = {"scale": PolicyChoice(Mode.OBSERVE, {"wait": 5.0, "unknown": 1.0})}
MODES: dict[str, tuple[Settings, Mode]] = {
    "a job that opts in is scaled": (Settings(elastic=RANGE), Mode.ACT),
    "a job that does not opt in is not scaled": (Settings(), Mode.OFF),
    "a job of an unmanaged namespace is not scaled": (
        Settings(elastic=RANGE, managed=False),
        Mode.OFF,
    ),
    "the administrator may restrict the mode": (
        Settings(elastic=RANGE, companion=OBSERVED),
        Mode.OBSERVE,
    ),
    "the administrator cannot opt a job in": (Settings(companion=OBSERVED), Mode.OFF),
    "the mode of a different policy does not matter": (
        Settings(elastic=RANGE, companion={"resize": PolicyChoice(Mode.OFF)}),
        Mode.ACT,
    ),
}


@pytest.mark.parametrize(("settings", "want"), MODES.values(), ids=MODES)
def test_the_mode_of_the_policy_scale(settings: Settings, want: Mode) -> None:
    assert SCALE.effective(settings).mode is want


def test_a_parameter_comes_from_the_administrator_or_is_the_default() -> None:
    settings = Settings(companion=OBSERVED)
    assert SCALE.parameter(settings, "wait") == 5.0
    assert SCALE.parameter(settings, "idle") == SCALE.parameters["idle"].default == 10.0

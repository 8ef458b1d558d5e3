"""Which policies a job has opted in to."""

from typing import Any

import pytest

from kfext import names
from kfext.core.companion.choices import chosen_policies
from kfext.core.companion.registry import POLICIES
from kfext.core.settings.resolve import settings_of
from kfext.model.namespace import Namespace
from kfext.model.policy import parse_policy
from tests.builders import job

MANAGED = {names.MANAGED: "true"}
ALL = {policy.name: "act" for policy in POLICIES}
SHOWN = dict.fromkeys(ALL, "observe")


def chosen(
    resize: str = "",
    *,
    companion: dict[str, Any] | None = None,
    default: str = "",
    managed: bool = True,
) -> dict[str, str]:
    """By name of a policy its mode, for a job with an annotation and a TrainingPolicy."""
    made = job().worker(2)
    if resize:
        made.annotated(names.RESIZE, resize)
    spec = {"companion": companion or {}, "settings": {"resize": default} if default else {}}
    settings = settings_of(
        made.build(),
        Namespace("team", MANAGED if managed else {}),
        [parse_policy({"metadata": {"name": "p"}, "spec": spec})],
    )
    return {name: choice.mode for name, choice in chosen_policies(settings).items()}


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
    "a policy that is not known holds nowhere": (
        chosen("cpu", companion={"speed": {"mode": "act"}}),
        ALL,
    ),
}


@pytest.mark.parametrize(("found", "want"), CASES.values(), ids=CASES)
def test_which_policies_hold_for_a_job(found: dict[str, str], want: dict[str, str]) -> None:
    assert found == want


@pytest.mark.parametrize("resize", ["observe", "cpu"])
def test_the_parameters_of_the_administrator_are_kept(resize: str) -> None:
    spec = {"companion": {"resize": {"parameters": {"budget": 0.05}}}}
    settings = settings_of(
        job().annotated(names.RESIZE, resize).build(),
        Namespace("team", MANAGED),
        [parse_policy({"spec": spec})],
    )
    assert chosen_policies(settings)["resize"].parameters == {"budget": 0.05}

from typing import Any

import pytest

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy, parse_policy, policy_for


def policy(name: str, *, weight: int = 0, selector: Any = None) -> TrainingPolicy:
    spec = {"weight": weight, "namespaceSelector": selector or {}}
    return parse_policy({"metadata": {"name": name}, "spec": spec})


CHOICES = {
    "no policy: the defaults": ([], ""),
    "the highest weight": ([policy("a", weight=1), policy("b", weight=5)], "b"),
    "the first name among equal weights": ([policy("b"), policy("a")], "a"),
    "only policies that select the namespace": (
        [policy("a", selector={"matchLabels": {"team": "red"}}), policy("b")],
        "b",
    ),
    "negative weights lose": ([policy("a", weight=-1), policy("b")], "b"),
}


@pytest.mark.parametrize(("policies", "want"), CHOICES.values(), ids=CHOICES)
def test_which_policy_applies(policies: list[TrainingPolicy], want: str) -> None:
    assert policy_for(policies, {"team": "blue"}).name == want


SELECTORS = {
    "an empty selector selects everything": ({}, True),
    "equal label": ({"matchLabels": {"team": "blue"}}, True),
    "other label": ({"matchLabels": {"team": "red"}}, False),
    "one of several values": (
        {"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]},
        True,
    ),
    "none of several values": (
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]},
        False,
    ),
    "none of several values, without the label": (
        {"matchExpressions": [{"key": "floor", "operator": "NotIn", "values": ["1"]}]},
        True,
    ),
    "a present label": ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
    "an absent label": ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    "an unknown operator selects nothing": (
        {"matchExpressions": [{"key": "team", "operator": "Like"}]},
        False,
    ),
}


@pytest.mark.parametrize(("selector", "want"), SELECTORS.values(), ids=SELECTORS)
def test_whether_a_selector_selects_a_namespace(selector: dict[str, Any], *, want: bool) -> None:
    assert policy("p", selector=selector).selector.matches({"team": "blue"}) is want


DURATIONS = {
    "seconds": ("90s", 90.0),
    "minutes": ("5m", 300.0),
    "mixed": ("1h30m", 5400.0),
    "zero": ("0s", 0.0),
    "absent": (None, 60.0),
    "no unit": ("90", 60.0),
    "a malformed duration": ("soon", 60.0),
    "a number": (90, 60.0),
}


@pytest.mark.parametrize(("written", "want"), DURATIONS.values(), ids=DURATIONS)
def test_a_duration_in_seconds(written: Any, want: float) -> None:
    raw = {"spec": {"placement": {"bindTimeout": written}}}
    assert parse_policy(raw).placement.bind_timeout == want


RELEASES: dict[str, tuple[Any, float | None]] = {
    "auto": ("auto", None),
    "absent is auto": (None, None),
    "a time": ("2m", 120.0),
    "a list is the default": ([], None),
}


@pytest.mark.parametrize(("written", "want"), RELEASES.values(), ids=RELEASES)
def test_the_time_until_a_release(written: Any, want: float | None) -> None:
    raw = {"spec": {"placement": {"releaseAfter": written}}}
    assert parse_policy(raw).placement.release_after == want


BURSTS: dict[str, tuple[Any, int]] = {
    "a number": (8, 8000),
    "millicores": ("500m", 500),
    "0": ("0", 0),
    "absent": (None, 4000),
    "a negative number": ("-1", 4000),
    "a malformed amount": ("much", 4000),
}


@pytest.mark.parametrize(("written", "want"), BURSTS.values(), ids=BURSTS)
def test_the_assumed_burst(written: Any, want: int) -> None:
    raw = {"spec": {"placement": {"assumedBurst": written}}}
    assert parse_policy(raw).placement.assumed_burst == want


def test_settings_get_the_full_annotation_keys() -> None:
    assert parse_policy({"spec": {"settings": {"colocation": "off"}}}).settings == {
        "kfext.dev/colocation": "off"
    }


COMPANION_CHOICES: dict[str, tuple[Any, PolicyChoice]] = {
    "empty": ({}, PolicyChoice(Mode.ACT)),
    "observe": ({"mode": "observe"}, PolicyChoice(Mode.OBSERVE)),
    "off": ({"mode": "off"}, PolicyChoice(Mode.OFF)),
    "a mode of a later version": ({"mode": "dream"}, PolicyChoice(Mode.OFF)),
    "a malformed mode": ({"mode": ["act"]}, PolicyChoice(Mode.OFF)),
    "parameters": (
        {"parameters": {"budget": 0.1, "interval": 60}},
        PolicyChoice(parameters={"budget": 0.1, "interval": 60.0}),
    ),
    "parameters that are not numbers": (
        {"parameters": {"a": "1", "b": True, "c": float("nan"), "d": 10**400, "e": None}},
        PolicyChoice(),
    ),
    "unreadable values": ("act", PolicyChoice()),
}


@pytest.mark.parametrize(("written", "want"), COMPANION_CHOICES.values(), ids=COMPANION_CHOICES)
def test_the_mode_of_a_policy_of_the_companion(written: Any, want: PolicyChoice) -> None:
    assert parse_policy({"spec": {"companion": {"resize": written}}}).companion == {"resize": want}


@pytest.mark.parametrize("written", ["0-9", "9-8", "1-65536", "1", "a-b", f"{'9' * 5000}-1", 5, []])
def test_a_malformed_range_of_ports_is_the_default(written: Any) -> None:
    policy = parse_policy({"spec": {"network": {"portRange": written}}})
    assert policy.network.port_range == (20000, 29999)


FLAGS: dict[str, tuple[Any, bool]] = {
    "on": (True, True),
    "off": (False, False),
    "a string is the default": ("no", True),
    "a list is the default": ([], True),
    "an object is the default": ({"a": 1}, True),
}


@pytest.mark.parametrize(("written", "want"), FLAGS.values(), ids=FLAGS)
def test_whether_pods_may_be_born_pinned(written: Any, want: bool) -> None:
    raw = {"spec": {"placement": {"bornPinned": written}}}
    assert parse_policy(raw).placement.born_pinned is want


MODES: dict[str, tuple[Any, Mode]] = {
    "by default": (None, Mode.OBSERVE),
    "with only a parameter": ({"parameters": {"wait": 60}}, Mode.OBSERVE),
    "with the mode of its administrator": ({"mode": "act"}, Mode.ACT),
}


@pytest.mark.parametrize(("written", "want"), MODES.values(), ids=MODES)
def test_a_policy_that_stops_jobs_only_observes_by_default(written: Any, want: Mode) -> None:
    spec = {"companion": {"preempt": written} if written else {}}
    chosen = parse_policy({"spec": spec}).companion
    assert Settings(companion=chosen).choice("preempt", Mode.ACT).mode is want

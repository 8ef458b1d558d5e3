"""The limits, usage and scopes of a ResourceQuota."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.bounds import MAX_VALUES
from kfext.model.charge import PodCharge
from kfext.model.quota import Quota, ScopeRule, parse_quota
from tests.unit.objects import json_values, scalars

RAW: dict[str, Any] = {
    "metadata": {"namespace": "team", "name": "compute"},
    "spec": {
        "hard": {"pods": "9"},
        "scopes": ["NotBestEffort"],
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]}
            ]
        },
    },
    "status": {
        "hard": {
            "pods": "10",
            "requests.cpu": "1500m",
            "limits.memory": "1Gi",
            "requests.nvidia.com/gpu": "0",
            "services": "half",
        },
        "used": {"pods": "3", "requests.cpu": "1"},
    },
}


def test_the_amounts_are_read_from_the_status() -> None:
    quota = parse_quota(RAW)

    assert (quota.namespace, quota.name) == ("team", "compute")
    assert quota.hard == {
        "pods": 10,
        "requests.cpu": 1500,
        "limits.memory": 2**30,
        "requests.nvidia.com/gpu": 0,
    }
    assert quota.used == {"pods": 3, "requests.cpu": 1000}


def test_before_the_first_status_the_limits_in_the_spec_count() -> None:
    quota = parse_quota({"spec": {"hard": {"cpu": "4"}}, "status": {}})

    assert quota.hard == {"cpu": 4000}
    assert quota.used == {}


def test_scopes_and_scope_selectors_become_rules() -> None:
    assert parse_quota(RAW).rules == (
        ScopeRule("NotBestEffort"),
        ScopeRule("PriorityClass", "In", ("high", "low")),
    )


def test_a_quota_with_too_many_scopes_covers_all_pods() -> None:
    rules = [{"scopeName": "PriorityClass", "operator": "Exists"}] * (MAX_VALUES + 1)
    quota = parse_quota({"spec": {"scopeSelector": {"matchExpressions": rules}}})
    assert quota.rules == ()
    assert quota.covers(PodCharge())


def class_rule(operator: str, *values: str) -> ScopeRule:
    return ScopeRule("PriorityClass", operator, values)


HIGH_CLASS, NO_CLASS = PodCharge(priority_class="high"), PodCharge()
RULES: dict[str, tuple[ScopeRule, PodCharge, str, bool]] = {
    "BestEffort": (ScopeRule("BestEffort"), PodCharge(best_effort=True), "", True),
    "BestEffort, but it has requests": (ScopeRule("BestEffort"), PodCharge(), "", False),
    "NotBestEffort": (ScopeRule("NotBestEffort"), PodCharge(), "", True),
    "NotBestEffort, but it has no requests": (
        ScopeRule("NotBestEffort"),
        PodCharge(best_effort=True),
        "",
        False,
    ),
    "Terminating": (ScopeRule("Terminating"), PodCharge(terminating=True), "", True),
    "Terminating, but it has no deadline": (ScopeRule("Terminating"), PodCharge(), "", False),
    "NotTerminating": (ScopeRule("NotTerminating"), PodCharge(), "", True),
    "NotTerminating, but it has a deadline": (
        ScopeRule("NotTerminating"),
        PodCharge(terminating=True),
        "",
        False,
    ),
    "CrossNamespacePodAffinity": (
        ScopeRule("CrossNamespacePodAffinity"),
        PodCharge(cross_namespace_affinity=True),
        "",
        True,
    ),
    "a scope of volumes": (ScopeRule("VolumeAttributesClass"), PodCharge(), "", False),
    "In": (class_rule("In", "high"), HIGH_CLASS, "", True),
    "In, another class": (class_rule("In", "low"), HIGH_CLASS, "", False),
    "In, no class": (class_rule("In", "low"), NO_CLASS, "", False),
    "In, the default class": (class_rule("In", "low"), NO_CLASS, "low", True),
    "its own class precedes the default": (class_rule("In", "low"), HIGH_CLASS, "low", False),
    "NotIn": (class_rule("NotIn", "low"), HIGH_CLASS, "", True),
    "NotIn, listed": (class_rule("NotIn", "high"), HIGH_CLASS, "", False),
    "NotIn, no class": (class_rule("NotIn", "high"), NO_CLASS, "", True),
    "Exists": (class_rule("Exists"), HIGH_CLASS, "", True),
    "Exists, as a plain scope": (ScopeRule("PriorityClass"), HIGH_CLASS, "", True),
    "Exists, no class": (class_rule("Exists"), NO_CLASS, "", False),
    "DoesNotExist": (class_rule("DoesNotExist"), NO_CLASS, "", True),
    "DoesNotExist, but it has a class": (class_rule("DoesNotExist"), HIGH_CLASS, "", False),
    "an unknown operator": (class_rule("Near", "high"), HIGH_CLASS, "", False),
}


@pytest.mark.parametrize(("rule", "charge", "default_class", "want"), RULES.values(), ids=RULES)
def test_which_pods_a_rule_covers(
    rule: ScopeRule, charge: PodCharge, default_class: str, *, want: bool
) -> None:
    assert rule.covers(charge, default_class=default_class) is want


def test_a_tightened_quota_allows_no_more_than_the_earlier_version() -> None:
    before = Quota("team", "q", {"cpu": 8, "pods": 4}, {"cpu": 6, "pods": 1})
    now = Quota("team", "q", {"cpu": 9, "pods": 3, "services": 2}, {"cpu": 5, "pods": 2})
    result = now.tightened(before)
    assert result.hard == {"cpu": 8, "pods": 3, "services": 2}
    assert result.used == {"cpu": 6, "pods": 2}
    assert now.tightened(None) is now


def test_every_rule_must_cover_the_pod() -> None:
    quota = parse_quota(RAW)

    assert quota.covers(HIGH_CLASS)
    assert not quota.covers(NO_CLASS)
    assert not quota.covers(PodCharge(priority_class="high", best_effort=True))


_odd_amounts = scalars | st.dictionaries(st.sampled_from(["pods", "cpu", "x"]), scalars)
_odd_rules = json_values | st.lists(
    st.dictionaries(st.sampled_from(["scopeName", "operator", "values"]), json_values), max_size=2
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": json_values,
            "spec": json_values
            | st.fixed_dictionaries({}, optional={"hard": _odd_amounts, "scopes": json_values})
            | st.fixed_dictionaries(
                {"scopeSelector": st.fixed_dictionaries({"matchExpressions": _odd_rules})}
            ),
            "status": json_values
            | st.fixed_dictionaries({}, optional={"hard": _odd_amounts, "used": _odd_amounts}),
        },
    )
)
def test_any_quota_can_be_read_and_compared_with_a_pod(raw: dict[str, Any]) -> None:
    quota = parse_quota(raw)
    assert all(number >= 0 for number in (*quota.hard.values(), *quota.used.values()))
    assert quota.covers(NO_CLASS) in (True, False)

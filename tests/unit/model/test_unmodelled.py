"""Which terms of a pod spec only kube-scheduler models."""

from typing import Any

import pytest
from hypothesis import given

from kfext.model.unmodelled import unmodelled
from tests.unit.objects import json_values

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}}

JUDGED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "required affinity to other pods": (
        {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
        ("required podAffinity",),
    ),
    "required anti-affinity to other pods": (
        {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
        ("required podAntiAffinity",),
    ),
    "a topology spread that must hold": (
        {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
        ("topologySpreadConstraints with DoNotSchedule",),
    ),
    "two topology spreads that must hold are one term": (
        {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}] * 2},
        ("topologySpreadConstraints with DoNotSchedule",),
    ),
    "device claims": ({"resourceClaims": [{"name": "card"}]}, ("resourceClaims",)),
    "a gang of kube-scheduler's own": ({"workloadRef": {"name": "w"}}, ("workloadRef",)),
    "a gang of kube-scheduler's own in later versions": (
        {"schedulingGroup": {"podGroupName": "g"}},
        ("schedulingGroup",),
    ),
    "a volume that is created for the pod": (
        {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]},
        ("a volume of type ephemeral",),
    ),
    "a disk that only one pod can use": (
        {"volumes": [{"name": "disk", "rbd": {"image": "i"}}]},
        ("a volume of type rbd",),
    ),
}


@pytest.mark.parametrize(("spec", "want"), JUDGED.values(), ids=JUDGED)
def test_a_term_that_may_exclude_a_node_is_named(
    spec: dict[str, Any], want: tuple[str, ...]
) -> None:
    assert unmodelled(spec) == want


MODELLED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "preferred terms": {
        "affinity": {
            "podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
            "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        }
    },
    "node affinity": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
    "terms that are empty": {"affinity": {"podAffinity": {REQUIRED: []}}},
    "a preferred topology spread": {
        "topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]
    },
    "volumes that every node has": {
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "c"}},
            {"name": "data", "nfs": {"server": "s", "path": "/"}},
            {"name": "host", "hostPath": {"path": "/data"}},
            {"name": "token", "projected": {"sources": []}},
            {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io"}},
        ]
    },
}


@pytest.mark.parametrize("spec", MODELLED.values(), ids=MODELLED)
def test_a_term_that_excludes_no_node_is_not_named(spec: dict[str, Any]) -> None:
    assert unmodelled(spec) == ()


@given(json_values)
def test_any_value_can_be_read(value: Any) -> None:
    fields = ("affinity", "topologySpreadConstraints", "resourceClaims", "volumes")
    assert len(unmodelled(dict.fromkeys(fields, value))) < 20

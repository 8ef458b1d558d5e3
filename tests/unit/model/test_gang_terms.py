"""Which terms of a pod select only pods of its own job."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from kfext.model.gang_terms import GangTerm, affinity, anti_affinity
from kfext.names import HOSTNAME, JOB_NAME, REPLICA_TYPE
from tests.unit.objects import json_values

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWN = {"matchLabels": {JOB_NAME: "train"}}


def spec(*terms: Any) -> dict[str, Any]:
    both = {REQUIRED: list(terms)}
    return {"affinity": {"podAffinity": both, "podAntiAffinity": both}}


def term(selector: object = OWN, **more: object) -> dict[str, Any]:
    return {"labelSelector": selector, "topologyKey": HOSTNAME, **more}


def among(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


WORKERS = {"matchLabels": {JOB_NAME: "train", REPLICA_TYPE: "worker"}}
MODELLED: Mapping[str, tuple[dict[str, Any], tuple[GangTerm, ...]]] = {
    "no affinity": ({}, ()),
    "no required affinity": (spec(), ()),
    "all pods of a job": (spec(term()), (GangTerm("train"),)),
    "the same by an expression": (
        spec(term({"matchExpressions": [among(JOB_NAME, "train")]})),
        (GangTerm("train"),),
    ),
    "the pods of a type": (spec(term(WORKERS)), (GangTerm("train", ("worker",)),)),
    "the pods of some types, in any order": (
        spec(term({**OWN, "matchExpressions": [among(REPLICA_TYPE, "worker", "ps")]})),
        (GangTerm("train", ("ps", "worker")),),
    ),
    "two terms": (spec(term(), term(WORKERS)), (GangTerm("train"), GangTerm("train", ("worker",)))),
    "one term twice": (spec(term(), term()), (GangTerm("train"),)),
    "fields that are empty": (
        spec(term(namespaces=[], namespaceSelector=None, matchLabelKeys=[])),
        (GangTerm("train"),),
    ),
}


@pytest.mark.parametrize(("of", "want"), MODELLED.values(), ids=MODELLED)
def test_affinity_and_anti_affinity_between_the_pods_of_a_job_are_read(
    of: dict[str, Any], want: tuple[GangTerm, ...]
) -> None:
    assert (affinity(of), anti_affinity(of)) == (want, want)


BEYOND: Mapping[str, dict[str, Any]] = {
    "labels of the user, which other pods may bear": term({"matchLabels": {"app": "train"}}),
    "a user's label beside the job's": term({"matchLabels": {JOB_NAME: "train", "app": "train"}}),
    "every pod": term({}),
    "no pod": {"topologyKey": HOSTNAME},
    "pods of any job": term({"matchLabels": {REPLICA_TYPE: "worker"}}),
    "pods of two jobs": term({"matchExpressions": [among(JOB_NAME, "train", "other")]}),
    "pods of no job": term({"matchExpressions": [among(JOB_NAME)]}),
    "pods of other jobs": term({"matchExpressions": [among(JOB_NAME, "train", operator="NotIn")]}),
    "a duplicate label": term({**OWN, "matchExpressions": [among(JOB_NAME, "other")]}),
    "a label without a text": term({"matchLabels": {JOB_NAME: "train", REPLICA_TYPE: 7}}),
    "a name that is too long": term({"matchLabels": {JOB_NAME: "x" * 254}}),
    "more than labels": term({**OWN, "matchFields": []}),
    "another domain": {**term(), "topologyKey": "zone"},
    "no domain": {"labelSelector": OWN},
    "named namespaces": term(namespaces=["team"]),
    "all namespaces": term(namespaceSelector={}),
    "keys with the pod's values": term(matchLabelKeys=[REPLICA_TYPE]),
    "keys with other values than the pod's": term(mismatchLabelKeys=[REPLICA_TYPE]),
    "a field of a later version": term(later=True),
    "more types than a job can have": term(
        {**OWN, "matchExpressions": [among(REPLICA_TYPE, *map(str, range(17)))]}
    ),
}


@pytest.mark.parametrize("beyond", BEYOND.values(), ids=BEYOND)
def test_a_term_on_other_pods_or_domains_is_not_modelled(beyond: dict[str, Any]) -> None:
    for of in (spec(beyond), spec(term(), beyond)):
        assert (affinity(of), anti_affinity(of)) == (None, None)


def test_more_terms_than_a_job_has_types_are_not_read() -> None:
    many = [term({"matchLabels": {JOB_NAME: f"train-{number}"}}) for number in range(17)]
    assert anti_affinity(spec(*many)) is None
    assert anti_affinity(spec(*many[:16])) is not None


def test_affinity_and_anti_affinity_are_not_confused() -> None:
    none: dict[str, Any] = {"podAffinity": {REQUIRED: []}}
    of = {"affinity": {**spec(term())["affinity"], **none}}
    assert (affinity(of), anti_affinity(of)) == ((), (GangTerm("train"),))


@given(value=json_values)
def test_malformed_terms_raise_no_error(value: object) -> None:
    for of in (
        {"affinity": value},
        {"affinity": {"podAntiAffinity": value}},
        {"affinity": {"podAntiAffinity": {REQUIRED: value}}},
        spec(value),
        spec(term(value)),
        spec(term({"matchLabels": value})),
        spec(term({"matchExpressions": value})),
        spec({**term(), "topologyKey": value}),
    ):
        affinity(of)
        anti_affinity(of)

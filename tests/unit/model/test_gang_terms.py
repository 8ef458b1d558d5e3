"""Which terms of a pod select only pods of its own job."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from kfext.model.gang_terms import GangTerm, affinity, anti_affinity
from kfext.names import HOSTNAME, JOB_NAME, REPLICA_TYPE
from tests.unit.objects import json_values

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWN_JOB = {"matchLabels": {JOB_NAME: "train"}}


def spec(*terms: Any) -> dict[str, Any]:
    required = {REQUIRED: list(terms)}
    return {"affinity": {"podAffinity": required, "podAntiAffinity": required}}


def term(selector: object = OWN_JOB, **fields: object) -> dict[str, Any]:
    return {"labelSelector": selector, "topologyKey": HOSTNAME, **fields}


def match(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


WORKERS = {"matchLabels": {JOB_NAME: "train", REPLICA_TYPE: "worker"}}
MODELLED: Mapping[str, tuple[dict[str, Any], tuple[GangTerm, ...]]] = {
    "no affinity": ({}, ()),
    "no required affinity": (spec(), ()),
    "all pods of a job": (spec(term()), (GangTerm("train"),)),
    "all pods of a job, by an expression": (
        spec(term({"matchExpressions": [match(JOB_NAME, "train")]})),
        (GangTerm("train"),),
    ),
    "the pods of a type": (spec(term(WORKERS)), (GangTerm("train", ("worker",)),)),
    "the pods of some types, in any order": (
        spec(term({**OWN_JOB, "matchExpressions": [match(REPLICA_TYPE, "worker", "ps")]})),
        (GangTerm("train", ("ps", "worker")),),
    ),
    "two terms": (spec(term(), term(WORKERS)), (GangTerm("train"), GangTerm("train", ("worker",)))),
    "the same term twice": (spec(term(), term()), (GangTerm("train"),)),
    "fields that are empty": (
        spec(term(namespaces=[], namespaceSelector=None, matchLabelKeys=[])),
        (GangTerm("train"),),
    ),
}


@pytest.mark.parametrize(("pod", "want"), MODELLED.values(), ids=MODELLED)
def test_affinity_and_anti_affinity_between_the_pods_of_a_job_are_read(
    pod: dict[str, Any], want: tuple[GangTerm, ...]
) -> None:
    assert (affinity(pod), anti_affinity(pod)) == (want, want)


NOT_MODELLED: Mapping[str, dict[str, Any]] = {
    "labels of the user, which other pods may have": term({"matchLabels": {"app": "train"}}),
    "a user's label beside the job's": term({"matchLabels": {JOB_NAME: "train", "app": "train"}}),
    "every pod": term({}),
    "no pod": {"topologyKey": HOSTNAME},
    "pods of any job": term({"matchLabels": {REPLICA_TYPE: "worker"}}),
    "pods of two jobs": term({"matchExpressions": [match(JOB_NAME, "train", "other")]}),
    "pods of no job": term({"matchExpressions": [match(JOB_NAME)]}),
    "pods of other jobs": term({"matchExpressions": [match(JOB_NAME, "train", operator="NotIn")]}),
    "a duplicate label": term({**OWN_JOB, "matchExpressions": [match(JOB_NAME, "other")]}),
    "a label that is not a string": term({"matchLabels": {JOB_NAME: "train", REPLICA_TYPE: 7}}),
    "a name that is too long": term({"matchLabels": {JOB_NAME: "x" * 254}}),
    "an unknown requirement beside the labels": term({**OWN_JOB, "matchFields": []}),
    "a domain other than the node": {**term(), "topologyKey": "zone"},
    "no topology key": {"labelSelector": OWN_JOB},
    "named namespaces": term(namespaces=["team"]),
    "all namespaces": term(namespaceSelector={}),
    "keys with the pod's values": term(matchLabelKeys=[REPLICA_TYPE]),
    "keys with values that differ from the pod's": term(mismatchLabelKeys=[REPLICA_TYPE]),
    "a field of a later version": term(later=True),
    "more types than a job can have": term(
        {**OWN_JOB, "matchExpressions": [match(REPLICA_TYPE, *map(str, range(17)))]}
    ),
}


@pytest.mark.parametrize("beyond", NOT_MODELLED.values(), ids=NOT_MODELLED)
def test_a_term_on_other_pods_or_domains_is_not_modelled(beyond: dict[str, Any]) -> None:
    for pod in (spec(beyond), spec(term(), beyond)):
        assert (affinity(pod), anti_affinity(pod)) == (None, None)


def test_more_terms_than_a_job_has_types_are_not_read() -> None:
    many = [term({"matchLabels": {JOB_NAME: f"train-{number}"}}) for number in range(17)]
    assert anti_affinity(spec(*many)) is None
    assert anti_affinity(spec(*many[:16])) is not None


def test_affinity_and_anti_affinity_are_not_confused() -> None:
    none: dict[str, Any] = {"podAffinity": {REQUIRED: []}}
    pod = {"affinity": {**spec(term())["affinity"], **none}}
    assert (affinity(pod), anti_affinity(pod)) == ((), (GangTerm("train"),))


@given(value=json_values)
def test_malformed_terms_raise_no_error(value: object) -> None:
    for pod in (
        {"affinity": value},
        {"affinity": {"podAntiAffinity": value}},
        {"affinity": {"podAntiAffinity": {REQUIRED: value}}},
        spec(value),
        spec(term(value)),
        spec(term({"matchLabels": value})),
        spec(term({"matchExpressions": value})),
        spec({**term(), "topologyKey": value}),
    ):
        affinity(pod)
        anti_affinity(pod)

"""What the review of a job says to whoever sent it."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.admission.facts import Facts
from kfext.core.admission.job import mutate_job
from tests.unit.objects import Raw, job, replica

FACTS = Facts(namespace_labels={names.MANAGED: "true"}, controller_alive=True)
ALONE = replace(FACTS, controller_alive=False)

WARNED = {
    "no replicas": (job(specs={}), FACTS, "no replicas"),
    "no controller": (job(), ALONE, "as on plain Kubernetes"),
    "a setting in a template": (
        job(
            specs={
                "Worker": replica(1, metadata={"annotations": {names.COLOCATION: "off"}}),
            }
        ),
        FACTS,
        "of the Worker template is overwritten with preferred",
    ),
    "a feature that has not landed": (
        job(annotations={names.RESIZE: "cpu"}),
        FACTS,
        "has no effect yet",
    ),
}


@pytest.mark.parametrize(("raw", "facts", "want"), WARNED.values(), ids=WARNED)
def test_what_would_surprise_the_user_is_a_warning(raw: Raw, facts: Facts, want: str) -> None:
    warnings = mutate_job(raw, facts).warnings
    assert len(warnings) == 1
    assert want in warnings[0]


HOST = {names.NETWORK: "host"}

KEPT = {
    "Pod Security": ({}, {"pod-security.kubernetes.io/enforce": "baseline"}, "Pod Security"),
    "colocation off": ({names.COLOCATION: "off"}, {}, "only a job that kfext starts"),
}


def test_a_job_that_asks_for_the_host_network_is_told_what_becomes_of_it() -> None:
    mutation = mutate_job(job(annotations=HOST), FACTS)
    assert mutation.warnings == ()
    (said,) = [one for one in mutation.verdicts if one.reason == names.REASON_HOST_NETWORK]
    assert "hostNetwork is true" in said.message


@pytest.mark.parametrize(("more", "labels", "why"), KEPT.values(), ids=KEPT)
def test_a_job_that_will_not_have_it_is_told_at_once(
    more: dict[str, str], labels: dict[str, str], why: str
) -> None:
    facts = replace(FACTS, namespace_labels={**FACTS.namespace_labels, **labels})
    mutation = mutate_job(job(annotations={**HOST, **more}), facts)
    assert why in mutation.warnings[0]
    assert names.REASON_HOST_NETWORK not in [one.reason for one in mutation.verdicts]

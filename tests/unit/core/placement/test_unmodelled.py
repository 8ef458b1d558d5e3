"""Which jobs the planner must not place."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.core.placement.unmodelled import unbound, unplaceable
from kfext.model.constraints import VolumeConstraints
from kfext.model.gang_terms import GangTerm
from kfext.model.job import TrainingJob
from kfext.names import REASON_UNMODELLED, REASON_WAITING_FOR_VOLUME
from tests.builders import JobBuilder, Raw, apart, job, pod, pods, together

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APART: Raw = {
    "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}
}
PART: dict[str, Any] = {"kfext.dev/gpu-1": "50"}
DEVICES: Raw = {"resourceClaims": [{"name": "card"}]}
NAMED: dict[str, tuple[JobBuilder, str]] = {
    "a term in each template is named once": (
        job().master(spec=APART).worker(3, spec=APART),
        "its pods have required podAntiAffinity, which",
    ),
    "a term of one replica type counts for the job": (
        job().master().worker(3, spec=DEVICES),
        "its pods have resourceClaims, which",
    ),
    "a part of a GPU that is asked for by name": (
        job().group("Worker", **PART),
        "its pods have requests for kfext.dev/gpu-1, which",
    ),
    "several terms are listed": (
        job().master(spec=APART).worker(3, spec=DEVICES),
        "its pods have required podAntiAffinity and resourceClaims, which",
    ),
}


@pytest.mark.parametrize(("of", "want"), NAMED.values(), ids=NAMED)
def test_a_job_with_a_term_that_kfext_does_not_model_is_not_placed(
    of: JobBuilder, want: str
) -> None:
    found = unplaceable(of.build())
    assert found is not None
    assert found.reason == REASON_UNMODELLED
    assert found.message.startswith(want)


@pytest.mark.parametrize(
    "of",
    [job().worker(3), job().worker(3).group("Master", 0, spec=APART)],
    ids=["no such term", "a term of a type without replicas"],
)
def test_other_jobs_are_placed(of: JobBuilder) -> None:
    assert unplaceable(of.build()) is None


@pytest.mark.parametrize(
    ("more", "counts"),
    [({"gated": True}, True), ({"bound": "a"}, False)],
    ids=["gated", "bound, so that its terms are kept no longer"],
)
def test_a_term_that_admission_gave_a_pod_counts_while_it_is_gated(
    more: dict[str, Any], *, counts: bool
) -> None:
    of = job().worker(2).build()
    pods = [pod(of, "worker", 0), pod(of, "worker", 1, spec=APART, **more)]
    assert (unplaceable(of, pods) is not None) is counts


ALL, OF_WORKERS = GangTerm("train"), GangTerm("train", ("worker",))
TRAIN, WORKERS = apart(ALL), apart(OF_WORKERS)
WITHIN: dict[str, tuple[JobBuilder, bool]] = {
    "all pods of the job have it": (job().master(spec=TRAIN).worker(3, spec=TRAIN), True),
    "one type has it, and it selects that type": (job().master().worker(3, spec=WORKERS), True),
    "each type has one of its own": (
        job("TFJob").ps(2, spec=apart(GangTerm("train", ("ps",)))).worker(3, spec=WORKERS),
        True,
    ),
    "two terms of one type": (job().worker(3, spec=apart(ALL, OF_WORKERS)), True),
    "a type without replicas does not have it": (
        job().worker(3, spec=TRAIN).group("Master", 0),
        True,
    ),
    "it selects a type that does not have it": (job().master().worker(3, spec=TRAIN), False),
    "it does not select the type that has it": (
        job("TFJob").ps(2, spec=WORKERS).worker(3, spec=WORKERS),
        False,
    ),
    "it selects another job": (job().worker(3, spec=apart(GangTerm("other"))), False),
    "a type as it is not on the label": (
        job().worker(3, spec=apart(GangTerm("train", ("Worker",)))),
        False,
    ),
}


@pytest.mark.parametrize(("of", "within"), WITHIN.values(), ids=WITHIN)
def test_anti_affinity_is_modelled_if_just_the_pods_that_it_selects_have_it(
    of: JobBuilder, *, within: bool
) -> None:
    made = of.build()
    assert (unplaceable(made) is None) is within
    assert (unplaceable(made, pods(made, gated=True)) is None) is within


ON_ONE_NODE = together(ALL)
TOGETHER: dict[str, tuple[JobBuilder, bool]] = {
    "all pods of the job have it": (
        job().master(spec=ON_ONE_NODE).worker(3, spec=ON_ONE_NODE),
        True,
    ),
    "a type does not have it": (job().master().worker(3, spec=ON_ONE_NODE), False),
    "each type has one of its own": (
        job("TFJob")
        .ps(2, spec=together(GangTerm("train", ("ps",))))
        .worker(3, spec=together(OF_WORKERS)),
        False,
    ),
    "it selects only some of the types that have it": (
        job("TFJob").ps(2, spec=together(OF_WORKERS)).worker(3, spec=together(OF_WORKERS)),
        False,
    ),
    "it selects another job": (job().worker(3, spec=together(GangTerm("other"))), False),
}


@pytest.mark.parametrize(("of", "within"), TOGETHER.values(), ids=TOGETHER)
def test_affinity_is_modelled_if_it_is_between_all_pods_of_the_job(
    of: JobBuilder, *, within: bool
) -> None:
    made = of.build()
    for found in (unplaceable(made), unplaceable(made, pods(made, gated=True))):
        assert (found is None) is within
        assert found is None or found.message.startswith("its pods have required podAffinity, ")


@pytest.mark.parametrize("spec", [{"affinity": {}}, together(OF_WORKERS)], ids=["gone", "another"])
def test_affinity_that_admission_changed_is_not_modelled(spec: Raw) -> None:
    made = job().worker(3, spec=ON_ONE_NODE).build()
    found = unplaceable(made, [pod(made, "worker", 0, gated=True, spec=spec)])
    assert found is not None
    assert "required podAffinity" in found.message


@pytest.mark.parametrize(
    ("of", "spec"),
    [
        (job().worker(3), TRAIN),
        (job().worker(3, spec=TRAIN), {"affinity": {}}),
        (job().worker(3, spec=TRAIN), WORKERS),
    ],
    ids=["added", "removed", "changed"],
)
def test_anti_affinity_that_admission_changed_is_not_modelled(of: JobBuilder, spec: Raw) -> None:
    made = of.build()
    found = unplaceable(made, [pod(made, "worker", 0, gated=True, spec=spec)])
    assert found is not None
    assert "required podAntiAffinity" in found.message


def claiming(volumes: VolumeConstraints) -> TrainingJob:
    made = job().worker(2).build()
    (group,) = made.groups
    return replace(
        made,
        groups=(replace(group, constraints=replace(group.constraints, volumes=volumes)),),
    )


def test_a_volume_claim_that_is_not_modelled_counts_as_a_term() -> None:
    found = unplaceable(claiming(VolumeConstraints(unmodelled=("volume claim data, odd",))))
    assert found is not None
    assert "volume claim data, odd" in found.message


@pytest.mark.parametrize(
    ("pending", "want"),
    [
        (("data",), "volume claim data is not bound yet"),
        (("data", "more"), "2 volume claims are not bound yet"),
    ],
)
def test_a_job_waits_for_claims_that_are_not_bound(pending: tuple[str, ...], want: str) -> None:
    found = unbound(claiming(VolumeConstraints(pending=pending)))
    assert found is not None
    assert (found.reason, found.message) == (REASON_WAITING_FOR_VOLUME, want)


def test_a_job_whose_claims_are_bound_waits_for_none() -> None:
    assert unbound(claiming(VolumeConstraints())) is None

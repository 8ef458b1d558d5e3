"""The effect of volume claims on the nodes of a job, and on when it is decided on again."""

from dataclasses import replace

import pytest

from kfext.model.constraints import Constraints, Requirement, Term, VolumeConstraints
from kfext.model.job import TrainingJob
from kfext.model.volume import StorageClass, Volume, VolumeClaim
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.volumes import Volumes
from tests.builders import job, pod, using

IN_A = (Term((Requirement("zone", "In", ("a",)),)),)
ANYWHERE, ZONAL = Volume("shared", "team"), Volume("zonal", "team", terms=IN_A)
LABELLED = Volume("labelled", "team", zoned=True)
LATE, SOON = StorageClass("late", delayed=True), StorageClass("soon")


def claim(volume: str = "", **more: object) -> VolumeClaim:
    return replace(VolumeClaim("team", "data", volume), **more)  # type: ignore[arg-type]


def volumes(*claims: VolumeClaim) -> Volumes:
    known = Volumes(lambda key: None)
    for seen in claims:
        known.observe_claim(None, seen)
    for volume in (ANYWHERE, ZONAL, LABELLED):
        known.observe_volume(None, volume)
    for storage_class in (LATE, SOON):
        known.observe_class(None, storage_class)
    return known


def trainer(*claims: str) -> TrainingJob:
    return job().worker(2, spec=using(*claims)).build()


def constraints_of(known: Volumes, *claims: str) -> VolumeConstraints:
    (group,) = known.of_job(trainer(*claims)).groups
    return group.constraints.volumes


PENDING = VolumeConstraints(pending=("data",))
MEANS: dict[str, tuple[VolumeClaim, VolumeConstraints]] = {
    "bound to a volume for every node: nothing": (claim("shared", bound=True), VolumeConstraints()),
    "bound to a volume for some nodes: its node affinity": (
        claim("zonal", bound=True),
        VolumeConstraints(terms=(IN_A,)),
    ),
    "bound to a volume that is in a zone by its labels: not modelled": (
        claim("labelled", bound=True),
        VolumeConstraints(
            unmodelled=("volume claim data, with a volume that names its zone by labels",)
        ),
    ),
    "bound to a volume that has not been seen yet: awaited": (claim("unseen", bound=True), PENDING),
    "of no class and not bound: awaited": (claim(), PENDING),
    "of a class that binds at once, not bound yet: awaited": (claim(storage_class="soon"), PENDING),
    "of an unknown class, not bound: awaited": (claim(storage_class="unknown"), PENDING),
    "of a class that waits for a pod: not modelled": (
        claim(storage_class="late"),
        VolumeConstraints(unmodelled=("volume claim data, which waits for its first consumer",)),
    ),
    "of a class that waits for a pod, but with a volume: awaited": (
        claim("zonal", storage_class="late"),
        PENDING,
    ),
    "of a class that waited for a pod, and bound: its node affinity": (
        claim("zonal", storage_class="late", bound=True),
        VolumeConstraints(terms=(IN_A,)),
    ),
    "for one pod at a time: not modelled": (
        claim("shared", bound=True, one_pod=True),
        VolumeConstraints(unmodelled=("volume claim data, which one pod at a time may use",)),
    ),
    "of another namespace: awaited": (claim("shared", bound=True, namespace="other"), PENDING),
}


@pytest.mark.parametrize(("seen", "want"), MEANS.values(), ids=MEANS)
def test_the_constraints_that_a_claim_puts_on_a_pod(
    seen: VolumeClaim, want: VolumeConstraints
) -> None:
    assert constraints_of(volumes(seen), "data") == want


def test_two_claims_on_volumes_of_one_zone_are_one_constraint() -> None:
    known = volumes(claim("zonal", bound=True), claim("zonal", bound=True, name="more"))
    assert constraints_of(known, "data", "more") == VolumeConstraints(terms=(IN_A,))


def test_a_gated_pod_has_its_own_claims_and_other_pods_none() -> None:
    training_job, known = trainer(), volumes(claim("zonal", bound=True))
    gated = pod(training_job, "worker", 0, gated=True, spec=using("data"))
    bound = pod(training_job, "worker", 1, bound="a", spec=using("data"))
    first, second = known.of_pods([gated, bound])
    assert first.constraints == Constraints(
        claims=("data",), volumes=VolumeConstraints(terms=(IN_A,))
    )
    assert second is bound


def test_a_job_without_claims_is_not_copied() -> None:
    plain = trainer()
    assert volumes().of_job(plain) is plain


@pytest.fixture
def cluster() -> Cluster:
    """Two jobs of one namespace; the first has a claim."""
    cluster = Cluster()
    cluster.record_job(trainer("data"), {})
    cluster.record_job(replace(trainer(), uid="uid-2", name="plain"), {})
    cluster.changed.clear()
    return cluster


def test_the_jobs_of_a_claim_are_decided_on_again_when_it_is_bound(cluster: Cluster) -> None:
    cluster.volumes.observe_claim(None, claim("zonal", bound=True))
    assert cluster.changed == set()  # it was pending before, and its volume is not there yet
    cluster.volumes.observe_volume(None, ZONAL)
    assert cluster.changed == {"uid-1"}
    cluster.refresh_volumes(cluster.jobs["uid-1"])
    (group,) = cluster.jobs["uid-1"].job.groups
    assert group.constraints.volumes.terms == (IN_A,)


def test_the_jobs_of_a_claim_are_decided_on_again_when_it_is_deleted(cluster: Cluster) -> None:
    bound = claim("zonal", bound=True)
    cluster.volumes.observe_volume(None, ZONAL)
    cluster.volumes.observe_claim(None, bound)
    cluster.changed.clear()
    cluster.volumes.observe_claim(bound, None)
    assert cluster.changed == {"uid-1"}


def test_a_storage_class_concerns_the_jobs_of_all_namespaces(cluster: Cluster) -> None:
    cluster.volumes.observe_claim(None, claim(storage_class="late"))
    cluster.volumes.observe_class(None, LATE)
    assert cluster.changed == {"uid-1"}


def test_claims_of_other_namespaces_concern_no_job_here(cluster: Cluster) -> None:
    cluster.volumes.observe_volume(None, replace(ZONAL, namespace="other"))
    cluster.volumes.observe_claim(None, claim("zonal", bound=True, namespace="other"))
    assert cluster.changed == set()


def test_a_claim_without_a_job_concerns_no_job_of_its_namespace(cluster: Cluster) -> None:
    other = claim(storage_class="late", name="other")
    cluster.volumes.observe_class(None, LATE)
    for old, new in ((None, other), (other, replace(other, volume="x")), (other, None)):
        cluster.volumes.observe_claim(old, new)
    assert cluster.changed == set()


def test_a_claim_concerns_no_job_that_has_ended(cluster: Cluster) -> None:
    ended = job().worker(2, spec=using("data")).condition("Succeeded").build()
    cluster.record_job(ended, {})
    cluster.changed.clear()
    cluster.volumes.observe_claim(None, claim(storage_class="late"))
    cluster.volumes.observe_class(None, LATE)
    assert cluster.changed == set()


def test_an_edit_of_a_job_changes_the_claims_that_concern_it(cluster: Cluster) -> None:
    cluster.record_job(trainer("more"), {})
    cluster.changed.clear()
    cluster.volumes.observe_class(None, LATE)
    cluster.volumes.observe_claim(None, claim(storage_class="late"))
    assert cluster.changed == set()
    cluster.volumes.observe_claim(None, claim(storage_class="late", name="more"))
    assert cluster.changed == {"uid-1"}


def test_a_volume_of_another_namespace_concerns_no_job_that_names_it(cluster: Cluster) -> None:
    cluster.volumes.observe_claim(None, claim("zonal", bound=True))
    cluster.volumes.observe_volume(None, replace(ZONAL, namespace="other"))
    assert cluster.changed == set()


def test_a_job_is_updated_once_however_often_its_claims_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[TrainingJob] = []
    real = Volumes.of_job

    def record(self: Volumes, training_job: TrainingJob) -> TrainingJob:
        results.append(training_job)
        return real(self, training_job)

    monkeypatch.setattr(Volumes, "of_job", record)
    cluster.volumes.observe_class(None, LATE)
    for _ in range(50):
        cluster.volumes.observe_claim(None, claim(storage_class="late"))
        cluster.volumes.observe_claim(claim(storage_class="late"), None)
    assert results == []
    for _ in range(2):
        for tracked in cluster.jobs.values():
            cluster.refresh_volumes(tracked)
    assert [job.uid for job in results] == ["uid-1"]


def test_a_deleted_job_is_not_decided_on_again(cluster: Cluster) -> None:
    cluster.forget_job("uid-1")
    cluster.changed.clear()
    cluster.volumes.observe_claim(None, claim(storage_class="late"))
    cluster.volumes.observe_class(None, LATE)
    assert cluster.changed == set()

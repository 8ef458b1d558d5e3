"""Rescues that fail: donors do not scale down again and again."""

from dataclasses import replace

import pytest

from kfext.core.lifecycle.steps import RequestCheckpoint, Rescale
from kfext.errors import Forbidden
from kfext.sim.driver import Written
from kfext.sim.objects import LivePod
from kfext.state.running.size.scale_search import AGAIN_SECONDS
from tests.unit.sim.bed import GANG, LONG, PERIODIC, Bed, refuse, resizes, scaled_bed, sizes

DENIED = Forbidden(status=403, reason="Forbidden", message="denied by a policy")


def without_gang_pods(bed: Bed, *, until: float) -> Bed:
    """Let no pod of the gang be created before the second `until`."""
    bed.faults.creates = lambda live, _key: live.spec.name != "gang" or bed.clock.now >= until
    return bed


def test_a_job_with_pods_that_are_not_created_gets_no_second_rescue_within_an_hour() -> None:
    bed = without_gang_pods(scaled_bed(LONG, GANG), until=3600).at(2100)
    assert bed.job().job.finished
    assert sizes(bed) == [2, 4]


def test_a_failed_rescue_is_tried_again_after_an_hour() -> None:
    long = replace(LONG, steps=40_000)
    bed = without_gang_pods(scaled_bed(long, GANG), until=3000).at(AGAIN_SECONDS)
    assert sizes(bed) == [2, 4]
    bed.at(AGAIN_SECONDS + 400)
    assert sizes(bed)[:3] == [2, 4, 2]
    assert bed.job("gang").training.began is not None


def test_another_donor_is_chosen_if_a_pod_of_the_first_never_ends() -> None:
    other = replace(LONG, name="other", steps=7000)
    bed = scaled_bed(LONG, other, replace(GANG, arrives=150.0), cpu=8000)
    delete = bed.kubelets.delete

    def never_ends(live: LivePod) -> None:
        stuck = live.job.spec.name == "train" and not live.pod.deleting
        bed.api.mark_deleted(live) if stuck else delete(live)

    bed.kubelets.delete = never_ends  # type: ignore[method-assign]
    bed.at(1000)
    assert (sizes(bed), sizes(bed, "other")[:1]) == ([2], [2])
    assert bed.job("gang").training.began is not None


@pytest.mark.parametrize("silent_jobs", [1, 3])
def test_a_job_with_a_checkpoint_is_a_donor_before_jobs_without(silent_jobs: int) -> None:
    silent = replace(LONG, workers=2, bounds=(1, 2), answers=1e9, steps=20_000)
    others = [replace(silent, name=f"silent-{number}") for number in range(silent_jobs)]
    bed = scaled_bed(replace(PERIODIC, steps=9000), *others, GANG, cpu=4000 + 2000 * silent_jobs)
    bed.at(250)
    assert bed.job("gang").training.began is not None
    assert not [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]


def _shrinks(write: Written) -> bool:
    return isinstance(write.step, Rescale) and write.step.workers == 2


def two_donors(times: int) -> tuple[Bed, list[float]]:
    """Return a node with two donors and a gang that needs workers of both.

    The first `times` changes of the second donor are refused; the list has their seconds.
    """
    donor = replace(LONG, name="one", steps=16_000)
    gang = replace(GANG, workers=4, arrives=150.0, steps=200)
    bed = scaled_bed(donor, replace(donor, name="two"), gang, cpu=8000)
    return bed, refuse(
        bed, lambda uid, change: uid == "uid-two" and resizes(change), DENIED, times=times
    )


def test_a_donor_that_is_always_refused_costs_the_other_donor_a_single_change() -> None:
    bed, refused = two_donors(99)
    bed.at(3000)
    assert len(refused) > 2
    assert (sizes(bed, "one"), sizes(bed, "two")) == ([2, 4], [])


def test_after_a_refusal_the_refused_donor_is_written_first_and_then_the_other() -> None:
    bed, _ = two_donors(1)
    bed.at(700)
    assert bed.job("gang").training.began is not None
    donors = [write.job for write in bed.driver.written if _shrinks(write) and not write.refused]
    assert donors == ["one", "two", "one"]

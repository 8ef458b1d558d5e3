"""A rescue that failed: its donors do not pay for it again and again."""

from dataclasses import replace

import pytest

from kfext.core.lifecycle.steps import RequestCheckpoint, Rescale
from kfext.errors import Forbidden
from kfext.sim.driver import Written
from kfext.sim.objects import LivePod
from kfext.state.running.size.scale_search import AGAIN_SECONDS
from tests.unit.sim.bed import GANG, LONG, PERIODIC, Bed, refuse, resizes, scaled_bed, sizes

DENIED = Forbidden(status=403, reason="Forbidden", message="denied by a policy")


def without_pods_of_the_gang(bed: Bed, *, until: float) -> Bed:
    bed.faults.creates = lambda live, _key: live.spec.name != "gang" or bed.clock.now >= until
    return bed


def test_no_job_gives_again_for_a_job_with_pods_that_are_never_created() -> None:
    bed = without_pods_of_the_gang(scaled_bed(LONG, GANG), until=3600).at(2100)
    assert bed.job().job.finished
    assert sizes(bed) == [2, 4]


def test_a_failed_rescue_is_tried_again_after_an_hour() -> None:
    long = replace(LONG, steps=40_000)
    bed = without_pods_of_the_gang(scaled_bed(long, GANG), until=3000).at(AGAIN_SECONDS)
    assert sizes(bed) == [2, 4]
    bed.at(AGAIN_SECONDS + 400)
    assert sizes(bed)[:3] == [2, 4, 2]
    assert bed.job("gang").training.began is not None


def test_another_job_gives_if_capacity_of_the_first_was_never_freed() -> None:
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


@pytest.mark.parametrize("listeners", [1, 3])
def test_a_job_that_has_shown_a_save_gives_before_jobs_that_only_listen(
    listeners: int,
) -> None:
    silent = replace(LONG, workers=2, bounds=(1, 2), answers=1e9, steps=20_000)
    listening = [replace(silent, name=f"silent-{at}") for at in range(listeners)]
    bed = scaled_bed(replace(PERIODIC, steps=9000), *listening, GANG, cpu=4000 + 2000 * listeners)
    bed.at(250)
    assert bed.job("gang").training.began is not None
    assert not [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]


def _gives(write: Written) -> bool:
    return isinstance(write.step, Rescale) and write.step.workers == 2


def two_givers(times: int) -> tuple[Bed, list[float]]:
    """A gang that needs workers of both jobs. The API server refuses changes of the second."""
    giver = replace(LONG, name="one", steps=16_000)
    gang = replace(GANG, workers=4, arrives=150.0, steps=200)
    bed = scaled_bed(giver, replace(giver, name="two"), gang, cpu=8000)
    return bed, refuse(
        bed, lambda uid, change: uid == "uid-two" and resizes(change), DENIED, times=times
    )


def test_a_donor_that_is_always_refused_costs_the_other_donor_one_change() -> None:
    of, refused = two_givers(99)
    of.at(3000)
    assert len(refused) > 2
    assert (sizes(of, "one"), sizes(of, "two")) == ([2, 4], [])


def test_a_donor_that_was_refused_once_gives_first_and_then_the_other() -> None:
    of, _ = two_givers(1)
    of.at(700)
    assert of.job("gang").training.began is not None
    given = [write.job for write in of.driver.written if _gives(write) and not write.refused]
    assert given == ["one", "two", "one"]

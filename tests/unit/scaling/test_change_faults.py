"""Changes of size with missing checkpoints, refused writes, or lost pods."""

from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import RequestCheckpoint, Rescale
from kfext.errors import ApiError, Forbidden
from kfext.model.pod import ReplicaKey
from kfext.model.quota import Quota
from kfext.state.running.operation import Phase
from kfext.state.running.size.record import record_of as size_record
from tests.unit.scaling.test_faults import any_rescaled, followed, until_changed
from tests.unit.sim.bed import GANG, LONG, Bed, resizes, scaled_bed, sizes

REFUSAL = "admission webhook says no"


def shown(bed: Bed) -> tuple[str, str]:
    """Return the shown reason and message of the job."""
    result = bed.driver.shown["train", names.SCALED]
    assert result is not None
    return result.verdict.reason, result.verdict.message


def regrown() -> Bed:
    """Return a job that was scaled down for a gang and has just been scaled up again."""
    bed = until_changed(scaled_bed(LONG, GANG), times=2)
    while size_record(followed(bed)).phase is not Phase.SETTLING:
        bed.at(bed.clock.now + 0.5)
    assert sizes(bed) == [2, 4]
    return bed


def test_a_job_that_never_saves_does_not_regain_its_workers_and_shows_the_reason() -> None:
    bed = until_changed(scaled_bed(LONG, GANG))
    bed.job().training.spec = replace(LONG, answers=5000.0)
    while not bed.job("gang").job.finished:
        bed.at(bed.clock.now + 1)
    began = bed.clock.now
    bed.at(began + 300)
    requests = [
        write
        for write in bed.driver.written
        if isinstance(write.step, RequestCheckpoint) and write.at > began
    ]
    assert (sizes(bed), len(requests), any_rescaled(bed)) == ([2], 1, False)
    reason, message = shown(bed)
    assert reason == names.REASON_AWAITS_CHECKPOINT
    assert message == "it saved no checkpoint within 120 s; nothing was changed"


def test_a_job_that_ends_while_its_new_pods_start_leaves_its_capacity_to_others() -> None:
    following = replace(GANG, name="next", arrives=500.0, workers=4)
    bed = until_changed(scaled_bed(LONG, GANG, following), times=2)
    assert size_record(followed(bed)).phase is Phase.SETTLING
    ended = bed.clock.now
    bed.operator.end(bed.job())
    bed.at(600)
    assert not [write for write in bed.driver.written if write.job == "train" and write.at > ended]
    assert not any_rescaled(bed)
    assert bed.job("next").training.began is not None


def test_growth_is_undone_while_a_new_quota_refuses_its_pods() -> None:
    bed = regrown()
    full = Quota("team", "tight", hard={"pods": 2}, used={"pods": 2})
    bed.faults.creates = lambda _job, key: key.index < 2
    bed.planner.queue.quotas.observe_quota(None, full)
    bed.at(bed.clock.now + 900)
    assert sizes(bed) == [2, 4, 2]
    assert (bed.job().training.workers, bed.job().job.suspend) == (2, False)
    reason, message = shown(bed)
    assert reason == names.REASON_SHRUNK
    assert "tight" in message
    bed.faults.creates = lambda _job, _key: True
    bed.planner.queue.quotas.observe_quota(full, None)
    bed.at(bed.clock.now + 400)
    assert (sizes(bed), bed.job().training.workers) == ([2, 4, 2, 4], 4)


def refuse_sizes(bed: Bed) -> list[float]:
    """Refuse any change of size; return the list of the seconds of the refusals."""
    refused: list[float] = []

    def refusal(_uid: str, change: Any) -> ApiError | None:
        if not resizes(change):
            return None
        refused.append(bed.clock.now)
        return Forbidden(status=403, reason="Forbidden", message=REFUSAL)

    bed.faults.refusal = refusal
    return refused


def test_a_refused_size_is_shown_and_tried_again_after_300_s() -> None:
    bed = scaled_bed(replace(LONG, steps=20000), GANG).at(100)
    refused = refuse_sizes(bed)
    bed.at(400)
    assert len(refused) == 1
    assert shown(bed) == (names.REASON_SCALE_REFUSED, REFUSAL)
    assert bed.job().workers == 4
    bed.faults.refusal = lambda _uid, _change: None
    bed.at(refused[0] + 300)
    assert bed.job("gang").training.began is None
    bed.at(refused[0] + 360)
    assert bed.job().workers == 2
    assert bed.job("gang").training.began is not None


LOST = {"while workers are removed": 1, "while workers are added": 2}


@pytest.mark.parametrize("times", LOST.values(), ids=LOST)
def test_a_pod_lost_after_the_write_is_replaced_and_the_change_continues(times: int) -> None:
    bed = until_changed(scaled_bed(LONG, GANG), times=times)
    lost = bed.job().pods[ReplicaKey("worker", 1)]
    bed.api.remove_pod(lost)
    bed.at(bed.clock.now + 60)
    assert bed.job().pods[ReplicaKey("worker", 1)].pod.uid != lost.pod.uid
    assert bed.job().training.workers == bed.job().workers == sizes(bed)[times - 1]
    assert not any_rescaled(bed)
    bed.at(1500)
    assert (sizes(bed), bed.job().training.lost_all) == ([2, 4], 0)
    assert not any(
        write.refused and isinstance(write.step, Rescale) for write in bed.driver.written
    )

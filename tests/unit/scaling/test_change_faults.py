"""Changes of size with missing, refused, or lost parts."""

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


def said(of: Bed) -> tuple[str, str]:
    """Return the shown reason and message of the job."""
    found = of.driver.shown["train", names.SCALED]
    assert found is not None
    return found.verdict.reason, found.verdict.message


def regrown() -> Bed:
    """A job that gave workers to a gang, and has just been scaled up again."""
    of = until_changed(scaled_bed(LONG, GANG), times=2)
    while size_record(followed(of)).phase is not Phase.SETTLING:
        of.at(of.clock.now + 0.5)
    assert sizes(of) == [2, 4]
    return of


def test_a_job_that_never_saves_does_not_regain_its_workers_and_shows_the_reason() -> None:
    of = until_changed(scaled_bed(LONG, GANG))
    of.job().training.spec = replace(LONG, answers=5000.0)
    while not of.job("gang").job.finished:
        of.at(of.clock.now + 1)
    began = of.clock.now
    of.at(began + 300)
    asked = [
        write
        for write in of.driver.written
        if isinstance(write.step, RequestCheckpoint) and write.at > began
    ]
    assert (sizes(of), len(asked), any_rescaled(of)) == ([2], 1, False)
    reason, message = said(of)
    assert reason == names.REASON_AWAITS_CHECKPOINT
    assert message == "it saved no checkpoint within 120 s; nothing was changed"


def test_a_job_that_ends_while_its_new_pods_start_leaves_its_capacity_to_others() -> None:
    following = replace(GANG, name="next", arrives=500.0, workers=4)
    of = until_changed(scaled_bed(LONG, GANG, following), times=2)
    assert size_record(followed(of)).phase is Phase.SETTLING
    ended = of.clock.now
    of.operator.end(of.job())
    of.at(600)
    assert [write for write in of.driver.written if write.job == "train" and write.at > ended] == []
    assert not any_rescaled(of)
    assert of.job("next").training.began is not None


def test_growth_is_reverted_while_a_new_quota_refuses_its_pods() -> None:
    of = regrown()
    full = Quota("team", "tight", hard={"pods": 2}, used={"pods": 2})
    of.faults.creates = lambda _job, key: key.index < 2
    of.planner.queue.quotas.observe_quota(None, full)
    of.at(of.clock.now + 900)
    assert sizes(of) == [2, 4, 2]
    assert (of.job().training.workers, of.job().job.suspend) == (2, False)
    reason, message = said(of)
    assert reason == names.REASON_SHRUNK
    assert "tight" in message
    of.faults.creates = lambda _job, _key: True
    of.planner.queue.quotas.observe_quota(full, None)
    of.at(of.clock.now + 400)
    assert (sizes(of), of.job().training.workers) == ([2, 4, 2, 4], 4)


def refuse_sizes(of: Bed) -> list[float]:
    """Refuse any other size of a job; return the seconds of the refusals."""
    refused: list[float] = []

    def refusal(_uid: str, change: Any) -> ApiError | None:
        if not resizes(change):
            return None
        refused.append(of.clock.now)
        return Forbidden(status=403, reason="Forbidden", message=REFUSAL)

    of.faults.refusal = refusal
    return refused


def test_a_size_that_the_api_server_refuses_is_named_and_tried_again_after_a_pause() -> None:
    of = scaled_bed(replace(LONG, steps=20000), GANG).at(100)
    refused = refuse_sizes(of)
    of.at(400)
    assert len(refused) == 1
    assert said(of) == (names.REASON_SCALE_REFUSED, REFUSAL)
    assert of.job().workers == 4
    of.faults.refusal = lambda _uid, _change: None
    of.at(refused[0] + 300)
    assert of.job("gang").training.began is None
    of.at(refused[0] + 360)
    assert of.job().workers == 2
    assert of.job("gang").training.began is not None


LOST = {"while workers are removed": 1, "while workers are added": 2}


@pytest.mark.parametrize("times", LOST.values(), ids=LOST)
def test_a_pod_lost_after_the_write_is_replaced_and_the_change_continues(times: int) -> None:
    of = until_changed(scaled_bed(LONG, GANG), times=times)
    lost = of.job().pods[ReplicaKey("worker", 1)]
    of.api.remove_pod(lost)
    of.at(of.clock.now + 60)
    assert of.job().pods[ReplicaKey("worker", 1)].pod.uid != lost.pod.uid
    assert of.job().training.workers == of.job().workers == sizes(of)[times - 1]
    assert not any_rescaled(of)
    of.at(1500)
    assert (sizes(of), of.job().training.lost_all) == ([2, 4], 0)
    assert not [
        write for write in of.driver.written if isinstance(write.step, Rescale) and write.refused
    ]

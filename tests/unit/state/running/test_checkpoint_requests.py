"""The handshake before a job is interrupted; its steps are tested with the changes that need it."""

import pytest

from kfext import names
from kfext.state.running.checkpoint_requests import PAUSE_SECONDS, pause_after, record_miss
from kfext.state.running.size.record import SizeRecord


@pytest.mark.parametrize(
    ("before", "pause"),
    [
        pytest.param(0, 1, id="the first failure pauses once"),
        pytest.param(1, 2, id="the second in a row twice as long"),
        pytest.param(9, 16, id="at most sixteen times as long"),
    ],
)
def test_a_job_that_saves_nothing_in_time_is_paused_for_longer(before: int, pause: int) -> None:
    record = SizeRecord(missed=before)
    record_miss(record, at=100.0)
    assert record.not_before == 100.0 + pause * PAUSE_SECONDS
    assert pause_after(before) == pause * PAUSE_SECONDS
    assert record.missed == before + 1
    assert record.refused is not None
    assert record.refused.reason == names.REASON_AWAITS_CHECKPOINT

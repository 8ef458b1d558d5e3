"""The back-off after a job saved no checkpoint in time."""

import pytest

from kfext import names
from kfext.state.running.checkpoint_requests import BACK_OFF_SECONDS, back_off_after, record_miss
from kfext.state.running.size.record import SizeRecord


@pytest.mark.parametrize(
    ("failures", "factor"),
    [
        pytest.param(0, 1, id="the first failure: the first back-off"),
        pytest.param(1, 2, id="the second failure in a row: twice as long"),
        pytest.param(9, 16, id="at most sixteen times as long"),
    ],
)
def test_the_back_off_grows_each_time_a_job_does_not_save(failures: int, factor: int) -> None:
    record = SizeRecord(missed=failures)
    record_miss(record, at=100.0)
    assert record.not_before == 100.0 + factor * BACK_OFF_SECONDS
    assert back_off_after(failures) == factor * BACK_OFF_SECONDS
    assert record.missed == failures + 1
    assert record.refused is not None
    assert record.refused.reason == names.REASON_AWAITS_CHECKPOINT

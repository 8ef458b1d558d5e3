"""A rescue that came to nothing: what it cost the givers is not paid again and again."""

from dataclasses import replace

import pytest

from kfext.core.lifecycle.steps import RequestCheckpoint
from tests.unit.sim.bed import GANG, LONG, PERIODIC, scaled_bed


@pytest.mark.parametrize("listeners", [1, 3])
def test_a_job_that_has_shown_a_save_gives_before_jobs_that_only_say_that_they_listen(
    listeners: int,
) -> None:
    silent = replace(LONG, workers=2, bounds=(1, 2), answers=1e9, steps=20_000)
    listening = [replace(silent, name=f"silent-{at}") for at in range(listeners)]
    of = scaled_bed(replace(PERIODIC, steps=9000), *listening, GANG, cpu=4000 + 2000 * listeners)
    of.at(250)
    assert of.job("gang").training.began is not None
    assert not [write for write in of.driver.written if isinstance(write.step, RequestCheckpoint)]

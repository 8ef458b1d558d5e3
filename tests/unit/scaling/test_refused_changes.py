"""Changes of size with a refused or unanswered write, or with a new controller."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.errors import ApiError, Forbidden, Invalid
from kfext.model.log_line import LogLine
from tests.unit.scaling.test_faults import any_rescaled, until_changed
from tests.unit.sim.bed import ANEW, CONFLICT, GANG, LONG, Bed, refuse, resizes, scaled_bed, sizes

DENIED = Forbidden(status=403, reason="Forbidden", message="admission webhook says no")
INVALID = Invalid(status=422, reason="Invalid", message="a test failed")
ENDLESS = replace(GANG, workers=2, steps=20_000)


def starts(uid: str, change: Any) -> bool:
    """Return whether a write starts the job."""
    return uid == "uid-train" and any(
        item["path"].endswith("/suspend") and item.get("value") is False
        for item in (change if isinstance(change, list) else ())
        if item["op"] != "test"
    )


def stopped_to_grow() -> Bed:
    """Return a job that was just stopped to regain its workers, beside two new waiting jobs."""
    bed = until_changed(scaled_bed(replace(ANEW, steps=20_000), GANG), times=2)
    for number in range(2):
        bed.submit(replace(ENDLESS, name=f"late-{number}", arrives=bed.clock.now))
    return bed


def test_a_new_controller_does_not_replace_workers_that_trained_after_their_change() -> None:
    bed = until_changed(scaled_bed(replace(LONG, steps=60_000), replace(GANG, steps=60_000)))
    bed.at(bed.clock.now + 400)
    training = bed.job().training
    training._print_at += 250  # an evaluation, which prints nothing
    bed.at(bed.clock.now + 20)
    bed.restart()
    first = bed.clock.wall - 60
    training.lines = [
        LogLine(first + 2 * number, f"step {int(training.done) - 200 + 4 * number}/60000 loss=1.0")
        for number in range(10)
    ]
    lost = training.lost
    bed.at(bed.clock.now + 400)
    assert (training.lost, any_rescaled(bed)) == (lost, False)


@pytest.mark.parametrize("error", [CONFLICT, DENIED], ids=["a conflict", "a refusal"])
def test_workers_without_a_node_are_removed_although_a_write_was_refused(error: ApiError) -> None:
    donor = replace(LONG, answers=20.0, steps=60_000)
    bed = Bed(donor, GANG, policy=None, a=3000, b=1000).at(101)
    while bed.job("gang").training.began is None:
        bed.at(bed.clock.now + 1)
    bed.faults.closed.add("b")
    until_changed(bed, times=2)  # it scales up on a node that no pod gets
    refused = refuse(bed, lambda uid, change: uid == "uid-train" and resizes(change), error)
    bed.at(bed.clock.now + 500)
    job = bed.job()
    assert (len(refused), job.workers, job.training.workers, job.job.released) == (1, 3, 3, False)


def test_a_new_controller_keeps_the_hold_of_a_job_that_was_stopped_to_scale_up() -> None:
    bed = stopped_to_grow()
    bed.restart()
    bed.after(20)
    assert (bed.job().job.suspend, bed.job().workers) == (False, 3)


def test_a_stopped_job_keeps_its_hold_if_the_answer_to_the_write_is_lost() -> None:
    bed = until_changed(scaled_bed(replace(ANEW, steps=20_000), GANG))
    bed.faults.loses = lambda uid, change: uid == "uid-train" and resizes(change)
    while not (bed.job().job.suspend and bed.job().workers == 3):
        bed.at(bed.clock.now + 1)
    bed.faults.loses = lambda _uid, _change: False
    for number in range(2):
        bed.submit(replace(ENDLESS, name=f"late-{number}", arrives=bed.clock.now))
    bed.after(20)
    assert (bed.job().job.suspend, bed.job().workers) == (False, 3)


@pytest.mark.parametrize(
    ("error", "times"),
    [(CONFLICT, 2), (DENIED, 1), (INVALID, 1)],
    ids=["two conflicts", "a refusal", "a failed test"],
)
def test_a_stopped_job_keeps_its_hold_if_its_start_is_refused(error: ApiError, times: int) -> None:
    bed = stopped_to_grow()
    refused = refuse(bed, starts, error, times=times)
    bed.after(60)
    assert (len(refused), bed.job().job.suspend) == (times, False)


def test_the_hold_of_a_stopped_job_is_released_once_it_has_started() -> None:
    bed = stopped_to_grow()
    while bed.job().job.suspend:
        bed.after(0.5)
    bed.after(1)
    assert bed.planner.cluster.holds.holders() == ()


def test_workers_that_hang_are_replaced_although_a_write_was_refused() -> None:
    bed = scaled_bed(replace(LONG, steps=30_000), replace(GANG, steps=300)).at(100)
    bed.job().training.hang()
    until_changed(bed)
    changed = bed.clock.now
    bed.at(changed + 30)
    bed.job().training._hangs = False  # its next processes do not hang
    refused = refuse(
        bed, lambda uid, _change: bed.clock.now > changed + 60 and uid == "uid-train", INVALID
    )
    bed.at(changed + 600)
    assert len(refused) == 1
    assert sizes(bed) == [2, 4], "it trains, and has regained its workers"

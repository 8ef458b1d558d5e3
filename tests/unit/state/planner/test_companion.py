"""The companion creates executors when jobs need them, and counts the outcomes of changes."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.errors import ApiError, Forbidden
from tests.traces import PLAIN
from tests.unit.resizing.bed import ServerAndWorkerBed
from tests.unit.resizing.test_contended_node import boosted
from tests.unit.sim.bed import CONFLICT, GANG, LONG, Bed, refuse, resizes, scaled_bed, sizes
from tests.unit.sim.test_preempt import URGENT, VICTIM, PreemptBed, asks, stops

RUNS = replace(PLAIN, steps=10_000)


def test_the_companion_is_idle_among_jobs_without_settings() -> None:
    bed = Bed(RUNS, policy=None, a=4000).at(60)
    assert bed.job().job.started
    companion = bed.planner.companion
    assert companion.executors == {}
    assert (companion.next_look(), companion.news(), companion.failures) == (float("inf"), [], [])


def test_the_companion_starts_for_a_job_that_opts_in_while_it_runs() -> None:
    bed = Bed(RUNS, policy=None, a=4000).at(60)
    bed.annotate(names.RESIZE, "cpu")
    bed.after(20)
    assert bed.planner.companion.executors.keys() == {names.RESIZED}


def test_a_new_controller_restores_workers_of_a_job_that_opted_out_meanwhile() -> None:
    bed = scaled_bed(LONG, GANG)
    while not sizes(bed):
        bed.after(1)
    requested = bed.job().spec.workers
    bed.restart()
    bed.annotate(names.ELASTIC, "off")
    bed.after(300)
    assert sizes(bed)[-1] == requested


# --- the outcomes of changes --------------------------------------------------------------------


def counts(bed: Bed) -> dict[tuple[str, str], int]:
    return {key: number for key, number in bed.planner.companion.changes.items() if number}


def test_each_change_of_a_size_is_counted_once() -> None:
    bed = scaled_bed(LONG, GANG)
    bed.run()
    assert len(sizes(bed)) > 1
    assert counts(bed) == {("scale", "done"): len(sizes(bed))}


DENIED = Forbidden(status=403, reason="Forbidden", message="admission webhook says no")


@pytest.mark.parametrize(("error", "outcome"), [(DENIED, "refused"), (CONFLICT, "failed")])
def test_a_change_that_is_not_written_is_counted_with_its_outcome(
    error: ApiError, outcome: str
) -> None:
    bed = scaled_bed(LONG, GANG)
    refused = refuse(bed, lambda uid, change: uid == "uid-train" and resizes(change), error)
    while not refused:
        bed.after(1)
    bed.after(5)
    assert counts(bed) == {("scale", outcome): 1}


def test_a_checkpoint_request_does_not_count_as_a_change() -> None:
    bed = PreemptBed(VICTIM, URGENT).at(300)
    assert (asks(bed), stops(bed)) == (["train"], ["train"])
    assert counts(bed) == {("preempt", "done"): 1}


def test_changes_of_cpu_and_restores_are_counted_separately() -> None:
    bed = boosted()
    assert counts(bed) == {("resize", "done"): 1}
    bed.set_policy("short", "off")
    bed.after(60)  # another job gets the CPU now
    assert counts(bed) == {("resize", "done"): 2, ("none", "restored"): 1}
    assert sum(bool(step.sizes) for _, step in bed.resized) == 3


def test_a_change_in_two_stages_is_counted_after_the_last_stage() -> None:
    bed = ServerAndWorkerBed()
    while len(bed.written()) < 1:
        bed.after(1)
    assert counts(bed) == {}
    while len(bed.written()) < 2:
        bed.after(1)
    assert counts(bed) == {("shift", "done"): 1}

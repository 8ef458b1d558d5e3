"""A job that opted in to scale and resize: its size and its CPU never change together.

Names with X2 check the statements of tests/statements.md.
"""

from collections.abc import Callable

from kfext.model.log_line import LogLine
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.jobs import PYTORCH, Style
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import record_of as size_record
from tests.builders import executor_of
from tests.unit.resizing.bed import CPU, SCAN_SECONDS, CpuBed

JOB = "old"
MAX_SCANS = 30


def contended() -> CpuBed:
    """Return a node with a job that may scale up, and a job that arrives later and would end later.

    At first, scaling is a dry run.
    """
    bed = CpuBed()
    set_scale_mode(bed, Mode.OBSERVE)
    live = bed.add(JOB, work=3000.0, kind=PYTORCH, style=Style.TORCHRUN, bounds=(1, 2))
    bed.after(20)
    live.training.lines.append(LogLine(bed.clock.wall, "saved checkpoint at step 1"))
    bed.after(600)
    bed.add("new", work=9000.0)
    return bed


def set_scale_mode(bed: CpuBed, mode: Mode) -> None:
    """Set the mode of scale; in mode act, sizes change as soon as there is capacity."""
    choice = PolicyChoice(mode, {"idle": 0.0, "rest": 0.0})
    bed.planner.settings.observe_policy(TrainingPolicy("p", companion={"scale": choice}))


def scans_until(bed: CpuBed, holds: Callable[[], bool]) -> int:
    """Return the scans until a condition holds; at least one scan passes."""
    for number in range(1, MAX_SCANS):
        bed.after(SCAN_SECONDS)
        if holds():
            return number
    raise AssertionError(f"not within {MAX_SCANS} scans")


def changes_size(bed: CpuBed) -> bool:
    """Return whether a change of the job's size is in progress."""
    job = executor_of(bed.planner, SizeExecutor).jobs.get(f"uid-{JOB}")
    return job is not None and size_record(job).operation is not None


def changes_cpu(bed: CpuBed) -> bool:
    job = executor_of(bed.planner, CpuExecutor).jobs.get(f"uid-{JOB}")
    return job is not None and cpu_record(job).operation is not None


def when_both_changes_may_begin() -> CpuBed:
    """Return the node after the scan in which both changes of the job could begin."""
    rehearsal = contended()
    scans = scans_until(rehearsal, lambda: changes_cpu(rehearsal))
    bed = contended()
    for _ in range(scans - 1):
        bed.after(SCAN_SECONDS)
    assert not changes_cpu(bed)
    set_scale_mode(bed, Mode.ACT)
    bed.after(SCAN_SECONDS)
    return bed


def test_X2_if_both_changes_may_begin_the_size_changes_first() -> None:
    bed = when_both_changes_may_begin()
    assert changes_size(bed)
    while changes_size(bed):
        assert bed.request(JOB) == CPU
        bed.after(SCAN_SECONDS)
    scans_until(bed, lambda: bed.request(JOB) > CPU)


def test_X2_the_size_of_a_job_stays_while_its_cpu_changes() -> None:
    bed = contended()
    scans_until(bed, lambda: changes_cpu(bed))
    set_scale_mode(bed, Mode.ACT)
    bed.after(SCAN_SECONDS)
    assert changes_cpu(bed)
    while changes_cpu(bed):
        assert not changes_size(bed)
        bed.after(SCAN_SECONDS)
    scans_until(bed, lambda: changes_size(bed))


def test_X2_a_boost_is_removed_even_during_a_change_of_size() -> None:
    bed = contended()
    scans_until(bed, lambda: changes_cpu(bed))
    set_scale_mode(bed, Mode.ACT)
    scans_until(bed, lambda: changes_size(bed))
    assert bed.request(JOB) > CPU
    bed.set_policy(JOB, "off")
    bed.after(SCAN_SECONDS)
    assert (bed.request(JOB), changes_size(bed)) == (CPU, True)

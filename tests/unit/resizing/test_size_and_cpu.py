"""A job that opted into both: its number of workers and its CPU never change together."""

from collections.abc import Callable

from kfext.model.log_line import LogLine
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.jobs import PYTORCH, Style
from kfext.state.running.cpu.executor import CpuExecutor
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import record_of as size_record
from tests.builders import executor_of
from tests.unit.resizing.bed import CPU, ROUND, CpuBed

BOTH = "old"
MOST_ROUNDS = 30


def contended() -> CpuBed:
    """A job that may have more workers, and a job that comes later and would end after it.

    Its growth is only shown at first.
    """
    bed = CpuBed()
    scale(bed, Mode.OBSERVE)
    live = bed.add(BOTH, takes=3000.0, kind=PYTORCH, style=Style.TORCHRUN, bounds=(1, 2))
    bed.after(20)
    live.training.lines.append(LogLine(bed.clock.wall, "saved checkpoint at step 1"))
    bed.after(600)
    bed.add("new", takes=9000.0)
    return bed


def scale(bed: CpuBed, mode: Mode) -> None:
    """Let sizes change as soon as there is capacity, or only be shown."""
    choice = PolicyChoice(mode, {"idle": 0.0, "rest": 0.0})
    bed.planner.settings.observe_policy(TrainingPolicy("p", companion={"scale": choice}))


def rounds_until(bed: CpuBed, holds: Callable[[], bool]) -> int:
    """Return the rounds until a condition holds; at least one round passes."""
    for number in range(1, MOST_ROUNDS):
        bed.after(ROUND)
        if holds():
            return number
    raise AssertionError(f"not within {MOST_ROUNDS} rounds")


def changes_size(bed: CpuBed) -> bool:
    """Return whether another size of the job is under way: it waits for its next checkpoint."""
    job = executor_of(bed.planner, SizeExecutor).jobs.get(f"uid-{BOTH}")
    return job is not None and size_record(job).operation is not None


def changes_cpu(bed: CpuBed) -> bool:
    job = executor_of(bed.planner, CpuExecutor).jobs.get(f"uid-{BOTH}")
    return job is not None and cpu_record(job).operation is not None


def in_the_middle_of_a_change_of_size() -> CpuBed:
    """Both changes could begin at one look."""
    first = contended()
    at = rounds_until(first, lambda: changes_cpu(first))
    bed = contended()
    for _ in range(at - 1):
        bed.after(ROUND)
    assert not changes_cpu(bed)
    scale(bed, Mode.ACT)
    bed.after(ROUND)
    return bed


def test_X2_where_both_could_begin_the_size_changes_first() -> None:
    bed = in_the_middle_of_a_change_of_size()
    assert changes_size(bed)
    while changes_size(bed):
        assert bed.request(BOTH) == CPU
        bed.after(ROUND)
    rounds_until(bed, lambda: bed.request(BOTH) > CPU)


def test_X2_while_the_cpu_of_a_job_is_changed_its_size_stays() -> None:
    bed = contended()
    rounds_until(bed, lambda: changes_cpu(bed))
    scale(bed, Mode.ACT)
    bed.after(ROUND)
    assert changes_cpu(bed)
    while changes_cpu(bed):
        assert not changes_size(bed)
        bed.after(ROUND)
    rounds_until(bed, lambda: changes_size(bed))


def test_X2_a_boost_is_reverted_whatever_else_is_under_way() -> None:
    bed = contended()
    rounds_until(bed, lambda: changes_cpu(bed))
    scale(bed, Mode.ACT)
    rounds_until(bed, lambda: changes_size(bed))
    assert bed.request(BOTH) > CPU
    bed.opt(BOTH, "off")
    bed.after(ROUND)
    assert (bed.request(BOTH), changes_size(bed)) == (CPU, True)

"""A job that opted into both: of its number of workers and its CPU, one is changed at a time."""

from collections.abc import Callable

from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from tests.unit.state.training_node import SIZE, TrainingNode

BOTH = "old"
MOST_ROUNDS = 30


def contended() -> TrainingNode:
    """Two jobs that have converged, of which one may have more workers, and one that grows.

    How it would grow is only shown at first.
    """
    bed = TrainingNode()
    scale(bed, Mode.OBSERVE)
    bed.submit(BOTH, converges=2.0, elastic=True).saved = True
    bed.submit("older", converges=2.0)
    bed.run(600)
    bed.submit("new", converges=400.0)
    return bed


def scale(bed: TrainingNode, mode: Mode) -> None:
    """Have sizes changed, as soon as there is room, or only shown."""
    choice = PolicyChoice(mode, {"idle": 0.0, "rest": 0.0})
    bed.planner.settings.observe_policy(TrainingPolicy("p", companion={"scale": choice}))


def rounds_until(bed: TrainingNode, holds: Callable[[], bool]) -> int:
    """Return after how many rounds something holds; at least one is looked at."""
    for number in range(1, MOST_ROUNDS):
        bed.round()
        if holds():
            return number
    raise AssertionError(f"not within {MOST_ROUNDS} rounds")


def changes_size(bed: TrainingNode) -> bool:
    """Return whether another size of the job is under way: it waits for its next checkpoint."""
    job = bed.planner.companion._jobs.scaled.get(f"uid-{BOTH}")
    return job is not None and job.size.operation is not None


def changes_cpu(bed: TrainingNode) -> bool:
    job = bed.planner.companion._jobs.resized.get(f"uid-{BOTH}")
    return job is not None and job.cpu.operation is not None


def in_the_middle_of_a_change_of_size() -> TrainingNode:
    """Both could begin at one look."""
    first = contended()
    at = rounds_until(first, lambda: changes_cpu(first))
    bed = contended()
    for _ in range(at - 1):
        bed.round()
    assert not changes_cpu(bed)
    scale(bed, Mode.ACT)
    bed.round()
    return bed


def test_X2_where_both_could_begin_it_is_the_size_and_the_cpu_waits_for_its_end() -> None:
    bed = in_the_middle_of_a_change_of_size()
    assert changes_size(bed)
    assert bed.limit("older") == SIZE // 4, "that of others is changed meanwhile"
    while changes_size(bed):
        assert bed.limit(BOTH) is None
        bed.round()
    rounds_until(bed, lambda: bed.limit(BOTH) == SIZE // 4)


def test_X2_while_the_cpu_of_a_job_is_changed_its_size_stays() -> None:
    bed = contended()
    rounds_until(bed, lambda: changes_cpu(bed))
    scale(bed, Mode.ACT)
    bed.round()
    assert changes_cpu(bed)
    while changes_cpu(bed):
        assert not changes_size(bed)
        bed.round()
    rounds_until(bed, lambda: changes_size(bed))


def test_X2_what_was_taken_is_given_back_whatever_else_is_under_way() -> None:
    bed = contended()
    rounds_until(bed, lambda: changes_cpu(bed))
    scale(bed, Mode.ACT)
    rounds_until(bed, lambda: changes_size(bed))
    assert bed.limit(BOTH) == SIZE // 4
    bed.annotate(BOTH, "off")
    bed.round()
    assert (bed.limit(BOTH), changes_size(bed)) == (SIZE, True)

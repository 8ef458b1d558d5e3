"""A job whose CPU moves from its server to its worker, whatever dies meanwhile, in virtual time."""

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.model.cpu_state import CpuState
from tests.unit.state.split_job import LIMIT, UID, SplitJob

SETTLED = 60
"""Rounds after which what was interrupted has been taken up again and judged."""
SHIFTED = {"worker": 2 * LIMIT - 50, "ps": 50}


def begun(*, writes: int) -> SplitJob:
    """A job of which so many stages are written: the server shrinks, then the worker grows."""
    bed = SplitJob()
    while len(bed.written) < writes:
        bed.round()
    return bed


def the_controller_dies(bed: SplitJob) -> None:
    bed.restart()


def it_dies_before_the_next_write(bed: SplitJob) -> None:
    bed.dies = True


def the_worker_is_made_anew(bed: SplitJob) -> None:
    bed.replace_pod("worker")


def the_server_is_made_anew(bed: SplitJob) -> None:
    bed.replace_pod("ps")


def all_at_once(bed: SplitJob) -> None:
    bed.replace_pod("worker")
    bed.replace_pod("ps")
    bed.restart()


ACTS: tuple[Callable[[SplitJob], None], ...] = (
    the_controller_dies,
    it_dies_before_the_next_write,
    the_worker_is_made_anew,
    the_server_is_made_anew,
    all_at_once,
)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    ("writes", "rounds"),
    [
        pytest.param(0, 0, id="before the first stage"),
        pytest.param(1, 0, id="between two stages"),
        pytest.param(2, 0, id="after the last write"),
        pytest.param(2, 30, id="long after it"),
    ],
)
def test_cpu_moves_again_and_none_is_lost(
    writes: int, rounds: int, act: Callable[[SplitJob], None]
) -> None:
    bed = begun(writes=writes).run(rounds)
    act(bed)
    assert bed.run(SETTLED).limits() == SHIFTED
    assert not bed.cluster.jobs[UID].state.cpu.rests


def test_what_was_written_before_the_worker_went_is_restored_at_the_next_look() -> None:
    bed = begun(writes=1)
    the_worker_is_made_anew(bed)
    assert bed.run(2).limits() == {"worker": LIMIT, "ps": LIMIT}


@pytest.mark.histories
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 12)), max_size=6))
def test_after_any_faults_the_sum_is_the_users_and_off_restores_each(
    acts: list[tuple[Callable[[SplitJob], None], int]],
) -> None:
    bed = begun(writes=1)
    for act, rounds in acts:
        note(f"{bed.at:g} s: {act.__name__}, {bed.limits()}")
        act(bed)
        bed.run(rounds)
    assert sum(limit or 0 for limit in bed.run(SETTLED).limits().values()) == 2 * LIMIT
    bed.annotate(names.RESIZE, "off")
    assert bed.run(10).limits() == {"worker": LIMIT, "ps": LIMIT}
    assert bed.cluster.jobs[UID].state.cpu == CpuState()

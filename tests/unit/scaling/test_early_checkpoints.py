"""A change waits until all ranks have written, even if one rank reports a complete checkpoint."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Rescale, Suspend
from kfext.model.log_line import LogLine
from kfext.sim.jobs import JobSpec, Saving
from tests.no_saves import BEFORE_ALL_RANKS
from tests.unit.sim.bed import ANEW, GANG, LONG, TORCHRUN, Bed, scaled_bed
from tests.unit.sim.test_moves import SPREAD, spread_bed

STARVED = replace(GANG, arrives=400.0, steps=200)
FIRST, PERIOD, LAST = 60, 60, 700
"""A save begins every PERIOD seconds from second FIRST on; the simulation ends at second LAST."""
Change = tuple[Callable[[JobSpec], Bed], JobSpec]
CHANGES: dict[str, Change] = {
    "a PyTorchJob is scaled down": (lambda spec: scaled_bed(spec, STARVED), LONG),
    "a TFJob is scaled down": (lambda spec: scaled_bed(spec, STARVED), ANEW),
    "a PyTorchJob is scaled up": (scaled_bed, TORCHRUN),
    "a job is moved": (spread_bed, SPREAD),
}


def run_saving(change: Change, lines: tuple[str, str], *, others: int) -> tuple[list[float], float]:
    """Return the seconds of the changes, and the number of lost steps.

    `lines`: what rank 0 prints at the begin and at the end of its save, which takes a second.
    `others`: the further seconds that the other ranks need. Then the next step is printed.
    """
    bed_of, spec = change
    never = replace(spec, saving=Saving.NEVER, prints=1e9, steps=10**6)
    bed, (begun, written) = bed_of(never), lines
    for second in range(FIRST, LAST, 1):
        bed.at(float(second))
        training = bed.job().training
        at = (second - FIRST) % PERIOD
        step = f"global step {second}/1000000 loss={1000 / second}"
        line = {0: step, 1: begun, 2: written, 2 + others: step}.get(at)
        if line is not None and training.began is not None:
            numbered = line.replace("9 ", f"{second - at} ")  # a repeated number does not count
            training.lines.append(LogLine(bed.clock.wall, numbered))
    changes = [
        write.at
        for write in bed.driver.written
        if write.job == "train" and not write.refused and write.at > FIRST
        if isinstance(write.step, Rescale)
        or (isinstance(write.step, Suspend) and write.step.state.reason != names.REASON_NO_ROOM)
    ]
    return changes, training.lost


@pytest.mark.parametrize("lines", BEFORE_ALL_RANKS.values(), ids=BEFORE_ALL_RANKS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_changes_while_other_ranks_may_write(
    change: Change, lines: tuple[str, str]
) -> None:
    assert run_saving(change, lines, others=30) == ([], 0)


@pytest.mark.parametrize("lines", BEFORE_ALL_RANKS.values(), ids=BEFORE_ALL_RANKS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_comes_after_the_next_step(change: Change, lines: tuple[str, str]) -> None:
    changes, _ = run_saving(change, lines, others=2)
    assert changes
    assert all((at - FIRST) % PERIOD >= 4 for at in changes)

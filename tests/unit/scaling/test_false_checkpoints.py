"""Jobs that never save lose no work to a waiting job, whatever they print about checkpoints."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kfext.model.log_line import LogLine
from kfext.sim.jobs import JobSpec, Saving
from tests.no_saves import ASYNCHRONOUS, FAILING, NO_SAVES
from tests.unit.sim.bed import ANEW, GANG, LONG, Bed, scaled_bed, sizes

STARVED = replace(GANG, arrives=600.0, steps=200)
"""A job that waits for capacity which only the training job can release."""
SPECS: dict[str, JobSpec] = {
    "PyTorchJob": replace(LONG, saving=Saving.NEVER, steps=10**6),
    "TFJob": replace(ANEW, saving=Saving.NEVER, steps=10**6),
}
LOGS: dict[str, Sequence[str]] = {
    **NO_SAVES,
    "all such lines": [line for lines in NO_SAVES.values() for line in lines],
    "begun and failed": FAILING,
    **{f"begun and not complete: {name}": lines[:2] for name, lines in ASYNCHRONOUS.items()},
    **{
        f"begun, failed and said to be complete: {name}": (*lines[:2], FAILING[1], lines[2])
        for name, lines in ASYNCHRONOUS.items()
    },
}


def bed_printing(spec: JobSpec, lines: Sequence[str]) -> Bed:
    """Let a job train for 1,000 s; every 5 s it prints the next of the lines, beside its steps."""
    bed = scaled_bed(spec, STARVED)
    printed = 0
    for second in range(30, 1000, 5):
        training = bed.at(float(second)).job().training
        if training.began is not None:
            training.lines.append(LogLine(bed.clock.wall, lines[printed % len(lines)]))
            printed += 1
    assert printed > len(lines)
    return bed


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("lines", LOGS.values(), ids=LOGS)
def test_a_line_that_reports_no_save_causes_no_change_and_no_lost_work(
    spec: JobSpec, lines: Sequence[str]
) -> None:
    bed = bed_printing(spec, lines)
    assert (bed.job().training.lost, sizes(bed)) == (0, [])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_line_that_reports_a_save_causes_a_change(spec: JobSpec) -> None:
    bed = bed_printing(spec, ["saved checkpoint /c/5.pt"])
    assert sizes(bed)
    assert bed.job().training.lost > 0


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_save_that_took_a_minute_in_the_background_causes_no_change(spec: JobSpec) -> None:
    begun, between, complete = ASYNCHRONOUS["Megatron-LM --async-save"]
    bed = bed_printing(spec, [begun, between, *["writing"] * 10, complete])
    assert (bed.job().training.lost, sizes(bed)) == (0, [])

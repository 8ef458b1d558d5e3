"""Why a job ended later than without the policy."""

from dataclasses import replace

import pytest

from kfext.sim.cluster import Ended
from tests.unit.sim.causes import Cause, why_later, why_waited
from tests.unit.sim.report import report, run_seed
from tests.unit.sim.rules import Change

BEFORE = Ended("train", elapsed=300.0, began=20.0, trained=280.0, redone=0.0)
LATER = replace(BEFORE, elapsed=400.0)
GIVES = Change(100.0, 4, 2, undoes=False, head="head", behind=frozenset())
GROWS = replace(GIVES, before=4, after=5)


@pytest.mark.parametrize(
    ("ended", "changes", "cause"),
    [
        pytest.param(replace(LATER, began=120.0), [], Cause.ORDER, id="it began later"),
        pytest.param(LATER, [GROWS], Cause.PAUSED, id="it stood still"),
        pytest.param(
            replace(LATER, trained=380.0, redone=90.0), [GIVES], Cause.REDONE, id="lost steps"
        ),
        pytest.param(
            replace(LATER, trained=380.0), [GROWS, GIVES], Cause.GAVE, id="it gave workers"
        ),
        pytest.param(
            replace(LATER, trained=380.0), [GROWS], Cause.TRIED, id="it grew and was no faster"
        ),
        pytest.param(replace(LATER, trained=380.0), [], Cause.CROWDED, id="it was not changed"),
    ],
)
def test_why_a_job_ended_100_seconds_later(
    ended: Ended, changes: list[Change], cause: Cause
) -> None:
    assert why_later(ended, BEFORE, changes) is cause


def change(at: float, before: int, after: int, *, behind: str = "", undoes: bool = False) -> Change:
    waiting = frozenset({behind} if behind else ())
    return Change(at, before, after, undoes, head="head", behind=waiting)


DUE, BEGAN = 100.0, 200.0
"""The start of the waiting job without the policy, and its actual start."""
WAITS = {
    "capacity was freed for an earlier job": ([change(90, 4, 2, behind="train")], Cause.KEPT),
    "capacity was freed after it began": ([change(201, 4, 2, behind="train")], Cause.ORDER),
    "capacity was freed for it": ([change(90, 4, 2)], Cause.ORDER),
    "growth was reverted before it": ([change(80, 5, 4, behind="train", undoes=True)], Cause.ORDER),
    "another job had grown": ([change(90, 4, 5)], Cause.GROWN),
    "another job grew when it was due": ([change(150, 4, 5)], Cause.GROWN),
    "another job had grown and shrunk again": ([change(80, 4, 5), change(99, 5, 4)], Cause.ORDER),
    "another job regained its workers": ([change(90, 2, 4)], Cause.ORDER),
    "another job grew after it began": ([change(201, 4, 5)], Cause.ORDER),
}


@pytest.mark.parametrize(("changes", "cause"), WAITS.values(), ids=WAITS)
def test_why_a_job_began_100_seconds_later(changes: list[Change], cause: Cause) -> None:
    requested = {"other": 4, "train": 4}
    assert (
        why_waited("train", {"other": changes}, requested=requested, due=DUE, until=BEGAN) is cause
    )


def test_its_own_growth_is_no_reason_to_wait() -> None:
    mine = {"train": [change(90, 4, 5)]}
    assert why_waited("train", mine, requested={"train": 4}, due=DUE, until=BEGAN) is Cause.ORDER


def test_the_report_of_a_seed_has_its_values_and_no_broken_rule() -> None:
    seed = run_seed(0)
    lines = list(report([seed]))
    assert "unended: 0" in lines
    assert f"{len(seed.late)} jobs took over 10% longer, because of each:" in lines
    assert "0 rules broken" in lines

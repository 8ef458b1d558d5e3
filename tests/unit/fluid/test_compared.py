"""Why a job ended later than without the policy."""

from dataclasses import replace

import pytest

from tests.unit.fluid.cluster import Ended
from tests.unit.fluid.compared import Cause, compare, why_later
from tests.unit.fluid.rules import Change

BEFORE = Ended("train", elapsed=300.0, began=20.0, trained=280.0, redone=0.0, workers=4.0)
LATER = replace(BEFORE, elapsed=400.0)
GIVES = Change(100.0, 4, 2, undoes=False, head="head", behind=frozenset())
GROWS = replace(GIVES, before=4, after=5)


@pytest.mark.parametrize(
    ("ended", "changes", "cause"),
    [
        pytest.param(replace(LATER, began=120.0), [], Cause.WAITED, id="it began later"),
        pytest.param(LATER, [GROWS], Cause.PAUSED, id="it stood still"),
        pytest.param(
            replace(LATER, trained=380.0, redone=90.0), [GIVES], Cause.REDONE, id="lost steps"
        ),
        pytest.param(
            replace(LATER, trained=380.0), [GROWS, GIVES], Cause.GAVE, id="it was made smaller"
        ),
        pytest.param(
            replace(LATER, trained=380.0), [GROWS], Cause.TRIED, id="it grew and was no faster"
        ),
        pytest.param(replace(LATER, trained=380.0), [], Cause.CROWDED, id="it was left as it was"),
    ],
)
def test_why_a_job_ended_100_seconds_later(
    ended: Ended, changes: list[Change], cause: Cause
) -> None:
    assert why_later(ended, BEFORE, changes) is cause


def test_a_seed_is_compared_job_by_job() -> None:
    pair = compare(0)
    assert [one.name for one in pair.jobs] == sorted(one.name for one in pair.jobs)
    assert all(one.cause is None or one.ratio > 1 for one in pair.jobs)
    assert min(pair.makespan) > 0
    assert 0 < min(pair.utilisation) <= max(pair.utilisation) <= 1

"""What the soak says of an action that never does anything."""

from collections import Counter

import pytest

from e2e.soak.invariants import Tally
from e2e.soak.memory import Memory

OFTEN = Counter({"resize": 20, "submit": 20})


@pytest.mark.parametrize(
    ("done", "took", "wrong"),
    [
        pytest.param(OFTEN, {}, 1, id="it was tried often"),
        pytest.param(OFTEN, {"resize": 1}, 0, id="it took effect once"),
        pytest.param(Counter({"resize": 19}), {}, 0, id="it was tried a few times"),
    ],
)
def test_an_action_that_is_always_in_vain_shows(
    done: Counter[str], took: dict[str, int], wrong: int
) -> None:
    assert len(Tally(done=done).in_vain(took)) == wrong


@pytest.mark.parametrize(("submitted", "scaled", "wrong"), [(200, 0, 1), (200, 1, 0), (50, 0, 0)])
def test_a_soak_in_which_no_job_is_scaled_shows(submitted: int, scaled: int, wrong: int) -> None:
    memory = Memory(create_timeout=5)
    memory.sizes.done += Counter(grown=scaled)
    assert len(Tally(done=Counter(submit=submitted)).unscaled(memory)) == wrong

"""What the soak says of an action that never does anything."""

from collections import Counter

import pytest

from e2e.soak.tally import Tally

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

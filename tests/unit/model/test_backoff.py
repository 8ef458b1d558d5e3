import pytest

from kfext.model.backoff import exponential_backoff

PAUSES = {
    "strikes of a placement": (15.0, 300.0, [15, 30, 60, 120, 240, 300, 300]),
    "refused writes of a step": (1.0, 30.0, [1, 2, 4, 8, 16, 30, 30]),
    "requests of an informer": (0.5, 30.0, [0.5, 1, 2, 4, 8, 16, 30, 30]),
}


@pytest.mark.parametrize(("first", "longest", "want"), PAUSES.values(), ids=PAUSES)
def test_each_failure_doubles_the_pause_up_to_the_longest(
    first: float, longest: float, want: list[float]
) -> None:
    pauses = [
        exponential_backoff(number, first=first, longest=longest)
        for number in range(1, len(want) + 1)
    ]
    assert pauses == want


def test_any_number_of_failures_has_a_pause() -> None:
    assert exponential_backoff(10**9, first=1.0, longest=30.0) == 30.0

import pytest

from kfext.model.backoff import exponential_backoff

BACK_OFFS = {
    "strikes of a placement": (15.0, 300.0, [15, 30, 60, 120, 240, 300, 300]),
    "refused writes of a step": (1.0, 30.0, [1, 2, 4, 8, 16, 30, 30]),
    "requests of an informer": (0.5, 30.0, [0.5, 1, 2, 4, 8, 16, 30, 30]),
}


@pytest.mark.parametrize(("first", "longest", "want"), BACK_OFFS.values(), ids=BACK_OFFS)
def test_each_failure_doubles_the_wait_up_to_the_longest(
    first: float, longest: float, want: list[float]
) -> None:
    seconds = [
        exponential_backoff(number, first=first, longest=longest)
        for number in range(1, len(want) + 1)
    ]
    assert seconds == want


def test_the_wait_is_bounded_after_any_number_of_failures() -> None:
    assert exponential_backoff(10**9, first=1.0, longest=30.0) == 30.0

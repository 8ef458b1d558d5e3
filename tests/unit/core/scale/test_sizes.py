"""How many workers a job may have, and how much of its wish it has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.elastic import with_workers
from kfext.core.scale.sizes import Sizes, sizes_of
from kfext.core.settings.values import Range
from tests.builders import JobBuilder, job


def torch(workers: int, **policy: int) -> JobBuilder:
    return job().worker(workers, cpu="1").elastic(**policy)


def dynamic(workers: int) -> JobBuilder:
    made = job("TFJob").ps(2, cpu="1").group("Chief", 1, cpu="1").worker(workers, cpu="1")
    made.raw["spec"]["enableDynamicWorker"] = True
    return made


SIZES: dict[str, tuple[JobBuilder, Range, int, Sizes]] = {
    "what the setting allows": (torch(4), Range(2, 8), 4, Sizes(4, 2, 8, 4)),
    "without a wish of its own the job asked for what it has": (
        torch(4),
        Range(2, 8),
        0,
        Sizes(4, 2, 8, 4),
    ),
    "one that runs with fewer than it asked for": (torch(3), Range(2, 8), 6, Sizes(3, 2, 8, 6)),
    "one that has grown may shrink as far as before": (
        torch(6),
        Range(5, 8),
        4,
        Sizes(6, 4, 8, 4),
    ),
    "a chief counts, parameter servers do not": (dynamic(4), Range(3, 8), 4, Sizes(4, 2, 7, 4)),
    "torchrun's own bounds count": (
        torch(4, minReplicas=3, maxReplicas=6),
        Range(2, 8),
        4,
        Sizes(4, 3, 6, 4),
    ),
    "what it asked for beyond the setting it may have": (
        torch(9),
        Range(2, 8),
        9,
        Sizes(9, 2, 9, 9),
    ),
    "but not beyond torchrun's bound": (
        torch(4, maxReplicas=6),
        Range(2, 8),
        9,
        Sizes(4, 2, 6, 9),
    ),
    "bounds that contradict each other leave one size": (
        torch(4, minReplicas=4, maxReplicas=3),
        Range(4, 8),
        4,
        Sizes(4, 3, 3, 4),
    ),
    "a job that cannot run with fewer gives none": (
        job().worker(4),
        Range(2, 8),
        4,
        Sizes(4, 4, 8, 4),
    ),
    "a TFJob that has to start anew for it may have fewer all the same": (
        job("TFJob").worker(4),
        Range(2, 8),
        4,
        Sizes(4, 2, 8, 4),
    ),
}


@pytest.mark.parametrize(("of", "allowed", "asked", "want"), SIZES.values(), ids=SIZES)
def test_D6_the_sizes_that_a_job_may_have(
    of: JobBuilder, allowed: Range, asked: int, want: Sizes
) -> None:
    assert sizes_of(of.build(), allowed, asked=asked) == want


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 3), st.integers(1, 9))
def test_D6_the_bounds_of_a_job_do_not_depend_on_its_present_size(
    minimum: int, now: int, more: int, asked: int
) -> None:
    of, allowed = torch(asked).build(), Range(minimum, minimum + more)
    found = sizes_of(with_workers(of, now), allowed, asked=asked)
    assert (found.least, found.most) == (
        sizes_of(of, allowed, asked=asked).least,
        sizes_of(of, allowed, asked=asked).most,
    )
    assert 1 <= found.least <= asked <= found.most


FULFILMENT: dict[str, tuple[Sizes, float]] = {
    "none with its least": (Sizes(2, 2, 8, 6), 0.0),
    "half": (Sizes(4, 2, 8, 6), 0.5),
    "all of what it asked for": (Sizes(6, 2, 8, 6), 1.0),
    "more than all": (Sizes(8, 2, 8, 6), 1.5),
    "all without room for less": (Sizes(4, 4, 8, 4), 1.0),
    "and more than all when it has grown from there": (Sizes(5, 4, 8, 4), 2.0),
    "less than none below its least": (Sizes(1, 2, 8, 6), -0.25),
    "and likewise without room for less": (Sizes(3, 4, 8, 4), 0.0),
}


@pytest.mark.parametrize(("sizes", "want"), FULFILMENT.values(), ids=FULFILMENT)
def test_fulfilment(sizes: Sizes, want: float) -> None:
    assert sizes.fulfilment == want


@pytest.mark.parametrize(("now", "want"), [(6, 4), (2, 0), (1, 0)])
def test_the_surplus_is_what_it_has_beyond_its_least(now: int, want: int) -> None:
    assert Sizes(now, 2, 8, 6).surplus == want

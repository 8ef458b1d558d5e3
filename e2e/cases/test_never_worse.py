"""No job is worse off than without kfext, whatever its pods ask of kube-scheduler.

Random jobs, each alone in two equal worlds: what is bound without kfext is bound with it, at most
three bindTimeouts later. This is the one place where a test asserts a time.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.harness import odd_world
from e2e.harness.kfext_process import Kfext
from e2e.harness.odd_jobs import HARD, odd_job
from e2e.harness.odd_runs import Pair, run

_AT_ONCE = 5
"""Jobs, each of which has nodes of its own."""


@pytest.fixture
def classes(kfext: Kfext) -> Iterator[None]:
    odd_world.make_classes(kfext.kube)
    yield
    odd_world.remove_classes(kfext.kube)


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize(
    ("seed", "count"), [(1, len(HARD)), pytest.param(2, 200, marks=pytest.mark.long)]
)
def test_a_job_that_is_bound_without_kfext_is_bound_with_it(
    kfext: Kfext, seed: int, count: int
) -> None:
    def pair(number: int) -> Pair:
        return run(kfext, odd_job(seed, number), f"never-worse-{os.getpid()}-{seed}-{number}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(pair, range(count)))
    bound = sum(one.plain is not None for one in found)
    with_kfext = sum(one.ours is not None for one in found)
    print(f"of {count} jobs {bound} are bound without kfext and {with_kfext} with it")
    wrong = [str(one) for one in found if one.wrong]
    assert not wrong, "\n\n".join(wrong)
    assert bound >= count * 3 // 4

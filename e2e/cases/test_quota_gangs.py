"""Two gangs under one quota: never two halves."""

from e2e.harness.jobs import workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.refusing import limit_pods
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def test_of_two_gangs_under_a_quota_for_one_the_second_has_no_pod_until_the_first_has_gone(
    space: Space, kfext: Kfext
) -> None:
    limit_pods(space, 5)
    # Without this both would be stopped in time, and start again: the deadlock must not begin.
    space.policy(placement={"createTimeout": "10m"})
    for name in ("first", "second"):
        space.submit(workers(name, 4, each=GPU))
    space.bound("first", 4)
    space.phase("first", "Placed")
    view = space.phase("second", "Queued")
    assert "quota" in view["message"]
    assert space.pods("second") == []
    assert space.starts() == 1
    space.kube.delete(space.path("pytorchjobs", "first"))
    space.bound("second", 4)
    space.phase("second", "Placed")
    assert space.starts() == 2

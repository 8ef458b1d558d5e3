"""Two jobs that each need more than half of the cluster: a deadlock on plain Kubernetes only.

In both arms, quotas admit five of the six pods of each job, and are then lifted. So on plain
Kubernetes each job holds half of the cluster. The last case has one permanent quota for two gangs.
"""

from collections.abc import Callable
from functools import partial

from e2e.harness.jobs import workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import limit_pods, succeed
from e2e.harness.space import CASE, Space
from e2e.harness.wait import until

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
_PODS, _HALF = 6, 5  # the cluster has ten GPUs
NewSpace = Callable[..., Space]


def _submit_both(
    new_space: NewSpace, *, managed: bool, halfway: Callable[[Space], bool], tries: int = 3
) -> tuple[Space, Space]:
    """Submit a job in each of two namespaces; lift their quotas once both are `halfway`.

    If a quota admits a sixth pod (see `limit_pods`), the jobs are submitted in other namespaces, at
    most `tries` times in all: a quota that never holds fails the case.
    """
    spaces = first, _ = new_space(managed=managed), new_space(managed=managed)
    first.nodes(5, cpu="32", memory="64Gi", gpu="2")
    quotas = [limit_pods(space, _HALF) for space in spaces]
    for space in spaces:
        pod = {"nodeSelector": {CASE: first.name}}
        ends = {"cleanPodPolicy": "All"}
        space.submit(workers("job", _PODS, each=GPU, pod=pod, policy=ends))
    for space in spaces:
        space.until(partial(_is_ready, space, halfway), "the job is halfway")
    if tries > 1 and any(map(_has_all, spaces)):
        return _submit_both(new_space, managed=managed, halfway=halfway, tries=tries - 1)
    for space, quota in zip(spaces, quotas, strict=True):
        space.kube.delete(quota)
    return spaces


def _is_ready(space: Space, halfway: Callable[[Space], bool]) -> bool:
    return halfway(space) or _has_all(space)


def _has_all(space: Space) -> bool:
    return len(space.pods("job")) == _PODS


def _bound(space: Space) -> int:
    return sum(home != "" for home in space.nodes_by_pod("job").values())


def _refused(space: Space) -> bool:
    """Return whether all pods exist, and kube-scheduler finds no capacity for the last pod."""
    pods = space.pods("job")
    notes = [
        condition.get("message", "")
        for pod in pods
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    return len(pods) == _PODS and len(notes) == 1 and "Insufficient nvidia.com/gpu" in notes[0]


def test_D1_two_jobs_that_each_need_60_percent_deadlock_on_plain_kubernetes(
    new_space: NewSpace,
) -> None:
    space_a, space_b = _submit_both(
        new_space, managed=False, halfway=lambda space: _bound(space) == _HALF
    )
    for space in (space_a, space_b):
        space.until(partial(_refused, space), "the last pod does not fit")
    # kube-scheduler is not just slow: it binds a later pod.
    pod = {"nodeSelector": {CASE: space_a.name}}
    space_a.submit(workers("bystander", 1, each={"cpu": "1"}, pod=pod))
    space_a.bound("bystander", 1)
    assert [_bound(space_a), _bound(space_b)] == [_HALF, _HALF]
    assert _refused(space_a)
    assert _refused(space_b)
    # Only the deletion of a job ends the deadlock.
    space_a.kube.delete(space_a.path("pytorchjobs", "job"))
    space_b.bound("job", _PODS)


def test_D1_two_jobs_that_each_need_60_percent_run_one_after_the_other_with_kfext(
    new_space: NewSpace,
) -> None:
    space_a, space_b = _submit_both(
        new_space, managed=True, halfway=lambda space: "phase" in space.view("job")
    )
    seen: set[tuple[int, int]] = set()

    def placed() -> Space | None:
        seen.add((_bound(space_a), _bound(space_b)))
        spaces = (space_a, space_b)
        whole = [space for space in spaces if space.view("job").get("phase") == "Placed"]
        return whole[0] if whole else None

    first = space_a.patiently(placed, seconds=180)
    second = space_b if first is space_a else space_a
    assert _bound(first) == _PODS
    waiting = second.phase("job", "Queued")
    assert _bound(second) == 0
    assert waiting["message"]
    succeed(first, "job-master-0")  # the training is done
    until(lambda: _bound(second) == _PODS, what="the other job runs", account=second.account)
    second.phase("job", "Placed")
    assert not [both for both in seen if all(both)], "never did both jobs hold GPUs"


def test_under_a_quota_for_one_gang_a_second_has_no_pod_until_the_first_is_deleted(
    space: Space, kfext: Kfext
) -> None:
    limit_pods(space, 5)
    # A longer timeout than the case takes: no gang may be stopped and started again.
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

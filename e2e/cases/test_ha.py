"""Two controllers and one Lease: the leader may end in any way, and no job is affected.

`Moving` is many small gangs between submit and start, and the invariants at the end.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.harness.faults import KillAfter, pod_patch, unsuspend_patch
from e2e.harness.jobs import workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.space import Space
from e2e.harness.wait import until
from kfext import names

PODS = 2
"""Pods of each gang, with one GPU each."""
_NODE_GPUS = 16
_IN_FLIGHT = 8
_PATIENCE_SECONDS = 300.0
GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


class Moving:
    """`count` gangs of PODS pods, and nodes that they fill exactly, so one misplaced pod shows."""

    def __init__(self, space: Space, count: int) -> None:
        self.space = space
        self.names = [f"gang-{number:03}" for number in range(count)]
        space.nodes(-(-count * PODS // _NODE_GPUS), cpu="64", memory="256Gi", gpu=str(_NODE_GPUS))

    def submit(self, names_of: Sequence[str] | None = None) -> None:
        """Submit all gangs, or the named gangs, some at the same time."""
        each = {"nvidia.com/gpu": "1", "cpu": "1"}
        jobs = [workers(name, PODS, each=each) for name in names_of or self.names]
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            list(pool.map(self.space.submit, jobs))

    def started(self) -> Counter[str]:
        """Return the number of unsuspending writes under a plan of each job, by any controller."""
        done = self.space.kfext.writes(unsuspend_patch(self.space.name))
        return Counter(exchange.path.rsplit("/", 1)[-1] for exchange in done)

    def wait_placed(self) -> None:
        """Wait until every gang is whole, bound, and reported as Placed."""
        self.space.patiently(self._all_bound, seconds=_PATIENCE_SECONDS)
        self.space.patiently(lambda: self._phases() == {"Placed"}, seconds=_PATIENCE_SECONDS)

    def check(self) -> None:
        """Check that nothing was lost and nothing was done twice."""
        pods = self.space.pods(ending=True)
        assert self.started() == Counter(dict.fromkeys(self.names, 1))
        assert self.space.pins() == Counter(pod["metadata"]["name"] for pod in pods)
        load = Counter(pod["spec"]["nodeName"] for pod in pods)
        assert max(load.values()) <= _NODE_GPUS, load
        homes: dict[str, set[str]] = {}
        for pod in pods:
            homes.setdefault(_job_of(pod), set()).add(pod["spec"]["nodeName"])
        assert [job for job, nodes in homes.items() if len(nodes) > 1] == []

    def _all_bound(self) -> bool:
        pods = self.space.pods(ending=True)
        whole = Counter(_job_of(pod) for pod in pods if pod["spec"].get("nodeName"))
        return len(pods) == PODS * len(self.names) and whole == dict.fromkeys(self.names, PODS)

    def _phases(self) -> set[str]:
        plans = self.space.kube.items(self.space.path("trainingplans"))
        phases = {plan["status"].get("phase", "") for plan in plans if "status" in plan}
        return phases if len(plans) == len(self.names) else set()


def _job_of(pod: Object) -> str:
    name: str = pod["metadata"]["labels"][names.JOB_NAME]
    return name


@pytest.mark.long
@pytest.mark.parametrize(
    ("jobs", "deadly"),
    [(200, unsuspend_patch), (40, pod_patch)],
    ids=["200 jobs, between two plans", "40 jobs, between two pins"],
)
def test_a_leader_killed_amid_moving_jobs_loses_none_and_places_none_twice(
    space: Space, kfext: Kfext, jobs: int, deadly: object
) -> None:
    standby = kfext.start_standby()
    moving = Moving(space, jobs)
    fault = KillAfter(deadly(space.name), nth=jobs // 3)  # type: ignore[operator]
    kfext.proxy.arm(fault)
    moving.submit()
    space.until(lambda: fault.fired, "the leader is killed")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    assert moving.started()
    assert len(space.pins()) < PODS * jobs
    with kfext.restarting():  # as a Deployment restarts it; a busy machine may lose a Lease again
        moving.wait_placed()
    moving.check()
    writes = standby.proxy.writes(lambda exchange: f"/namespaces/{space.name}/" in exchange.path)
    assert writes, "the standby had nothing to do"


def test_a_leader_that_shuts_down_cleanly_hands_over_at_once(space: Space, kfext: Kfext) -> None:
    standby = kfext.start_standby()
    leader = str((kfext.lease() or {})["holderIdentity"])
    moving = Moving(space, 24)
    moving.submit(moving.names[:16])
    space.until(lambda: len(space.pins()) > 4, "some are placed, others are starting")
    kfext.stop_controller()
    # The Lease is released, so the standby need not wait until it expires.
    lease = kfext.lease() or {}
    assert lease["holderIdentity"] != leader
    kfext.wait_leading(standby)
    moving.submit(moving.names[16:])
    moving.wait_placed()
    moving.check()


@pytest.mark.long
def test_a_frozen_leader_writes_nothing_when_it_resumes_and_ends(
    space: Space, kfext: Kfext
) -> None:
    standby = kfext.start_standby()
    moving = Moving(space, 24)
    moving.submit(moving.names[:16])
    space.until(lambda: len(moving.started()) > 4, "some are started")
    kfext.controller.freeze()
    # It will receive these at the moment when it resumes.
    moving.submit(moving.names[16:])
    kfext.wait_leading(standby)
    with kfext.restarting():
        moving.wait_placed()
    before = len(kfext.proxy.log)
    kfext.controller.thaw()
    assert kfext.controller.wait_dead() == 1
    late = [exchange for exchange in kfext.proxy.log[before:] if exchange.is_write]
    assert [(exchange.method, exchange.path, exchange.status) for exchange in late] == []
    kfext.wait_leading(standby)
    moving.check()


def test_a_leader_that_lost_its_lease_to_another_ends_and_does_not_reclaim_it(
    space: Space, kfext: Kfext
) -> None:
    kfext.steal_lease("thief")
    assert kfext.controller.wait_dead() == 1
    assert (kfext.lease() or {})["holderIdentity"] == "thief"
    assert "held by thief" in kfext.tail()
    space.submit(workers("one", 2, each=GPU))
    kfext.restart_killed_controller()
    homes = space.bound("one", 2)
    assert space.pins() == dict.fromkeys(homes, 1)


def test_one_of_two_controllers_that_start_together_leads_and_the_other_is_ready(
    space: Space, kfext: Kfext
) -> None:
    kfext.stop_controller()
    kfext.delete_lease()
    both = (kfext.controller, kfext.standby)
    for process in both:
        process.proxy.log.clear()
    for process in both:
        process.launch(environment=kfext.environment)
    for process in both:
        until(process.ready, what=f"{process.name} is ready", account=kfext.tail)
    until(lambda: any(map(kfext.leads, both)), what="one of them leads", account=kfext.tail)
    kfext.wait_hooks()
    moving = Moving(space, 8)
    moving.submit()
    moving.wait_placed()
    moving.check()
    assert sum(controller.metric("kfext_leading") for controller in both) == 1
    (idle,) = (controller for controller in both if not kfext.leads(controller))
    assert idle.pid is not None
    # The standby follows all the same: it knows the same as the leader.
    (busy,) = (controller for controller in both if kfext.leads(controller))
    until(
        lambda: idle.metric("kfext_ledger_claims") == busy.metric("kfext_ledger_claims"),
        what="the standby's ledger is the leader's",
    )
    assert idle.proxy.writes() == []


def test_a_lease_that_is_deleted_is_made_again_and_jobs_are_placed(
    space: Space, kfext: Kfext
) -> None:
    standby = kfext.start_standby()
    kfext.delete_lease()
    both = (kfext.controller, standby)
    until(lambda: any(map(kfext.leads, both)), what="one of them leads", account=kfext.tail)
    if kfext.leads(standby):  # it recreated the Lease first, so the leader has lost it
        kfext.controller.wait_dead()
    kfext.wait_hooks()
    space.submit(workers("one", 2, each=GPU))
    homes = space.bound("one", 2)
    assert space.pins() == dict.fromkeys(homes, 1)

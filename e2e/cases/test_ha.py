"""Two controllers and one Lease: the leader may end in any way, and no job is affected.

`Gangs` is many small gangs that are starting, with the invariants at the end.
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


class Gangs:
    """`count` gangs of PODS pods, which fill their nodes exactly, so that a misplaced pod shows."""

    def __init__(self, space: Space, count: int) -> None:
        self.space = space
        self.names = [f"gang-{number:03}" for number in range(count)]
        space.nodes(-(-count * PODS // _NODE_GPUS), cpu="64", memory="256Gi", gpu=str(_NODE_GPUS))

    def submit(self, chosen: Sequence[str] | None = None) -> None:
        """Submit all gangs, or only the gangs with these names, several at a time."""
        each = {"nvidia.com/gpu": "1", "cpu": "1"}
        jobs = [workers(name, PODS, each=each) for name in chosen or self.names]
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            list(pool.map(self.space.submit, jobs))

    def started(self) -> Counter[str]:
        """Return how often each job was unsuspended under a plan, by any controller."""
        done = self.space.kfext.writes(unsuspend_patch(self.space.name))
        return Counter(exchange.path.rsplit("/", 1)[-1] for exchange in done)

    def wait_placed(self) -> None:
        """Wait until every gang is bound as a whole and shown as Placed."""
        self.space.patiently(self._all_bound, seconds=_PATIENCE_SECONDS)
        self.space.patiently(lambda: self._phases() == {"Placed"}, seconds=_PATIENCE_SECONDS)

    def check(self) -> None:
        """Check that nothing was lost and nothing was done twice."""
        pods = self.space.pods(ending=True)
        assert self.started() == Counter(dict.fromkeys(self.names, 1))
        assert self.space.pins() == Counter(pod["metadata"]["name"] for pod in pods)
        load = Counter(pod["spec"]["nodeName"] for pod in pods)
        assert max(load.values()) <= _NODE_GPUS, load
        nodes_by_job: dict[str, set[str]] = {}
        for pod in pods:
            nodes_by_job.setdefault(_job_of(pod), set()).add(pod["spec"]["nodeName"])
        assert [job for job, nodes in nodes_by_job.items() if len(nodes) > 1] == []

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
    ("jobs", "match"),
    [(200, unsuspend_patch), (40, pod_patch)],
    ids=["200 jobs, between two plans", "40 jobs, between two pins"],
)
def test_jobs_that_start_while_the_leader_is_killed_are_each_placed_once(
    space: Space, kfext: Kfext, jobs: int, match: object
) -> None:
    standby = kfext.start_standby()
    gangs = Gangs(space, jobs)
    fault = KillAfter(match(space.name), nth=jobs // 3)  # type: ignore[operator]
    kfext.proxy.arm(fault)
    gangs.submit()
    space.until(lambda: fault.fired, "the leader is killed")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    assert gangs.started()
    assert len(space.pins()) < PODS * jobs
    with kfext.restarting():  # as kubelet does; on a busy machine the Lease may be lost again
        gangs.wait_placed()
    gangs.check()
    writes = standby.proxy.writes(lambda exchange: f"/namespaces/{space.name}/" in exchange.path)
    assert writes, "the standby must have taken over work"


def test_a_leader_that_shuts_down_cleanly_releases_its_lease(space: Space, kfext: Kfext) -> None:
    standby = kfext.start_standby()
    leader = str((kfext.lease() or {})["holderIdentity"])
    gangs = Gangs(space, 24)
    gangs.submit(gangs.names[:16])
    space.until(lambda: len(space.pins()) > 4, "some are placed, others are starting")
    kfext.stop_controller()
    # The Lease is released, so the standby need not wait until it expires.
    lease = kfext.lease() or {}
    assert lease["holderIdentity"] != leader
    kfext.wait_leading(standby)
    gangs.submit(gangs.names[16:])
    gangs.wait_placed()
    gangs.check()


@pytest.mark.long
def test_a_frozen_leader_writes_nothing_when_it_resumes_and_ends(
    space: Space, kfext: Kfext
) -> None:
    standby = kfext.start_standby()
    gangs = Gangs(space, 24)
    gangs.submit(gangs.names[:16])
    space.until(lambda: len(gangs.started()) > 4, "some are started")
    kfext.controller.freeze()
    # It will receive these jobs as soon as it resumes.
    gangs.submit(gangs.names[16:])
    kfext.wait_leading(standby)
    with kfext.restarting():
        gangs.wait_placed()
    before = len(kfext.proxy.log)
    kfext.controller.thaw()
    assert kfext.controller.wait_dead() == 1
    late = [exchange for exchange in kfext.proxy.log[before:] if exchange.is_write]
    assert [(exchange.method, exchange.path, exchange.status) for exchange in late] == []
    kfext.wait_leading(standby)
    gangs.check()


def test_a_leader_that_lost_its_lease_to_another_ends_and_does_not_reclaim_it(
    space: Space, kfext: Kfext
) -> None:
    kfext.steal_lease("thief")
    assert kfext.controller.wait_dead() == 1
    assert (kfext.lease() or {})["holderIdentity"] == "thief"
    assert "held by thief" in kfext.tail()
    space.submit(workers("one", 2, each=GPU))
    kfext.restart_killed_controller()
    nodes_by_pod = space.bound("one", 2)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_of_two_controllers_that_start_together_one_leads_and_the_other_is_ready(
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
    kfext.wait_webhooks()
    gangs = Gangs(space, 8)
    gangs.submit()
    gangs.wait_placed()
    gangs.check()
    assert sum(controller.metric("kfext_leading") for controller in both) == 1
    (idle,) = (controller for controller in both if not kfext.leads(controller))
    assert idle.pid is not None
    # The standby watches the cluster too, and has the same ledger.
    (busy,) = (controller for controller in both if kfext.leads(controller))
    until(
        lambda: idle.metric("kfext_ledger_claims") == busy.metric("kfext_ledger_claims"),
        what="the standby's ledger is the leader's",
    )
    assert idle.proxy.writes() == []


def test_a_deleted_lease_is_recreated_and_jobs_are_placed(space: Space, kfext: Kfext) -> None:
    standby = kfext.start_standby()
    kfext.delete_lease()
    both = (kfext.controller, standby)
    until(lambda: any(map(kfext.leads, both)), what="one of them leads", account=kfext.tail)
    if kfext.leads(standby):  # it recreated the Lease first, so the leader has lost it
        kfext.controller.wait_dead()
    kfext.wait_webhooks()
    space.submit(workers("one", 2, each=GPU))
    nodes_by_pod = space.bound("one", 2)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)

"""The signals of running jobs for the CPU policies."""

from dataclasses import replace

import pytest

from kfext.core.progress.reported import Progress, Reported
from kfext.core.queue.reservation import kept_claims
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.cpu_use import CpuUse
from kfext.model.job_state import JobState
from kfext.model.policy import PolicyChoice
from kfext.state.running.cpu.cpu_signals import CpuSignals, job_signal, signals_of
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.signals import NodeSignal, PodSignal
from tests.builders import job, node, pod
from tests.unit.state.two_workers import NODE, SIZE, TwoWorkers

REQUESTED = {"worker": PodCpu(20, 1000)}


def cores(used: float) -> CpuUse:
    return CpuUse(used, at=0.0, window=30.0)


OTHERS: dict[str, tuple[float | None, float | None, float | None, int]] = {
    "its request if the use of the node is unknown": (None, 0.1, None, 300),
    "at most the rest of the node's use": (0.25, 0.1, None, 150),
    "at most its request": (2.0, 0.1, None, 300),
    "nothing if the job uses all CPU that is in use": (0.1, 0.1, None, 0),
    "nothing if the job was measured after the node": (0.05, 0.1, None, 0),
    "its request if the use of the job is unknown": (2.0, None, None, 300),
    "its own use if known, whatever the use of the node": (0.1, 0.1, 0.75, 750),
}


@pytest.mark.parametrize(("node_use", "job_use", "use", "want"), OTHERS.values(), ids=OTHERS)
def test_the_use_that_counts_for_a_pod_without_signal(
    node_use: float | None, job_use: float | None, use: float | None, want: int
) -> None:
    """`node_use`, `job_use`, `use`: the measured cores of the node, the job and the pod."""
    bed = TwoWorkers()
    other = pod(job(name="o", uid="o").worker(1, cpu="300m").build(), "worker", 0, bound=NODE)
    bed.cluster.observe_pod(None, other)
    uses = {bed.pod(0).uid: job_use, bed.pod(1).uid: job_use and 0.0, other.uid: use}
    bed.uses.record(
        {uid: cores(used) for uid, used in uses.items() if used is not None},
        {NODE: cores(node_use)} if node_use is not None else {},
    )
    signals = signals_of(bed.cluster, [bed.signals()[0]], bed.uses, measured=[*bed.pods, other])
    assert signals.nodes == {NODE: NodeSignal(SIZE, want, free=SIZE - 340)}


def test_pods_of_followed_jobs_do_not_count_as_others() -> None:
    bed = TwoWorkers()
    bed.measure(0.0)
    assert bed.signals()[1].nodes[NODE].others == 0


def test_free_cpu_counts_boosted_requests_as_their_user_wrote_them() -> None:
    bed = TwoWorkers(limit=None)
    state = CpuState(
        requested={"worker": PodCpu(20, None)}, written={"worker-0": (PodCpu(370, None),)}
    )
    bed.record_state(state)
    before = bed.signals()[1].nodes[NODE].free
    requests = {**bed.pod(0).requests, "cpu": 370}
    bed.change(0, request=370, allocated=370, requests=requests)
    assert bed.signals()[1].nodes[NODE].free == before


def test_a_reservation_takes_no_free_cpu() -> None:
    bed = TwoWorkers()
    before = bed.signals()[1].nodes[NODE].free
    for key, claim in kept_claims("waits", {NODE: {"cpu": 500}}).items():
        bed.cluster.ledger.claim(key, claim)
    assert bed.signals()[1].nodes[NODE].free == before


def test_a_job_is_whole_while_all_of_its_pods_run() -> None:
    bed = TwoWorkers()
    assert bed.signals()[0].whole
    bed.change(0, phase="Pending")
    assert not bed.signals()[0].whole


def test_a_job_with_a_pod_on_an_unknown_node_is_left_out() -> None:
    bed = TwoWorkers()
    bed.cluster.observe_node(node(NODE, cpu=f"{SIZE}m"), None)
    result = bed.signals()[1]
    assert (result.jobs, result.nodes) == ((), {})


def test_a_node_without_signals_is_kept_if_its_only_job_lost_its_other_node() -> None:
    bed = TwoWorkers()
    bed.change(1, node_name="gone")
    cpu_signals = CpuSignals(bed.planner.companion._running, lambda *_: False)
    result = cpu_signals.with_nodes([bed.signals()[0]], 0.0)
    assert (result.jobs, list(result.nodes)) == ((), [NODE])


def test_the_signal_of_a_pod_has_its_size_and_its_use() -> None:
    bed = TwoWorkers(limit=400)
    bed.measure(0.0, 0)
    seen = {pod.uid: pod for pod in bed.signals()[0].pods}
    first = PodSignal(bed.pod(0).uid, "worker", NODE, request=20, limit=400, use=100)
    assert seen[bed.pod(0).uid] == first
    assert seen[bed.pod(1).uid].use is None


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        pytest.param(350, 1000, id="the recorded limit of a pod that kfext resized"),
        pytest.param(1000, 1000, id="its present limit if that is the user's"),
        pytest.param(777, 777, id="the limit that another client wrote since"),
    ],
)
def test_which_limit_is_the_users(limit: int, want: int) -> None:
    bed = TwoWorkers(limit=limit)
    written = dict.fromkeys(["worker-0", "worker-1"], (PodCpu(20, 350),))
    state = CpuState(requested=REQUESTED, written=written)
    bed.job.tracked.state = JobState(cpu=state)
    assert {pod.requested.limit for pod in bed.signals()[0].pods} == {want}


def test_ended_or_unbound_pods_and_pods_of_unknown_cpu_have_no_signal() -> None:
    bed = TwoWorkers()
    bed.change(0, phase="Succeeded")
    second = bed.pod(1)
    for unseen in (replace(second, node_name=""), replace(second, trainer=None)):
        seen = job_signal(bed.job, (bed.pod(0), unseen), None, bed.uses, in_flight=False)
        assert seen.pods == ()


def test_the_signal_of_a_job_has_its_progress_and_its_disabled_policies() -> None:
    bed = TwoWorkers()
    bed.job.chosen = {"resize": PolicyChoice()}
    bed.job.tracked.state = JobState(cpu=CpuState(disabled={"shift": "why"}))
    cpu_record(bed.job).history.rate = 2.0
    reported = Reported(Progress(step=4))
    seen = job_signal(bed.job, bed.pods, reported, bed.uses, in_flight=True)
    assert seen.uid == "uid-1"
    assert (seen.disabled, seen.rate, seen.in_flight) == (frozenset({"shift"}), 2.0, True)
    assert seen.policies == {"resize": PolicyChoice()}


def test_an_unfit_job_has_no_policies() -> None:
    bed = TwoWorkers()
    bed.job.chosen, cpu_record(bed.job).unfit = {"resize": PolicyChoice()}, "why"
    assert bed.signals()[0].policies == {}

"""An elastic job is scaled down for a waiting gang, and up again afterwards.

The nodes and the training are fake; e2e/harness/fake_kubelet.py writes the log.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from e2e.harness.fake_kubelet import (
    PACE,
    FakeKubelet,
    FakeProgram,
    FakeTraining,
    fake_kubelet,
    training,
)
from e2e.harness.faults import KillAfter, Match
from e2e.harness.jobs import conditions
from e2e.harness.journal import answers, redone, resumes
from e2e.harness.kfext_process import Kfext
from e2e.harness.nodes import taint
from e2e.harness.pods import limit_pods, succeed
from e2e.harness.scaling import (
    FULL,
    GANG,
    LEAST,
    TRAIN,
    WAITING,
    Scene,
    pin_patch,
    request_patch,
    resume_patch,
    size_patch,
    view_patch,
)
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed
from kfext import names

Play = Callable[..., tuple[Scene, FakeTraining]]
GIVEN_UP_SECONDS = 180.0
REDONE_SECONDS = 60.0
"""The training time that a job may repeat at each change: kfext writes the change within 10 s of a
checkpoint, and may be killed before the pods are changed."""
UTILIZATION = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


@pytest.fixture(scope="module")
def kubelet(testbed: Testbed) -> Iterator[FakeKubelet]:
    """The kubelet that serves the logs of the pods here."""
    with fake_kubelet(testbed) as kubelet:
        yield kubelet


@pytest.fixture
def play(space: Space, kubelet: FakeKubelet) -> Iterator[Play]:
    """A function that starts the elastic job and its training."""
    with ExitStack() as trainings:

        def begin(
            kind: str = "PyTorchJob",
            *,
            dynamic: bool = True,
            program: FakeProgram | None = None,
            **options: object,
        ) -> tuple[Scene, FakeTraining]:
            scene = Scene(space, kind, dynamic)
            for node in scene.fill(**options):  # type: ignore[arg-type]
                kubelet.take_over(space.kube, node)
            chosen = program or FakeProgram(restarts=kind == "PyTorchJob" or not dynamic)
            return scene, trainings.enter_context(training(space, TRAIN, kubelet, chosen))

        yield begin


def check_once(scene: Scene, trained: FakeTraining) -> None:
    """Check that the job was scaled down once and up once, and saved its work each time."""
    assert scene.sizes() == [LEAST, FULL]
    assert len(set(answers(trained.lines))) >= 2
    assert "Failed" not in conditions(scene.space.job(TRAIN))


def check_kept(scene: Scene, trained: FakeTraining) -> None:
    """Check that the job saved before each change, and resumed from that checkpoint."""
    starts, changes = resumes(trained.lines), len(scene.sizes())
    assert all(start.kept for start in starts)
    assert len({start.step for start in starts if start.step}) >= changes
    assert redone(trained.lines) <= changes * REDONE_SECONDS * PACE * FULL


def test_an_elastic_job_scales_down_for_a_gang_and_up_again_after_it(
    play: Play,
) -> None:
    scene, trained = play()
    before = scene.uids()
    scene.crowd()
    scene.wait_scaled_down()
    assert scene.wait_reason(names.REASON_SHRUNK)["status"] == "True"
    remaining = scene.uids()
    assert remaining == {
        f"{TRAIN}-worker-{index}": before[f"{TRAIN}-worker-{index}"] for index in (0, 1)
    }
    scene.end_gang()
    scene.wait_full_size()
    assert remaining.items() <= scene.uids().items()
    check_once(scene, trained)


def test_a_tfjob_with_dynamic_workers_scales_down_while_its_server_and_the_others_stay(
    play: Play,
) -> None:
    scene, _ = play("TFJob")
    before = scene.uids()
    scene.crowd()
    scene.wait_scaled_down()
    stay = {f"{TRAIN}-ps-0", f"{TRAIN}-worker-0"}
    assert scene.uids() == {name: uid for name, uid in before.items() if name in stay}
    assert scene.sizes() == [LEAST - 1]
    assert "Failed" not in conditions(scene.space.job(TRAIN, "TFJob"))


Writes = Callable[[str], Match]
SHRINKS: dict[str, tuple[Writes, int]] = {
    "before it asks for a checkpoint": (request_patch, 0),
    "after it has asked for a checkpoint": (request_patch, 1),
    "before the patch that scales down": (size_patch, 0),
    "after that patch": (size_patch, 1),
    "after the first report of it": (view_patch, 1),
}
GROWS: dict[str, tuple[Writes, int]] = {
    "before it asks for a checkpoint": (request_patch, 0),
    "after it has asked for a checkpoint": (request_patch, 1),
    "before the patch that scales up": (size_patch, 0),
    "after that patch": (size_patch, 1),
    "before the first new worker is pinned": (pin_patch, 0),
    "after the first new worker is pinned": (pin_patch, 1),
    "after all are pinned": (pin_patch, FULL - LEAST),
}
STOPS: dict[str, tuple[Writes, int]] = {
    "before the patch that stops it": (size_patch, 0),
    "after that patch": (size_patch, 1),
    "before the patch that starts it smaller": (resume_patch, 0),
    "after that patch too": (resume_patch, 1),
}


def kill_at(kfext: Kfext, death: tuple[Writes, int], scene: Scene, go: Callable[[], None]) -> None:
    """Call `go`, kill the controller at one of its next writes, and start a successor."""
    writes, nth = death
    fault = KillAfter(writes(scene.space.name), nth=nth)
    kfext.proxy.arm(fault)
    go()
    scene.patiently(lambda: fault.fired)
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    kfext.restart_killed_controller()


@pytest.mark.long
@pytest.mark.parametrize("death", SHRINKS.values(), ids=SHRINKS)
def test_a_job_scales_down_once_though_the_controller_is_killed(
    play: Play, kfext: Kfext, death: tuple[Writes, int]
) -> None:
    scene, trained = play()
    kill_at(kfext, death, scene, scene.crowd)
    scene.wait_scaled_down()
    assert scene.sizes() == [LEAST]
    assert scene.wait_reason(names.REASON_SHRUNK)["status"] == "True"
    scene.end_gang()
    scene.wait_full_size()
    assert scene.sizes() == [LEAST, FULL]
    scene.wait_reason(names.REASON_AS_ASKED)
    assert "Failed" not in conditions(scene.space.job(TRAIN))
    check_kept(scene, trained)


@pytest.mark.long
@pytest.mark.parametrize("death", GROWS.values(), ids=GROWS)
def test_a_job_scales_up_again_once_though_the_controller_is_killed(
    play: Play, kfext: Kfext, death: tuple[Writes, int]
) -> None:
    scene, trained = play()
    scene.crowd()
    scene.wait_scaled_down()
    kill_at(kfext, death, scene, scene.end_gang)
    scene.wait_full_size()
    check_once(scene, trained)
    scene.wait_reason(names.REASON_AS_ASKED)
    check_kept(scene, trained)


@pytest.mark.long
@pytest.mark.parametrize("death", STOPS.values(), ids=STOPS)
def test_a_tfjob_that_is_stopped_to_change_its_size_continues_though_the_controller_is_killed(
    play: Play, kfext: Kfext, death: tuple[Writes, int]
) -> None:
    scene, trained = play("TFJob", dynamic=False)
    first = scene.uids()
    kill_at(kfext, death, scene, scene.crowd)
    scene.wait_scaled_down()
    assert scene.uids().keys() == {f"{TRAIN}-ps-0", f"{TRAIN}-worker-0"}
    assert not first.items() & scene.uids().items()
    assert scene.sizes() == [LEAST - 1]
    assert scene.wait_reason(names.REASON_SHRUNK)["status"] == "True"
    scene.end_gang()
    scene.wait_full_size()
    # It may scale up in two steps.
    assert scene.sizes() == sorted({LEAST - 1, *scene.sizes(), FULL - 1})
    assert "Failed" not in conditions(scene.space.job(TRAIN, "TFJob"))
    # One answer for each change; a successor counts from 1 again, because the pods are new.
    assert len(answers(trained.lines)) >= 2
    scene.patiently(lambda: resumes(trained.lines)[-1].world == FULL - 1)
    scene.wait_reason(names.REASON_AS_ASKED)
    check_kept(scene, trained)


@pytest.fixture
def waiting(play: Play) -> tuple[Scene, FakeTraining]:
    """The elastic job, with an unanswered checkpoint request, and its training."""
    scene, trained = play()
    scene.patiently(lambda: trained.lines)
    trained.program.silent = True
    scene.crowd()
    scene.wait_reason(names.REASON_AWAITS_CHECKPOINT)
    return scene, trained


@pytest.mark.long
def test_a_pod_that_is_lost_during_a_change_is_replaced_and_the_gang_is_bound(
    waiting: tuple[Scene, FakeTraining],
) -> None:
    scene, trained = waiting
    lost = f"{TRAIN}-worker-{FULL - 1}"
    uid = scene.uids()[lost]
    scene.space.kube.delete(scene.space.path("pods", lost), grace=0)
    scene.space.until(lambda: scene.uids().get(lost) != uid, "the pod is gone")
    trained.program.silent = False
    scene.wait_scaled_down()
    assert scene.wait_reason(names.REASON_SHRUNK)["status"] == "True"
    scene.end_gang()
    scene.wait_full_size()
    scene.wait_reason(names.REASON_AS_ASKED)
    assert "Failed" not in conditions(scene.space.job(TRAIN))


@pytest.mark.long
def test_a_node_that_is_lost_during_a_change_fails_neither_job(
    play: Play, kubelet: FakeKubelet
) -> None:
    scene, trained = play(nodes=2)
    space = scene.space
    first = scene.uids()
    scene.patiently(lambda: trained.lines)
    trained.program.silent = True
    scene.crowd()
    scene.wait_reason(names.REASON_AWAITS_CHECKPOINT)
    taint(space.kfext, space.nodes_by_pod(TRAIN)[f"{TRAIN}-worker-{FULL - 1}"], "NoExecute")
    space.until(lambda: not first.items() <= scene.uids().items(), "its pods are gone")
    trained.program.silent = False
    for node in space.nodes(1, cpu=str(FULL // 2), memory="64Gi"):
        kubelet.take_over(space.kube, node)
    scene.wait_scaled_down()
    assert scene.wait_reason(names.REASON_SHRUNK)["status"] == "True"
    scene.end_gang()
    scene.wait_full_size()
    scene.wait_reason(names.REASON_AS_ASKED)
    assert "Failed" not in conditions(space.job(TRAIN))


@pytest.mark.long
def test_a_job_that_does_not_answer_keeps_its_workers_and_shows_the_reason(
    waiting: tuple[Scene, FakeTraining],
) -> None:
    scene, _ = waiting
    before = scene.uids()
    shown = scene.space.patiently(
        lambda: "no checkpoint within 120 s" in (scene.scaled_condition() or {}).get("message", ""),
        seconds=GIVEN_UP_SECONDS,
    )
    assert shown
    assert scene.uids() == before
    assert (scene.sizes(), scene.worker_count()) == ([], FULL)
    assert scene.space.view(GANG)["phase"] == "Queued"


@pytest.mark.long
def test_a_number_of_workers_that_the_user_sets_during_a_change_is_the_requested_size(
    waiting: tuple[Scene, FakeTraining],
) -> None:
    scene, trained = waiting
    scene.edit({"pytorchReplicaSpecs": {"Worker": {"replicas": FULL - 1}}})
    assert "now its requested size" in scene.wait_reason(names.REASON_RESTS)["message"]
    trained.program.silent = False
    scene.patiently(lambda: len(scene.space.nodes_by_pod(TRAIN)) == FULL - 1)
    assert (scene.sizes(), scene.worker_count()) == ([], FULL - 1)
    assert scene.space.view(GANG)["phase"] == "Queued"
    scene.annotate({names.ELASTIC: "off"})
    scene.patiently(lambda: scene.scaled_condition() is None)
    scene.annotate({names.ELASTIC: f"{LEAST}-{FULL}"})
    scene.wait_scaled_down()
    assert scene.sizes() == [LEAST]


@pytest.mark.long
def test_a_job_that_ends_during_a_change_frees_its_capacity_for_the_gang(
    waiting: tuple[Scene, FakeTraining],
) -> None:
    scene, _ = waiting
    for name in scene.space.nodes_by_pod(TRAIN):
        succeed(scene.space, name)
    scene.space.phase(TRAIN, "Finished")
    scene.space.bound(GANG, WAITING)
    assert scene.sizes() == []
    assert "Failed" not in conditions(scene.space.job(TRAIN))


@pytest.mark.long
def test_a_job_with_a_horizontal_pod_autoscaler_is_not_scaled(
    waiting: tuple[Scene, FakeTraining],
) -> None:
    scene, trained = waiting
    scene.edit({"elasticPolicy": {"metrics": [UTILIZATION]}})
    assert "HorizontalPodAutoscaler" in scene.wait_reason(names.REASON_STANDS_DOWN)["message"]
    trained.program.silent = False
    assert scene.sizes() == []
    scene.edit({"elasticPolicy": {"metrics": None}})
    autoscalers = "/apis/autoscaling/v2/namespaces"
    scene.space.kube.delete(f"{autoscalers}/{scene.space.name}/horizontalpodautoscalers/{TRAIN}")
    scene.wait_scaled_down()


@pytest.mark.long
def test_a_quota_that_refuses_growth_leaves_the_job_as_it_is(play: Play) -> None:
    scene, _ = play()
    scene.crowd()
    scene.wait_scaled_down()
    quota = limit_pods(scene.space, LEAST)
    scene.end_gang()
    scene.space.phase(GANG, "Finished")
    scene.patiently(lambda: "quota" in (scene.scaled_condition() or {}).get("message", ""))
    scene.wait_reason(names.REASON_SHRUNK)
    assert len(scene.space.nodes_by_pod(TRAIN)) == LEAST
    scene.space.kube.delete(scene.space.path("pytorchjobs", GANG))
    scene.space.kube.delete(quota)
    scene.wait_full_size()


@pytest.mark.long
def test_a_job_that_never_saved_keeps_its_workers_and_shows_the_reason(play: Play) -> None:
    scene, trained = play(program=FakeProgram(saves=False, silent=True))
    scene.crowd()
    assert scene.wait_reason(names.REASON_NO_CHECKPOINT)["status"] == "False"
    assert scene.space.phase(GANG, "Queued")["reason"] == names.REASON_NO_ROOM
    assert scene.sizes() == []
    # The job is ineligible until its first save.
    trained.program.saves, trained.program.silent = True, False
    scene.wait_scaled_down()


@pytest.mark.long
def test_a_policy_that_observes_shows_its_proposal_and_changes_nothing(play: Play) -> None:
    # kfext would not make a PyTorchJob elastic under this policy.
    scene, _ = play("TFJob", mode="observe")
    before = scene.uids()
    scene.crowd()
    assert scene.wait_reason(names.REASON_WOULD_SCALE)["status"] == "False"
    assert scene.uids() == before
    assert scene.sizes() == []
    assert not scene.space.kfext.writes(request_patch(scene.space.name))


@pytest.mark.long
def test_a_job_that_opts_out_returns_to_the_size_that_its_user_wrote(play: Play) -> None:
    scene, _ = play(idle=3600)
    scene.crowd()
    scene.wait_scaled_down()
    scene.end_gang()
    scene.annotate({names.ELASTIC: "off"})
    scene.wait_full_size()
    assert scene.worker_count() == FULL
    scene.patiently(lambda: scene.scaled_condition() is None)


@pytest.mark.long
def test_a_required_job_that_is_scaled_beyond_its_node_keeps_running(play: Play) -> None:
    scene, _ = play()
    scene.annotate({names.ELASTIC: "off", names.COLOCATION: "required"})
    before = scene.uids()
    scene.edit({"pytorchReplicaSpecs": {"Worker": {"replicas": FULL + WAITING}}})
    waits = f"it trains, and {WAITING} pods wait for a place"
    scene.patiently(lambda: waits in scene.space.view(TRAIN).get("message", ""))
    assert scene.space.phase(TRAIN, "Placed")["reason"] == names.REASON_NO_ROOM
    assert before.items() <= scene.uids().items()
    assert len(scene.uids()) == FULL + WAITING
    assert "strikes" not in scene.space.job(TRAIN)["metadata"]["annotations"].get(names.STATE, "")

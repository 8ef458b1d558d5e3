"""Steps of jobs and of cards, as requests to the API server."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.controller.step_executor import StepExecutor
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    ForgetPlan,
    Pin,
    Release,
    RequestCheckpoint,
    Resize,
    SaveState,
    Step,
    Suspend,
    Ungate,
    Unsuspend,
    Wait,
)
from kfext.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    NotServed,
    Unavailable,
)
from kfext.model.constraints import Toleration
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.gpu import reservation_of
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.rendered import parse_rendered
from kfext.model.verdict import Verdict
from kfext.names import REASON_BIND_TIMEOUT, REASON_CREATE_TIMEOUT, REASON_PLANNED, STATE
from kfext.state.mirror.cards import Reserve, Unreserve
from kfext.state.mirror.cluster import Cluster
from tests.builders import affinity_to, job, node, pod, pods, raw_pod, state_in
from tests.gpu_builders import reservation
from tests.trainjobs import JOB_UID, jobset, train_job

JOB = job().worker(2, cpu="1").held().build()
PLAN = Plan("uid-1", 1, {ReplicaKey("worker", n): "a" for n in (0, 1)})


class FakeClient:
    """Records requests. `fail`: called with each path, may raise. Pods are answered as patched.

    `events`: the events of the cluster; a list finds an event if its selector contains `selector`.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.preconditions: list[tuple[str, str]] = []
        self.patches: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.fail: Callable[[str], None] = lambda path: None

    async def json_patch(self, path: str, operations: Any) -> dict[str, Any]:
        self.requests.append(("patch", path))
        self.patches.append(operations)
        self.fail(path)
        return job().worker(2, cpu="1").resumed().version(9).raw

    async def json_patch_as(
        self, path: str, operations: Any, *, decode: Callable[[bytes], Pod]
    ) -> Pod:
        self.requests.append(("patch", path))
        self.fail(path)
        raw = raw_pod(JOB, "worker", int(path[-1]), pinned="a", version=9)
        # kfext writes all annotations in one operation if the pod has none.
        for operation in operations:
            if operation["path"] == "/metadata/annotations":
                raw["metadata"]["annotations"] = operation["value"]
        return decode(json.dumps(raw).encode())

    async def strategic_patch_as(
        self, path: str, patch: Any, *, decode: Callable[[bytes], Pod]
    ) -> Pod:
        self.requests.append(("resize", path))
        self.patches.append(patch)
        self.fail(path)
        (container,) = patch["spec"]["containers"]
        raw = raw_pod(JOB, "worker", int(path.split("/")[-2][-1]), bound="a", version=9)
        raw["spec"]["containers"] = [container]
        return decode(json.dumps(raw).encode())

    async def delete(self, path: str, *, uid: str, resource_version: str) -> None:
        self.requests.append(("delete", path))
        self.preconditions.append((uid, resource_version))
        self.fail(path)

    async def first(self, path: str, *, count: int, fieldSelector: str) -> list[Any]:  # noqa: N803
        results = [event for event in self.events if event.get("selector", "") in fieldSelector]
        return results[:count]


class FakeEvents:
    """Records events."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, bool]] = []

    def record(self, about: object, verdict: Verdict, *, action: str, warning: bool) -> None:
        self.recorded.append((verdict.reason, verdict.message, warning))


class ExecutorBench:
    """A StepExecutor, and the mirror of a job with two gated pods."""

    def __init__(self) -> None:
        self.client, self.events = FakeClient(), FakeEvents()
        self.cluster = Cluster()
        self.cluster.observe_node(None, node("a", cpu="4"))
        self.cluster.observe_job(job().worker(2, cpu="1").held().raw)
        for gated in pods(JOB, gated=True):
            self.cluster.observe_pod(None, gated)
        self.writer = StepExecutor(
            client=self.client,  # type: ignore[arg-type]
            cluster=self.cluster,
            events=self.events,  # type: ignore[arg-type]
        )

    async def write(self, step: Step) -> bool:
        return await self.writer.write(self.cluster.jobs["uid-1"], step)

    @property
    def verbs(self) -> list[str]:
        return [
            f"{verb} {'pod' if '/pods/' in path else 'job'}" for verb, path in self.client.requests
        ]


def failing(error: type[ApiError], *, at: str) -> Callable[[str], None]:
    def fail(path: str) -> None:
        if path.endswith(at):
            raise error(status=0, reason=error.__name__, message="refused")

    return fail


@pytest.fixture
def bench() -> ExecutorBench:
    return ExecutorBench()


GATED = tuple(pods(JOB, gated=True))
RUNNING = tuple(pods(JOB, bound="a", phase="Running"))
SIZES = tuple((pod, CpuSize(150)) for pod in RUNNING)
RESIZED = JobState(
    cpu=CpuState(written={"worker-0": (PodCpu(100, 150),), "worker-1": (PodCpu(100, 150),)})
)
RESIZE = Resize(SIZES, RESIZED, Verdict("R", "m"))
REQUEST = RequestCheckpoint(RUNNING, 3, Verdict("R", "m"))
STUCK = tuple(pods(JOB, pinned="a", version=7))
STEPS: dict[str, tuple[Step, list[str]]] = {
    "start": (Unsuspend(PLAN, Verdict(REASON_PLANNED, "m")), ["patch job"]),
    "bind": (Pin(tuple((pod, "a") for pod in GATED)), ["patch pod", "patch pod"]),
    "ungate": (Ungate(GATED), ["patch pod", "patch pod"]),
    "stop": (Suspend(JobState(reason="R", message="m")), ["patch job"]),
    "forget": (ForgetPlan(JobState(generation=1)), ["patch job"]),
    "save the state": (SaveState(JobState()), ["patch job"]),
    "evict": (
        DeleteUnbound(STUCK, JobState(reason="R")),
        ["patch job", "delete pod", "delete pod"],
    ),
    "release": (
        Release(STUCK, Verdict(REASON_BIND_TIMEOUT, "m")),
        ["patch job", "delete pod", "delete pod"],
    ),
    "resize": (RESIZE, ["patch job", "resize pod", "resize pod"]),
    "forget a resize": (Resize((), RESIZED, Verdict("R", "m")), ["patch job"]),
    "ask for a checkpoint": (REQUEST, ["patch pod", "patch pod"]),
    "wait": (Wait(None), []),
}


@pytest.mark.parametrize(("step", "want"), STEPS.values(), ids=STEPS.keys())
async def test_the_job_is_written_first(bench: ExecutorBench, step: Step, want: list[str]) -> None:
    assert await bench.write(step)
    assert bench.verbs == want


async def test_an_unknown_step_raises_an_error_and_writes_nothing(bench: ExecutorBench) -> None:
    with pytest.raises(AssertionError):
        await bench.write(object())  # type: ignore[arg-type]
    assert bench.verbs == []


async def test_the_answer_to_a_write_is_in_the_mirror_at_once(bench: ExecutorBench) -> None:
    await bench.write(Unsuspend(PLAN, Verdict(REASON_PLANNED, "m")))
    assert not bench.cluster.jobs["uid-1"].job.suspend
    await bench.write(Pin(tuple((pod, "a") for pod in GATED)))
    assert [pod.home for pod in bench.cluster.pods("uid-1")] == ["a", "a"]
    assert bench.events.recorded == [(REASON_PLANNED, "m", False)]


async def test_a_new_cpu_size_is_mirrored_and_causes_one_event(bench: ExecutorBench) -> None:
    await bench.write(RESIZE)
    results = [pod.trainer for pod in bench.cluster.pods("uid-1")]
    assert [trainer.limit for trainer in results if trainer] == [150, 150]
    assert bench.events.recorded == [("R", "m", False)]


async def test_a_resize_is_recorded_before_the_first_pod_is_resized(bench: ExecutorBench) -> None:
    raw = bench.cluster.jobs["uid-1"].raw
    bench.client.fail = failing(NotLeading, at="resize")
    with pytest.raises(NotLeading):
        await bench.write(RESIZE)
    annotations = jsonpatch.apply_patch(raw, bench.client.patches[0])["metadata"]["annotations"]
    assert state_in(annotations[STATE]).cpu == RESIZED.cpu
    assert not bench.events.recorded


async def test_a_placement_does_not_wait_for_resizes_that_hang(
    bench: ExecutorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = asyncio.Event()
    resize = bench.client.strategic_patch_as

    async def hang(path: str, patch: Any, *, decode: Callable[[bytes], Pod]) -> Pod:
        await answered.wait()
        return await resize(path, patch, decode=decode)

    monkeypatch.setattr(bench.client, "strategic_patch_as", hang)
    resizes = [asyncio.create_task(bench.write(RESIZE)) for _ in range(100)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await bench.write(Pin(tuple((pod, "a") for pod in GATED)))
    assert not any(task.done() for task in resizes)
    answered.set()
    assert all(await asyncio.gather(*resizes))


async def test_no_pod_is_resized_if_the_resize_cannot_be_recorded(bench: ExecutorBench) -> None:
    bench.client.fail = failing(Invalid, at="train")
    with pytest.raises(Invalid):
        await bench.write(RESIZE)
    assert bench.verbs == ["patch job"]


@pytest.mark.parametrize("error", [NotFound, Conflict])
async def test_a_pod_that_changed_meanwhile_keeps_its_size_and_the_others_get_theirs(
    bench: ExecutorBench, error: type[ApiError]
) -> None:
    bench.client.fail = failing(error, at="worker-0/resize")
    assert not await bench.write(RESIZE)
    results = [pod.trainer for pod in bench.cluster.pods("uid-1")]
    assert [trainer and trainer.limit for trainer in results] == [None, 150]


@pytest.mark.parametrize("error", [Forbidden, NotServed])
async def test_the_error_of_a_refused_resize_is_raised_after_the_other_writes(
    bench: ExecutorBench, error: type[ApiError]
) -> None:
    bench.client.fail = failing(error, at="worker-0/resize")
    with pytest.raises(error):
        await bench.write(RESIZE)
    assert bench.verbs == ["patch job", "resize pod", "resize pod"]


async def test_a_checkpoint_request_is_mirrored_and_causes_one_event(bench: ExecutorBench) -> None:
    await bench.write(REQUEST)
    assert [pod.checkpoint_request for pod in bench.cluster.pods("uid-1")] == [3, 3]
    assert bench.events.recorded == [("R", "m", False)]


@pytest.mark.parametrize("error", [NotFound, Conflict])
async def test_a_deleted_pod_gets_no_checkpoint_request_and_the_others_do(
    bench: ExecutorBench, error: type[ApiError]
) -> None:
    bench.client.fail = failing(error, at="worker-0")
    assert not await bench.write(REQUEST)
    assert [pod.checkpoint_request for pod in bench.cluster.pods("uid-1")] == [0, 3]


async def test_a_refused_checkpoint_request_causes_no_event(bench: ExecutorBench) -> None:
    bench.client.fail = failing(Forbidden, at="worker-0")
    with pytest.raises(Forbidden):
        await bench.write(REQUEST)
    assert not bench.events.recorded


async def test_a_deletion_requires_the_same_uid_and_resource_version(bench: ExecutorBench) -> None:
    await bench.write(DeleteUnbound(STUCK, JobState()))
    assert bench.client.preconditions == [(pod.uid, "7") for pod in STUCK]


@pytest.mark.parametrize("error", [NotFound, Conflict])
async def test_a_pod_that_has_changed_is_skipped_and_the_others_are_pinned(
    bench: ExecutorBench, error: type[ApiError]
) -> None:
    bench.client.fail = failing(error, at="worker-0")
    assert not await bench.write(Pin(tuple((pod, "a") for pod in GATED)))
    assert len(bench.client.requests) == 2
    assert sorted(pod.home for pod in bench.cluster.pods("uid-1")) == ["", "a"]


@pytest.mark.parametrize("error", [Forbidden, Invalid])
async def test_any_other_error_of_a_pin_is_raised_after_the_other_writes(
    bench: ExecutorBench, error: type[ApiError]
) -> None:
    bench.client.fail = failing(error, at="worker-0")
    with pytest.raises(error):
        await bench.write(Pin(tuple((pod, "a") for pod in GATED)))
    assert len(bench.client.requests) == 2


async def test_nothing_is_deleted_if_the_job_could_not_be_patched(bench: ExecutorBench) -> None:
    bench.client.fail = failing(Invalid, at="train")
    for step in (DeleteUnbound(STUCK, JobState()), Release(STUCK, Verdict("R", "m"))):
        with pytest.raises(Invalid):
            await bench.write(step)
    assert bench.verbs == ["patch job"] * 2
    assert not bench.events.recorded


async def test_the_operators_error_event_is_quoted(bench: ExecutorBench) -> None:
    bench.client.events = [{"note": "pods is forbidden: exceeded quota"}]
    await bench.write(Suspend(JobState(reason=REASON_CREATE_TIMEOUT, message="1 of 2 pods exist")))
    ((_, message, warning),) = bench.events.recorded
    assert message == "1 of 2 pods exist; the operator reports: pods is forbidden: exceeded quota"
    assert warning


async def test_the_error_event_about_the_job_of_a_train_job_is_quoted(bench: ExecutorBench) -> None:
    bench.cluster.observe_job(train_job(held=True))
    bench.cluster.observe_rendered(None, parse_rendered(jobset()))
    selector = "regarding.name=train-node-0,reason=FailedCreate"
    denied = {"note": "denied the request", "selector": selector}
    other = {"note": "about another job", "selector": "regarding.name=other"}
    bench.client.events = [other, denied]
    tracked = bench.cluster.jobs[JOB_UID]
    stopped = Suspend(JobState(reason=REASON_CREATE_TIMEOUT, message="0 of 2 pods exist"))
    await bench.writer.write(tracked, stopped)
    ((_, message, _),) = bench.events.recorded
    assert message == "0 of 2 pods exist; the operator reports: denied the request"


TRIED, EARLIER = "0 of 2 pods exist", "an admission policy"
CAUSES = {
    "an event on the host network": (TRIED, "denied", f"{TRIED}; the operator reports: denied"),
    "no event on the host network": (TRIED, "", ""),
    "an event on the pod network": (EARLIER, "denied", EARLIER),
    "no event on the pod network": (EARLIER, "", EARLIER),
}
"""Why there was no host network before; the event; why there is no host network from now on."""


@pytest.mark.parametrize(("before", "note", "after"), CAUSES.values(), ids=CAUSES)
async def test_the_host_network_is_given_up_only_for_an_error_on_it(
    bench: ExecutorBench, before: str, note: str, after: str
) -> None:
    bench.client.events = [{"note": note}] if note else []
    state = JobState(reason=REASON_CREATE_TIMEOUT, message=TRIED, no_host_network=before)
    raw = bench.cluster.jobs["uid-1"].raw
    await bench.write(Suspend(state))
    (patch,) = bench.client.patches
    stopped = jsonpatch.apply_patch(raw, patch)["metadata"]["annotations"]
    assert state_in(stopped[STATE]).no_host_network == after


async def test_an_answer_for_a_deleted_pod_claims_nothing(bench: ExecutorBench) -> None:
    worker = pod(JOB, "worker", 0, gated=True)

    def gone(path: str) -> None:
        bench.cluster.observe_pod(worker, None)

    bench.client.fail = gone
    await bench.write(Pin(((worker, "a"),)))
    assert len(bench.cluster.ledger) == 0


PODS = "/api/v1/namespaces/kfext-gpu/pods"
TEMPLATE = "/api/v1/namespaces/kfext-gpu/podtemplates/kfext-reservation"
NAME = reservation_of("n", 2)
OWN_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}
SPEC = {
    "priorityClassName": "kfext-reservation",
    "containers": [{"name": "pause", "resources": {"limits": {names.NATIVE_GPU: "1"}}}],
    "tolerations": [OWN_TOLERATION],
}
RESERVATION = reservation("n", 2)


class CardClient:
    """Returns the PodTemplate, and records each write; `fails_at`: the verb that raises `error`."""

    def __init__(self, *, fails_at: str = "", error: type[ApiError] = Conflict) -> None:
        self.created: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, str]] = []
        self._fails_at, self._error = fails_at, error

    def _fail(self, verb: str) -> None:
        if verb == self._fails_at:
            raise self._error(status=0, reason=self._error.__name__, message="refused")

    async def get(self, path: str) -> dict[str, Any]:
        assert path == TEMPLATE
        self._fail("get")
        metadata = {"labels": {"app": "kfext"}, "annotations": {"a": "b"}}
        return {"template": {"metadata": metadata, "spec": SPEC}}

    async def create(self, path: str, body: dict[str, Any]) -> None:
        assert path == PODS
        self._fail("create")
        self.created.append(body)

    async def delete(self, path: str, *, uid: str) -> None:
        self._fail("delete")
        self.deleted.append((path, uid))


async def write_card(client: CardClient, step: Reserve | Unreserve) -> None:
    fake: Any = client
    events: Any = None
    await StepExecutor(client=fake, cluster=Cluster(), events=events).write_card(step)


async def test_a_reservation_pod_has_its_node_and_the_tolerations_of_the_sharers() -> None:
    client = CardClient()
    tolerations = (
        Toleration(key="gpu", operator="Equal", value="a", effect="NoSchedule"),
        Toleration(operator="Exists"),
    )
    await write_card(client, Reserve(("n", 2), tolerations))
    (body,) = client.created
    assert body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "labels": {"app": "kfext", names.GPU_SLOT: "2"},
            "annotations": {"a": "b"},
        },
        "spec": {
            **SPEC,
            "affinity": affinity_to("n"),
            "tolerations": [
                OWN_TOLERATION,
                {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
                {"operator": "Exists"},
            ],
        },
    }


async def test_the_created_pod_is_parsed_as_a_reservation() -> None:
    client = CardClient()
    await write_card(client, Reserve(("n", 2), ()))
    (body,) = client.created
    body["metadata"]["namespace"] = names.GPU_NAMESPACE
    parsed = parse_pod(body)
    assert (parsed.home, parsed.reserves, parsed.requests[names.NATIVE_GPU]) == ("n", 2, 1)


async def test_a_gpu_is_released_by_the_uid_of_its_pod() -> None:
    client = CardClient()
    await write_card(client, Unreserve(("n", 2), RESERVATION))
    assert client.deleted == [(f"{PODS}/{NAME}", RESERVATION.uid)]


RESERVE, UNRESERVE = Reserve(("n", 2), ()), Unreserve(("n", 2), RESERVATION)
DONE: dict[str, tuple[Reserve | Unreserve, CardClient]] = {
    "the pod exists": (RESERVE, CardClient(fails_at="create")),
    "the pod is gone": (UNRESERVE, CardClient(fails_at="delete", error=NotFound)),
    "another pod has its name": (UNRESERVE, CardClient(fails_at="delete")),
}


@pytest.mark.parametrize(("step", "client"), DONE.values(), ids=DONE)
async def test_a_repeated_write_is_no_error(step: Reserve | Unreserve, client: CardClient) -> None:
    await write_card(client, step)
    assert (client.created, client.deleted) == ([], [])


FAILS: dict[str, tuple[Reserve | Unreserve, str, type[ApiError]]] = {
    "the template is missing": (RESERVE, "get", NotFound),
    "the namespace is missing": (RESERVE, "create", NotFound),
    "it may not create pods": (RESERVE, "create", Forbidden),
    "it may not delete pods": (UNRESERVE, "delete", Forbidden),
    "the API server is away": (UNRESERVE, "delete", Unavailable),
}


@pytest.mark.parametrize(("step", "verb", "error"), FAILS.values(), ids=FAILS)
async def test_other_errors_are_raised_so_that_the_step_is_retried(
    step: Reserve | Unreserve, verb: str, error: type[ApiError]
) -> None:
    with pytest.raises(error):
        await write_card(CardClient(fails_at=verb, error=error), step)

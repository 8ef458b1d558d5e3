"""How a pipeline step runs its training job, and what it prints while the job runs."""

import builtins
import dis
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from kubernetes.config import kube_config

from kfext.pipelines.launcher import (
    FUNCTIONS,
    as_written,
    lines_of,
    patch_launcher,
    pytorchjob_of,
    results_of,
    run_job,
    trainjob_of,
    with_name,
)
from tests.unit.pipelines.fake_api import (
    CREATED,
    FakeApi,
    Raw,
    condition,
    placed,
    pod_of_step,
    queued,
    serve,
)

CONTAINER = {"image": "image:1", "command": ["train"]}
NO_SETTINGS = SimpleNamespace(
    affinity=None,
    tolerations=None,
    node_selector=None,
    env=None,
    volumes=None,
    volume_mounts=None,
    resources=None,
)
SETTINGS = SimpleNamespace(
    affinity={"nodeAffinity": {}},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
    node_selector={"disk": "ssd"},
    env=[{"name": "A", "value": "b"}],
    volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    volume_mounts=[{"name": "data", "mountPath": "/data"}],
    resources={"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
)
RUNNING = [condition("Created"), condition("Running")]
ENDED = [condition("Suspended", "False"), condition("Running", "False"), condition("Succeeded")]
FAILED = [condition("Failed", reason="PyTorchJobFailed", message="it has failed")]


def job_of(task: Any = NO_SETTINGS, replicas: int = 2, processes: int = 0) -> Raw:
    return pytorchjob_of(
        CONTAINER, replicas=replicas, processes=processes, backoff_limit=3, task=task
    )


def globals_of(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function and its inner functions use."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from globals_of(constant)


def test_the_functions_are_complete_in_a_step() -> None:
    """Kubeflow Pipelines copies their source after `from typing import *`."""
    step: dict[str, Any] = {}
    source = "\n\n".join(inspect.getsource(function) for function in FUNCTIONS)
    exec("from typing import *\n" + source, step)
    defined = {*step, *dir(builtins)}
    used = {name for function in FUNCTIONS for name in globals_of(function.__code__)}
    assert used <= defined


def test_python3_is_restored_in_a_command_that_kfp_local_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/tmp/v/bin/python")
    monkeypatch.setattr("sys.prefix", "/tmp/v")
    assert as_written(["/tmp/v/bin/python", "a.py"]) == ["python3", "a.py"]
    monkeypatch.setattr("sys.prefix", sys.base_prefix)
    assert as_written(["/tmp/v/bin/python", "a.py"]) == ["/tmp/v/bin/python", "a.py"]


def test_a_pytorchjob_gets_the_settings_of_the_step() -> None:
    specs = job_of(SETTINGS, replicas=3)["spec"]["pytorchReplicaSpecs"]
    assert {type_: replica["replicas"] for type_, replica in specs.items()} == {
        "Master": 1,
        "Worker": 2,
    }
    spec = specs["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (spec["nodeSelector"], spec["tolerations"], spec["affinity"], spec["volumes"]) == (
        *(SETTINGS.node_selector, SETTINGS.tolerations, SETTINGS.affinity, SETTINGS.volumes),
    )
    assert (container["env"], container["resources"], container["volumeMounts"]) == (
        *(SETTINGS.env, SETTINGS.resources, SETTINGS.volume_mounts),
    )


def test_a_job_of_a_step_without_settings_states_none() -> None:
    spec = job_of(replicas=1)["spec"]
    assert spec["pytorchReplicaSpecs"] == {
        "Master": {
            "replicas": 1,
            "restartPolicy": "OnFailure",
            "template": {
                "spec": {
                    "containers": [{"name": "pytorch", "image": "image:1", "command": ["train"]}]
                }
            },
        }
    }
    assert "nprocPerNode" not in spec
    assert job_of(processes=2)["spec"]["nprocPerNode"] == "2"


def test_a_trainjob_gets_the_settings_of_the_step_that_trainer_accepts() -> None:
    arguments: dict[str, Any] = {"replicas": 2, "processes": 0, "runtime": "torch-distributed"}
    spec = trainjob_of(CONTAINER, task=SETTINGS, **arguments)["spec"]
    assert spec["trainer"] == {
        "image": "image:1",
        "command": ["train"],
        "numNodes": 2,
        "env": SETTINGS.env,
        "resourcesPerNode": SETTINGS.resources,
    }
    (patch,) = spec["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["spec"] == {
        "nodeSelector": SETTINGS.node_selector,
        "tolerations": SETTINGS.tolerations,
        "affinity": SETTINGS.affinity,
        "volumes": SETTINGS.volumes,
        # Trainer refuses variables here: they are the trainer's.
        "containers": [{"name": "node", "volumeMounts": SETTINGS.volume_mounts}],
    }
    assert "runtimePatches" not in trainjob_of(CONTAINER, task=NO_SETTINGS, **arguments)["spec"]


def runtime_of(*names: str) -> Raw:
    return {"spec": {"template": {"spec": {"replicatedJobs": [{"name": name} for name in names]}}}}


RUNTIMES: dict[str, tuple[Raw, list[str]]] = {
    "torch: nodes": (runtime_of("dataset-initializer", "node"), ["node"]),
    "MPI: nodes and launcher": (runtime_of("node", "launcher"), ["node", "launcher"]),
    "unreadable: nodes": ({}, ["node"]),
}


@pytest.mark.parametrize(("runtime", "want"), RUNTIMES.values(), ids=RUNTIMES)
def test_the_settings_of_the_step_go_to_all_training_pods_of_a_runtime(
    runtime: Raw, want: list[str]
) -> None:
    arguments: dict[str, Any] = {"replicas": 2, "processes": 0, "runtime": "deepspeed-distributed"}
    job = trainjob_of(CONTAINER, task=SETTINGS, **arguments)
    patch_launcher(job, runtime)
    patch = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    assert [replicated["name"] for replicated in patch["replicatedJobs"]] == want
    assert len({str(replicated["template"]) for replicated in patch["replicatedJobs"]}) == 1


def name_of(job: Raw, *, run: str = "run-1", task: str = "train", **settings: str) -> str:
    return str(with_name(job, settings, run=run, task=task)["metadata"]["name"])


def test_only_a_retry_of_a_step_uses_the_same_name_for_its_job() -> None:
    name = name_of(job_of())
    others = [
        name_of(job_of(), run="run-2"),
        name_of(job_of(), task="train-2"),
        name_of(job_of(replicas=3)),  # another iteration of a loop
        name_of(job_of(), colocation="required"),
    ]
    assert name == name_of(job_of())
    assert len({name, *others}) == 5


@pytest.mark.parametrize(
    ("task", "stem"),
    [("train", "train-"), ("2nd step", "job-2nd-step-"), ("", "job-"), ("x" * 99, "x" * 40 + "-")],
)
def test_the_name_of_a_job_is_a_dns_label(task: str, stem: str) -> None:
    name = name_of(job_of(), task=task)
    assert name.startswith(stem)
    assert len(name) <= 63 - len("-worker-9999")


LINES: dict[str, tuple[list[Raw], Raw, str]] = {
    "why it waits, and its position": (
        [condition("Created"), condition("Suspended")],
        queued(3),
        "Queued: NoRoom: needs 8 CPUs of a node; node-1 has 2, jobs ahead: 3",
    ),
    "when it should start": (
        [condition("Suspended")],
        {**queued(3, "full"), "expectedStart": {"summary": "14:10-14:40 UTC"}},
        "Queued: NoRoom: full, jobs ahead: 3, starts: 14:10-14:40 UTC",
    ),
    "where it trains, and how far it is": (
        RUNNING,
        placed(10, secondsLeft=120.4),
        "Placed on node-1, step 10/40, loss 0.1, 120 s left",
    ),
    "its last condition without kfext": (RUNNING, {}, "Running"),
    "that it was created": ([], {}, "Created"),
}


@pytest.mark.parametrize(("conditions", "status", "want"), LINES.values(), ids=LINES)
def test_the_status_line_of_a_job_says(conditions: list[Raw], status: Raw, want: str) -> None:
    polls = [(0.0, {"status": {"conditions": conditions}}, {"status": status})]
    assert list(lines_of(polls)) == [want]


def test_a_status_line_is_printed_once_a_minute_and_when_the_reason_changes() -> None:
    at = [(float(second), queued(second)) for second in range(0, 130, 10)]
    at += [(130.0, {**queued(1), "reason": "Quota"}), (140.0, placed(1)), (150.0, placed(2))]
    polls = [(now, {"status": {"conditions": RUNNING}}, {"status": status}) for now, status in at]
    printed = [line.rpartition(", ")[2] for line in lines_of(polls)]
    assert printed == [
        "jobs ahead: 0",
        "jobs ahead: 60",
        "jobs ahead: 120",
        "jobs ahead: 1",
        "loss 1",
    ]


def test_a_deleted_job_fails_the_step_with_its_last_known_state() -> None:
    polls: list[tuple[float, Raw, Raw]] = [
        (0.0, {"status": {}}, {"status": queued(1)}),
        (1.0, {}, {}),
    ]
    with pytest.raises(RuntimeError, match=r"was deleted; it was last Queued: NoRoom"):
        list(lines_of(polls))


def test_the_results_of_a_job_that_ended() -> None:
    resumed = {**condition("Suspended", "False"), "lastTransitionTime": "2026-11-27T10:05:00Z"}
    job = {
        "metadata": {"creationTimestamp": CREATED},
        "status": {"conditions": [resumed, condition("Succeeded")], "startTime": CREATED},
    }
    plan = {"status": placed(40, stepsPerSecond=2.5)}
    assert results_of(job, plan) == {
        "loss": 0.025,
        "step": 40,
        "steps_per_second": 2.5,
        "nodes": 1,
        "waited_seconds": 300,
        "ran_seconds": 900,
    }
    assert results_of(job, {}) == {"waited_seconds": 300, "ran_seconds": 900}


class Step:
    """A step that runs against a fake API server; its sleep advances its clock."""

    def __init__(self, api: FakeApi, monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
        self.api, self.now, self.job = api, 0.0, job_of()
        self.results: dict[str, float] = {}
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.set_pod(monkeypatch, "one")

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def set_pod(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv("KFP_POD_NAME", name)
        monkeypatch.setenv("KFP_POD_UID", f"uid-of-{name}")

    def run(self, *, owned: bool = True, **settings: str) -> None:
        arguments: dict[str, Any] = {"run": "run-1", "task": "train", "owned": owned}
        metrics = SimpleNamespace(log_metric=self.results.__setitem__, metadata={})
        run_job(self.job, settings, metrics=metrics, **arguments)

    @property
    def owners(self) -> list[str]:
        assert self.api.job is not None
        return [owner["name"] for owner in self.api.job["metadata"].get("ownerReferences", ())]


Start = Callable[..., Step]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A process that a shell starts in the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as stack:

        def make(*moves: tuple[list[Raw], Raw], **more: Any) -> Step:
            api = FakeApi(moves, **more)
            return Step(api, monkeypatch, stack.enter_context(serve(api, tmp_path)))

        yield make
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_step_trains_and_records_the_results(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    step = start((RUNNING, queued(1)), (RUNNING, placed(10)), (ENDED, placed(40)))
    step.run(colocation="required")
    assert step.api.job is not None
    metadata = step.api.job["metadata"]
    assert metadata["annotations"] == {"kfext.dev/colocation": "required"}
    assert metadata["labels"] == {"pipeline/runid": "run-1"}
    assert step.owners == ["one"]
    assert step.results["loss"] == 0.025
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"PyTorchJob team-a/{metadata['name']}"
    assert [line.partition(" ")[0] for line in printed[1:]] == ["Placed", "Placed"]


def test_a_step_waits_longer_than_the_600_seconds_of_the_sdks(start: Start) -> None:
    """The job waits for 300 reads, which are 10 s apart by the step's clock."""
    step = start(*[(RUNNING, queued(1))] * 300, (ENDED, placed(40)))
    step.run()
    assert step.now > 2900


def test_a_retry_adopts_the_job_and_owns_it_too(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = start((ENDED, placed(40)))
    step.run()
    step.set_pod(monkeypatch, "two")
    step.run()
    assert step.owners == ["one", "two"]
    assert step.api.methods.count("DELETE") == 0
    step.run()
    assert step.owners == ["one", "two"]


def test_a_retry_replaces_a_job_that_failed(start: Start) -> None:
    step = start((FAILED, placed(10)))
    with pytest.raises(RuntimeError, match="PyTorchJobFailed: it has failed"):
        step.run()
    step.api.moves = [(FAILED, {}), (ENDED, placed(40))]
    step.run()
    assert step.api.job is not None
    assert step.api.job["metadata"]["uid"] != "uid-1"


def test_a_retry_waits_until_a_job_that_is_being_deleted_is_gone(start: Start) -> None:
    step = start((RUNNING, placed(1)), (RUNNING, placed(1)), (ENDED, placed(40)))
    step.api.answer("POST", "", with_name(job_of(), {}, run="run-1", task="train"))
    assert step.api.job is not None
    step.api.job["metadata"]["deletionTimestamp"] = CREATED
    answer, gone = step.api.answer, iter([False, False, False, True])

    def intercept(method: str, path: str, body: Any) -> tuple[int, Raw]:
        if method == "GET" and next(gone, False):
            step.api.job = None
        return answer(method, path, body)

    step.api.answer = intercept  # type: ignore[method-assign]
    step.run()
    assert step.api.methods.count("DELETE") == 0
    assert step.api.job["metadata"]["uid"] != "uid-1"


def test_a_malformed_setting_fails_the_step_with_the_words_of_the_webhook(start: Start) -> None:
    refusal = "kfext.dev/colocation: 'always' is not allowed: preferred, required, off"
    step = start((RUNNING, {}), refusal=refusal)
    with pytest.raises(RuntimeError, match=r"was refused: kfext\.dev/colocation: 'always'"):
        step.run(colocation="always")


def test_a_job_that_is_not_owned_has_no_owner(start: Start) -> None:
    step = start((ENDED, placed(40)))
    step.run(owned=False)
    assert step.owners == []


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize(
    ("signal_number", "raised"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_stopped_step_deletes_its_own_job(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    signal_number: signal.Signals,
    raised: type[BaseException],
    owned: bool,
) -> None:
    step = start((RUNNING, queued(1)))

    def stop(_: float) -> None:
        os.kill(os.getpid(), signal_number)

    monkeypatch.setattr(time, "sleep", stop)
    with pytest.raises(raised):
        step.run(owned=owned)
    assert (step.api.job is None) is owned


def test_a_stopped_step_keeps_the_job_that_a_retry_has_adopted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = start((RUNNING, queued(1)))

    def adopt_and_stop(_: float) -> None:
        assert step.api.job is not None
        step.api.job["metadata"]["ownerReferences"].append({"kind": "Pod", "name": "two"})
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(time, "sleep", adopt_and_stop)
    with pytest.raises(SystemExit):
        step.run()
    assert step.owners == ["one", "two"]


def fail_requests(step: Step, first: int, requests: int) -> None:
    """Fail a number of requests; `first`: the number of the first, counted from 1."""
    answer = step.api.answer

    def intercept(method: str, path: str, body: Any) -> tuple[int, Raw]:
        step.api.outages = int(first <= len(step.api.methods) + 1 < first + requests)
        return answer(method, path, body)

    step.api.answer = intercept  # type: ignore[method-assign]


TRIES = 61
"""How often a step sends a request within ten minutes, before it gives up."""
OUTAGES: dict[str, tuple[int | None, int, str]] = {
    "its job is deleted": (None, TRIES, "is deleted"),
    "its job is left to its retry": (0, TRIES, "is left to the retry of the step"),
    "its job stays if the API server stays away": (None, 1000, "was not deleted, and stays"),
}


@pytest.mark.parametrize(("attempt", "requests", "message"), OUTAGES.values(), ids=OUTAGES)
def test_a_step_gives_up_after_ten_minutes_of_failed_requests(
    start: Start,
    capsys: pytest.CaptureFixture[str],
    attempt: int | None,
    requests: int,
    message: str,
) -> None:
    step = start((RUNNING, placed(1)))
    step.api.pods = {"one": pod_of_step("one", attempt=attempt)}
    fail_requests(step, 5, requests)  # the job exists by then
    with pytest.raises(Exception, match="restarting"):
        step.run()
    assert message in capsys.readouterr().out.splitlines()[-1]
    assert (step.api.job is None) is ("is deleted" in message)


FAILURES: dict[str, tuple[int, list[str]]] = {
    "the first request": (1, []),
    "the creation": (2, []),
    "the answer to the creation": (0, ["POST"]),
    "two reads": (5, []),
}


@pytest.mark.parametrize(("request_", "lost"), FAILURES.values(), ids=FAILURES)
def test_a_request_that_fails_does_not_fail_the_step(
    start: Start, request_: int, lost: list[str]
) -> None:
    step = start((RUNNING, placed(1)), (ENDED, placed(40)))
    step.api.lost = lost
    fail_requests(step, request_, int(request_ > 0) + int(request_ == 5))
    step.run()
    assert step.results["step"] == 40
    assert step.api.job is not None
    assert step.api.job["metadata"]["uid"] == step.api.created[0]
    assert len(step.api.created) == 1


@pytest.mark.parametrize("lost", [["PATCH"], []], ids=["its answer is lost", "another wrote first"])
def test_a_retry_adopts_the_job_although_its_first_try_fails(
    start: Start, monkeypatch: pytest.MonkeyPatch, lost: list[str]
) -> None:
    step = start((ENDED, placed(40)))
    step.run()
    step.set_pod(monkeypatch, "two")
    step.api.lost, answer = lost, step.api.answer

    def intercept(method: str, path: str, body: Any) -> tuple[int, Raw]:
        assert step.api.job is not None
        if method == "PATCH" and not lost and step.api.methods.count("PATCH") == 0:
            step.api.job["metadata"]["resourceVersion"] = "7"
        return answer(method, path, body)

    step.api.answer = intercept  # type: ignore[method-assign]
    step.run()
    assert step.owners == ["one", "two"]


def test_a_retry_does_not_delete_a_job_that_replaced_a_failed_job(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = start((FAILED, placed(10)))
    with pytest.raises(RuntimeError):
        step.run()
    step.set_pod(monkeypatch, "two")
    answer = step.api.answer

    def intercept(method: str, path: str, body: Any) -> tuple[int, Raw]:
        if method == "DELETE" and step.api.methods.count("DELETE") == 0:
            assert step.api.job is not None
            step.api.job["metadata"]["uid"] = "uid-of-the-other"
            step.api.moves = [(RUNNING, placed(1)), (ENDED, placed(40))]
        return answer(method, path, body)

    step.api.answer = intercept  # type: ignore[method-assign]
    step.run()
    assert step.api.job is not None
    assert step.api.job["metadata"]["uid"] == "uid-of-the-other"


def run_until_terminated(
    step: Step, monkeypatch: pytest.MonkeyPatch, *, drained: bool, fails: str = ""
) -> None:
    """Run the step until SIGTERM; `fails`: the method of a request that fails after the signal."""

    def terminate(_: float) -> None:
        monkeypatch.setattr(time, "sleep", step._sleep)
        name = os.environ["KFP_POD_NAME"]
        if drained:
            conditions = step.api.pods[name]["status"]["conditions"]
            conditions.append(condition("DisruptionTarget"))
        step.api.failing = [fails] if fails else []
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(time, "sleep", terminate)
    with pytest.raises(SystemExit):
        step.run()


@pytest.mark.parametrize("fails", ["GET", "DELETE"])
def test_a_terminated_step_deletes_its_job_although_a_request_fails(
    start: Start, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    step = start((RUNNING, queued(1)))
    run_until_terminated(step, monkeypatch, drained=False, fails=fails)
    assert step.api.job is None


ENDS: dict[str, tuple[int | None, bool, bool]] = {
    "a drained step leaves its job to its retry": (0, True, True),
    "a drained step without a retry deletes its job": (None, True, False),
    "a step with a retry deletes its job if the run is terminated": (0, False, False),
}


@pytest.mark.parametrize(("attempt", "drained", "kept"), ENDS.values(), ids=ENDS)
def test_a_terminated_step_deletes_its_job_or_leaves_it_to_a_retry(
    start: Start, monkeypatch: pytest.MonkeyPatch, attempt: int | None, drained: bool, kept: bool
) -> None:
    step = start((RUNNING, placed(1)))
    step.api.pods = {"one": pod_of_step("one", attempt=attempt)}
    run_until_terminated(step, monkeypatch, drained=drained)
    assert (step.api.job is not None) is kept


def test_a_retry_continues_with_the_job_of_a_drained_step_without_a_pod(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector deletes an object once all of its owners are gone."""
    step = start((RUNNING, placed(1)), (RUNNING, placed(2)), (ENDED, placed(40)))
    step.api.pods = {"one": pod_of_step("one", attempt=0), "two": pod_of_step("two", attempt=1)}
    run_until_terminated(step, monkeypatch, drained=True)
    assert step.owners == ["run", "one"]
    assert step.api.job is not None
    assert "controller" not in step.api.job["metadata"]["ownerReferences"][0]
    step.api.job["metadata"]["ownerReferences"].pop()

    step.set_pod(monkeypatch, "two")
    step.run()
    assert step.owners == ["run", "two"]
    assert (step.api.created, step.results["step"]) == (["uid-1"], 40)


def test_a_run_that_is_terminated_after_a_retry_ends_its_job(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Argo keeps the pod of the first attempt, so it still owns the job."""
    step = start((ENDED, placed(40)))
    step.run()
    step.api.moves = [(RUNNING, placed(1))]
    step.set_pod(monkeypatch, "two")
    run_until_terminated(step, monkeypatch, drained=False)
    assert step.api.job is None


def test_the_launcher_of_an_mpi_runtime_gets_the_settings_of_the_step(start: Start) -> None:
    step = start((ENDED, placed(40)))
    arguments: dict[str, Any] = {"replicas": 2, "processes": 0, "runtime": "deepspeed-distributed"}
    step.job = trainjob_of(CONTAINER, task=SETTINGS, **arguments)
    step.api.runtime = runtime_of("node", "launcher")
    step.run()
    assert step.api.job is not None
    patch = step.api.job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    assert [replicated["name"] for replicated in patch["replicatedJobs"]] == ["node", "launcher"]

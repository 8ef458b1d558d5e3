"""A real training with a stopped process is stalled; a compile or a save is not a stall.

FACTOR scales all times of the rule, so that 30 minutes become one minute.
"""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cases.real.test_usage import without
from e2e.harness.install import kubectl, wait_installed
from e2e.harness.training import pods_of, pytorch_job, submit, wait_trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import nodes
from kfext import names
from kfext.core.progress.stall import REPORT, SETTLED_SECONDS
from kfext.state.reports.progress import USUAL

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("metrics_api", "scaled")]

FACTOR = 1 / 30
LATE_SECONDS = 3 * USUAL
"""The time of three reads: the last step, a silence just below the limit, and the report."""
MEASURED_SECONDS = 180.0
"""The time of three measurements, each with a window of a minute."""
PATIENCE = 600.0
FIRST_SECONDS = 40.0
"""These trainings print their first step within this time. Like USUAL, the shortest silence between
two reads, it is not scaled."""
_CONTROLLER = "kfext-controller"
_COMMAND = "/spec/template/spec/containers/0/command"
_SCALED = f"""
from kfext.cli.main import main
from kfext.core.progress import stall
for name in ("EARLY_SECONDS", "SETTLED_SECONDS"):
    setattr(stall, name, getattr(stall, name) * {FACTOR})
for name in ("REPORT", "RESTART"):
    rule = getattr(stall, name)
    times = ({FACTOR} * each for each in (rule.least, rule.early, rule.first))
    setattr(stall, name, stall.Rule(rule.times, *times))
main()
"""
"""The program that runs kfext with the scaled rule."""
Object = dict[str, Any]


@pytest.fixture(scope="module")
def scaled(bed: Testbed) -> Iterator[None]:
    """The controller runs with the scaled rule."""
    path = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/deployments/{_CONTROLLER}"
    (container,) = bed.api.get(path)["spec"]["template"]["spec"]["containers"]
    before = container["command"]
    _command(bed, ["python3", "-c", _SCALED, *before[1:]])
    yield
    _command(bed, before)


def _command(bed: Testbed, command: list[str]) -> None:
    patch = json.dumps([{"op": "replace", "path": _COMMAND, "value": command}])
    target = ("-n", names.NAMESPACE, f"deployment/{_CONTROLLER}")
    kubectl(bed, "patch", *target, "--type=json", f"--patch={patch}")
    kubectl(bed, "rollout", "status", *target, "--timeout=180s")
    wait_installed(bed)


def training(name: str, *arguments: str, steps: int = 1_000_000) -> Any:
    """Return a job with three ranks, which prints about once a second."""
    common = ("--steps", str(steps), "--print-every", "5", *arguments)
    return pytorch_job(name, workers=2, cpu="120m", memory="400Mi", arguments=common)


def status(bed: Testbed, namespace: str, job: str) -> Object:
    """Return the status of a TrainingPlan; empty before it exists."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans"
    plans = bed.api.get(path)["items"]
    matches = [plan for plan in plans if plan["metadata"]["name"] == f"pytorchjob-{job}"]
    return dict(matches[0].get("status", {})) if matches else {}


def progressing(bed: Testbed, namespace: str, job: str) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Progressing; empty texts without it."""
    for condition in status(bed, namespace, job).get("conditions", []):
        if condition["type"] == names.PROGRESSING:
            return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


def step(bed: Testbed, namespace: str, job: str) -> int:
    progress = status(bed, namespace, job).get("progress") or {}
    return int(progress.get("step") or 0)


def wait_steps(bed: Testbed, namespace: str, job: str) -> None:
    before = step(bed, namespace, job)
    until(lambda: step(bed, namespace, job) > before + 5, what=f"{job} trains", seconds=PATIENCE)


def stop_process(bed: Testbed, namespace: str, pod: str) -> list[int]:
    """Stop the training in a pod with SIGSTOP; return the ids of its processes."""
    raw = pods_of(bed, namespace)[pod]
    (node,) = [node for node in nodes(bed) if node.name == raw["spec"]["nodeName"]]
    pids = node.pod_processes(raw["metadata"]["uid"], running="train_ddp")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


@pytest.mark.parametrize("history", [False, True])
def test_a_training_with_a_stopped_rank_is_stalled_and_its_pod_is_named(
    bed: Testbed, managed: str, history: bool
) -> None:
    if history:
        first = training("train-1", steps=200)
        wait_trained(submit(bed, first, managed), first, managed)
    submit(bed, training("train-2"), managed)
    wait_steps(bed, managed, "train-2")
    pids = stop_process(bed, managed, "train-2-worker-1")
    least = FACTOR * (REPORT.least if history else REPORT.early)
    limit = max(least, REPORT.times * max(FIRST_SECONDS / 2, USUAL))
    until(
        lambda: progressing(bed, managed, "train-2")[:2] == ("False", names.REASON_STALLED),
        what="it is stalled",
        seconds=limit + LATE_SECONDS,
    )
    until(
        lambda: "train-2-worker-1 on " in progressing(bed, managed, "train-2")[2],
        what="its pod is named",
        seconds=MEASURED_SECONDS,
    )
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    until(
        lambda: progressing(bed, managed, "train-2") == ("", "", ""),
        what="it trains again",
        seconds=LATE_SECONDS + FACTOR * SETTLED_SECONDS,
    )
    events = kubectl(bed, "get", "events", "-n", managed, "-o", "json")
    items = json.loads(events)["items"]
    assert [item["reason"] for item in items].count(names.REASON_STALLED) == 1


INNOCENT = {
    "a compile of 40 minutes": ("--pause", "80", "--pause-at", "1"),
    "a save of 20 minutes": (
        *("--pause", "40", "--pause-at", "60"),
        *("--says", "Saving model checkpoint to out/checkpoint-60"),
    ),
    "an evaluation of 25 minutes": ("--pause", "50", "--pause-at", "60"),
    "an evaluation of 25 minutes with a progress bar": (
        *("--pause", "50", "--pause-at", "60"),
        *("--says", "Evaluating: {} of 50"),
    ),
}


@pytest.mark.parametrize("arguments", INNOCENT.values(), ids=INNOCENT)
def test_a_training_that_is_busy_with_something_else_is_not_stalled(
    bed: Testbed, managed: str, arguments: tuple[str, ...]
) -> None:
    job = training("train", *arguments, steps=400)
    sdk = submit(bed, job, managed)
    seen = set()

    def ended() -> bool:
        seen.add(progressing(bed, managed, "train")[0])
        return step(bed, managed, "train") == 400

    until(ended, what="it has trained", seconds=PATIENCE)
    wait_trained(sdk, job, managed)
    assert seen == {""}


def test_a_training_with_a_log_that_cannot_be_read_is_unknown(bed: Testbed, managed: str) -> None:
    submit(bed, training("train"), managed)
    wait_steps(bed, managed, "train")
    with without(bed, "pod-logs", "ClusterRole"):
        until(
            lambda: (
                progressing(bed, managed, "train")[:2] == ("Unknown", names.REASON_LOG_FORBIDDEN)
            ),
            what="it is unknown",
            seconds=PATIENCE,
        )

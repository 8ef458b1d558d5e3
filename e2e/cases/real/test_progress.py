"""kfext reads progress from logs that real containers write and a real kubelet serves.

Some of these logs are expensive to read, or contain little progress.
"""

import json
import subprocess
from typing import Any

import pytest

from e2e.harness.install import kubectl
from e2e.harness.kfext_process import COMMAND
from e2e.harness.training import pytorch_job, submit, tf_job, wait_trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names

STEPS = 40
STARTED = f'def step(n): print(f"step {{n}}/{STEPS} loss={{1 / n:.4f}}", flush=True)\n'
LOGS = {
    "ten megabytes a second": """
junk = ("x" * 1023 + "\\n") * 1024
for n in range(1, 41):
    step(n)
    sys.stdout.write(junk * 5)
    time.sleep(0.5)
step(40)
""",
    "a line of a hundred megabytes": """
step(1)
for _ in range(100):
    sys.stdout.write("x" * 2**20)
print(flush=True)
for n in range(2, 41):
    step(n)
    time.sleep(0.2)
""",
    "bytes that are no text": """
for n in range(1, 41):
    step(n)
    sys.stdout.buffer.write(os.urandom(2**16) + b"\\n")
    time.sleep(0.2)
step(40)
""",
}


def test_the_progress_of_a_pytorchjob_is_recognised_without_a_setting(
    bed: Testbed, managed: str
) -> None:
    arguments = ("--model", "cnn", "--steps", "40", "--print-every", "10")
    job = pytorch_job("prints", arguments=arguments)
    wait_trained(submit(bed, job, managed), job, managed)
    check_progress(bed, "pytorchjob-prints", managed, step=40)

    report = json.loads(log(bed, "prints", managed, "-o", "json"))["log"]

    assert report["pod"] == "prints-master-0"
    # The totals at the end are a fifth line, which repeats the last step.
    assert [point["step"] for point in report["series"]] == [10, 20, 30, 40, 40]
    assert (report["progress"]["metric"], report["better"]) == ("loss", "lower")
    assert report["progress"]["stepsPerSecond"] > 0
    words = log(bed, "prints", managed, "--regex", r"steps_per_second=(?P<value>\S+)")
    assert "  log      4 of" in words
    assert "by the expression" in words


@pytest.mark.long
def test_the_progress_of_a_tfjob_is_recognised_without_a_setting(
    bed: Testbed, managed: str
) -> None:
    job = tf_job("shown", arguments=("--steps", "40"))
    wait_trained(submit(bed, job, managed), job, managed)
    check_progress(bed, "tfjob-shown", managed, step=40)


def check_progress(bed: Testbed, plan: str, namespace: str, *, step: int) -> None:
    """Wait until the TrainingPlan of a job shows its last step, and check its other fields."""
    status = until(
        lambda: at_step(bed, plan, namespace, step), what="the last step is in the TrainingPlan"
    )
    progress = status["progress"]
    assert (progress["metric"], progress["state"]) == ("loss", "New")
    assert progress["stepsPerSecond"] > 0
    (known,) = [
        condition for condition in status["conditions"] if condition["type"] == "ProgressKnown"
    ]
    assert (known["status"], known["reason"]) == ("True", "Recognised")


def at_step(bed: Testbed, plan: str, namespace: str, step: int) -> Any:
    """Return the status of a TrainingPlan that shows this step; None means not yet."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/{plan}"
    status = bed.api.get(path)["status"]
    return status if (status.get("progress") or {}).get("step") == step else None


def log(bed: Testbed, name: str, namespace: str, *options: str) -> str:
    """Return the output of `kfext explain --log` for a job."""
    config = f"--kubeconfig={bed.kubeconfig}"
    done = subprocess.run(
        [COMMAND, "explain", "--log", name, "-n", namespace, config, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def printing(script: str) -> Any:
    """Return a PyTorchJob with one pod that runs a script."""
    job = pytorch_job("odd")
    del job.spec.pytorch_replica_specs["Worker"]
    (container,) = job.spec.pytorch_replica_specs["Master"].template.spec.containers
    container.command = ["python3", "-c", f"import os, sys, time\n{STARTED}{script}"]
    return job


def restarts(bed: Testbed) -> list[str]:
    path = "{.items[*].status.containerStatuses[*].restartCount}"
    counts = kubectl(bed, "get", "pods", "-n", names.NAMESPACE, "-o", f"jsonpath={path}")
    return counts.split()


@pytest.mark.long
@pytest.mark.parametrize("script", LOGS.values(), ids=LOGS)
def test_the_last_step_is_shown_whatever_else_a_job_prints(
    bed: Testbed, managed: str, script: str
) -> None:
    before, job = restarts(bed), printing(script)
    wait_trained(submit(bed, job, managed), job, managed)
    status = until(
        lambda: at_step(bed, "pytorchjob-odd", managed, STEPS),
        what="the last step is in the TrainingPlan",
    )
    assert status["progress"]["totalSteps"] == STEPS
    assert restarts(bed) == before

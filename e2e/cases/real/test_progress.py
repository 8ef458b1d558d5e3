"""Progress is read from the log that a real container writes and a real kubelet serves."""

import json
import subprocess
from typing import Any

import pytest

from e2e.harness.kfext_process import COMMAND
from e2e.harness.training import pytorch_job, submit, tf_job, trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed


def test_the_progress_of_a_training_job_is_recognised_without_a_setting(
    bed: Testbed, managed: str
) -> None:
    arguments = ("--model", "cnn", "--steps", "40", "--print-every", "10")
    job = pytorch_job("prints", arguments=arguments)
    trained(submit(bed, job, managed), job, managed)
    shows_its_progress(bed, "pytorchjob-prints", managed, step=40)

    found = json.loads(log(bed, "prints", managed, "-o", "json"))["log"]

    assert found["pod"] == "prints-master-0"
    # The totals at the end are a fifth line, with the step of the last one.
    assert [one["step"] for one in found["series"]] == [10, 20, 30, 40, 40]
    assert (found["progress"]["metric"], found["better"]) == ("loss", "lower")
    assert found["progress"]["stepsPerSecond"] > 0
    words = log(bed, "prints", managed, "--regex", r"steps_per_second=(?P<value>\S+)")
    assert "  log      4 of" in words
    assert "by the expression" in words


@pytest.mark.long
def test_the_progress_of_a_tfjob_is_recognised_without_a_setting(
    bed: Testbed, managed: str
) -> None:
    job = tf_job("shown", arguments=("--steps", "40"))
    trained(submit(bed, job, managed), job, managed)
    shows_its_progress(bed, "tfjob-shown", managed, step=40)


def shows_its_progress(bed: Testbed, plan: str, namespace: str, *, step: int) -> None:
    """Wait until the TrainingPlan of a job shows its last step, and see what else it shows."""
    status = until(
        lambda: at_step(bed, plan, namespace, step), what="the last step is in the TrainingPlan"
    )
    progress = status["progress"]
    assert (progress["metric"], progress["state"]) == ("loss", "New")
    assert progress["stepsPerSecond"] > 0
    (known,) = [one for one in status["conditions"] if one["type"] == "ProgressKnown"]
    assert (known["status"], known["reason"]) == ("True", "Recognised")


def at_step(bed: Testbed, plan: str, namespace: str, step: int) -> Any:
    """Return the status of a TrainingPlan whose job has reached a step, None before."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans/{plan}"
    status = bed.api.get(path)["status"]
    return status if (status.get("progress") or {}).get("step") == step else None


def log(bed: Testbed, name: str, namespace: str, *options: str) -> str:
    """Return what `explain --log` says of a job."""
    config = f"--kubeconfig={bed.kubeconfig}"
    done = subprocess.run(
        [COMMAND, "explain", "--log", name, "-n", namespace, config, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout

"""Logs that cost much or say little, written by a real container and served by a real kubelet."""

from typing import Any

import pytest

from e2e.cases.real.test_progress import at_step
from e2e.harness.install import kubectl
from e2e.harness.training import pytorch_job, submit, trained
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


def printing(script: str) -> Any:
    """Return a PyTorchJob of one pod that runs a script."""
    job = pytorch_job("odd")
    del job.spec.pytorch_replica_specs["Worker"]
    (container,) = job.spec.pytorch_replica_specs["Master"].template.spec.containers
    container.command = ["python3", "-c", f"import os, sys, time\n{STARTED}{script}"]
    return job


def restarts(bed: Testbed) -> list[str]:
    """Return how often each container of kfext was started again."""
    path = "{.items[*].status.containerStatuses[*].restartCount}"
    found = kubectl(bed, "get", "pods", "-n", names.NAMESPACE, "-o", f"jsonpath={path}")
    return found.split()


@pytest.mark.long
@pytest.mark.parametrize("script", LOGS.values(), ids=LOGS)
def test_the_last_step_is_shown_whatever_else_a_job_prints(
    bed: Testbed, managed: str, script: str
) -> None:
    before, job = restarts(bed), printing(script)
    trained(submit(bed, job, managed), job, managed)
    status = until(
        lambda: at_step(bed, "pytorchjob-odd", managed, STEPS),
        what="the last step is in the TrainingPlan",
    )
    assert status["progress"]["totalSteps"] == STEPS
    assert restarts(bed) == before

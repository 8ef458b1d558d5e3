"""`kubectl kfext top` on the real API server: which jobs a user sees, and how a watch ends."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.harness.jobs import workers
from e2e.harness.kube import Object
from e2e.harness.processes import COMMAND
from e2e.harness.space import Space
from e2e.harness.tenant import Tenant
from e2e.harness.wait import PATIENCE_SECONDS

LOSS: Object = {
    "metric": "loss",
    "value": 0.5,
    "step": 40,
    "totalSteps": 100,
    "stepsPerSecond": 0.5,
    "secondsLeft": 120,
    "cpu": "1500m",
    "state": "New",
}


def put_plan(space: Space, job: str, *, kind: str = "TFJob", uid: str = "", **status: Any) -> None:
    """Create a TrainingPlan of a job that kfext does not handle; only the test writes it."""
    ref = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": job}
    ref["uid"] = uid or f"of-{job}"
    name = f"{kind.lower()}-{job}"
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": name},
        "spec": {"job": ref},
    }
    space.kube.create(space.path("trainingplans"), body)
    path = f"{space.path('trainingplans', name)}/status"
    space.kube.patch(path, {"status": {"phase": "Placed", **status}})


def names(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the names of the jobs in the JSON output of a command."""
    assert done.returncode == 0, done.stderr
    return [line["name"] for line in json.loads(done.stdout)]


def test_a_tenant_sees_only_the_progress_of_its_own_jobs(
    new_space: Callable[..., Space], tmp_path: Path
) -> None:
    space, other = new_space(), new_space()
    tenant = Tenant(space, tmp_path)
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    space.submit(workers("silent", 2, each={"cpu": "1"}))
    space.phase("silent", "Placed")
    put_plan(space, "slow", progress={**LOSS, "growth": 0.001})
    put_plan(space, "fast", progress={**LOSS, "growth": 0.5})
    put_plan(space, "ended", phase="Finished", progress=LOSS)
    put_plan(other, "hidden", progress=LOSS)

    assert names(tenant.kfext("top", "-o", "json")) == ["fast", "slow", "silent"]
    head, first, *_ = tenant.kfext("top").stdout.splitlines()
    assert head.startswith("JOB ")
    assert first.split()[:6] == ["TFJob", f"{space.name}/fast", "Placed", "40/100", "loss", "0.5"]

    everywhere = tenant.kfext("top", "-A")
    assert (everywhere.returncode, everywhere.stdout) == (1, "")
    assert everywhere.stderr.startswith(
        "error: you may not list trainingplans in the whole cluster; use -n"
    )
    seen = names(tenant.kfext("top", "-A", "-o", "json", as_administrator=True))
    assert {"fast", "slow", "silent", "hidden"} <= set(seen)


def test_explain_shows_the_progress_of_a_job(
    new_space: Callable[..., Space], tmp_path: Path
) -> None:
    space = new_space(managed=False)
    tenant = Tenant(space, tmp_path)
    space.kfext.stop_controller()  # it would write the TrainingPlan of the job
    uid = space.submit(workers("train", 2, each={"cpu": "1"}))["metadata"]["uid"]
    put_plan(space, "train", kind="PyTorchJob", uid=uid, progress=LOSS)
    shown = tenant.kfext("explain", "train").stdout
    assert "  progress loss 0.5, step 40 of 100, 0.5 a second, 2m left\n" in shown


def test_ctrl_c_ends_the_watch_without_an_error(space: Space) -> None:
    put_plan(space, "fast", progress={**LOSS, "growth": 0.5})
    config = space.kfext.testbed.kubeconfig
    # A background process of a shell ignores Ctrl-C, and so would the command.
    watching = subprocess.Popen(
        [
            *("env", "--default-signal=INT", str(COMMAND), "top", "--watch"),
            *("-n", space.name, f"--kubeconfig={config}"),
        ],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        two_tables = [watching.stdout.readline() for _ in range(6)]
        watching.send_signal(signal.SIGINT)
        output, errors = watching.communicate(timeout=PATIENCE_SECONDS)
    finally:
        watching.kill()
    assert two_tables[0].startswith("JOB ")
    assert two_tables[:3] == two_tables[3:]
    assert (watching.returncode, output, errors) == (0, "", "")

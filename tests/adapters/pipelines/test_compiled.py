"""The components are compiled by kfp, and run by kfp.local and by the command of a compiled step.

kfp needs an older Kubernetes client than the tests do, so it is in a virtual environment of its
own. The API server is a fake; e2e/cases/real/test_pipelines.py has a real cluster.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.steps import Step, python_with_sdk
from tests.contract.manifests import REPOSITORY
from tests.unit.pipelines.fake_api import FakeApi, condition, placed, queued, serve

pytestmark = pytest.mark.long
GOLDEN = REPOSITORY / "tests/contract/pipeline.yaml"
RUNNING = [condition("Created"), condition("Running")]
MOVES = [(RUNNING, queued(1)), (RUNNING, placed(10)), ([condition("Succeeded")], placed(40))]
VERSION = next(yaml.safe_load_all(GOLDEN.read_text()))["sdkVersion"].removeprefix("kfp-")


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a virtual environment with kfext and the kfp of the golden file."""
    return python_with_sdk(tmp_path_factory.mktemp("kfp"), f"kfp[kubernetes]=={VERSION}")


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[FakeApi, dict[str, str]]]:
    """Serve a cluster where a job waits, trains and succeeds; yield it and a step's environment."""
    api = FakeApi(MOVES)
    with serve(api, folder) as kubeconfig:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "KUBECONFIG": str(kubeconfig)}
        environment.pop("KUBERNETES_SERVICE_HOST", None)
        yield api, environment


def test_the_newest_kfp_compiles_the_golden_file(python: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "pipeline.yaml"
    subprocess.run(
        [python, "-m", "tests.adapters.pipelines.golden", compiled],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )
    assert compiled.read_text() == GOLDEN.read_text()


REFUSED = {
    "an unknown setting": (
        "pytorchjob('i', ['c'], settings={'color': 'blue'})",
        "color is not a setting of kfext; the settings are colocation,",
    ),
    "a malformed setting": (
        "pytorchjob('i', ['c'], settings={'kfext.dev/colocation': 'always'})",
        "colocation: 'always'",
    ),
    "an argument that is not a literal": (
        "command_of(print, rate=PipelineParameterChannel('rate', channel_type='String'))",
        "pass a value of the pipeline as text: rate=",
    ),
}
PREAMBLE = (
    "from kfp.dsl.pipeline_channel import PipelineParameterChannel\n"
    "from kfext.pipelines.components import command_of, pytorchjob\n"
)


@pytest.mark.parametrize(("written", "why"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_argument_is_refused_where_the_pipeline_is_written(
    python: Path, written: str, why: str
) -> None:
    done = subprocess.run(
        [python, "-c", PREAMBLE + written],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert why in done.stderr


def test_the_example_runs_with_kfp_local(python: Path, tmp_path: Path) -> None:
    with cluster(tmp_path) as (api, environment):
        done = subprocess.run(
            [python, REPOSITORY / "examples/pipeline.py"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Placed on node-1, step 10/40, loss 0.1" in output
    assert api.methods.count("POST") == 2


TASK_SETTINGS: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "env": [{"name": "A", "value": "b"}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
}


def test_the_command_of_a_compiled_step_passes_the_settings_of_the_step_to_the_job(
    python: Path, tmp_path: Path
) -> None:
    """The back end of Kubeflow Pipelines fills `task_config`; kfp.local leaves it empty."""
    step = Step.compiled(GOLDEN, output=tmp_path / "output.json")
    command = step.command(
        image="i",
        command=["train"],
        replicas=2,
        settings={"elastic": "1-4"},
        task_config=TASK_SETTINGS,
    )
    pod = {"KFP_POD_NAME": "step", "KFP_POD_UID": "uid-of-step"}
    with cluster(tmp_path) as (api, environment):
        subprocess.run(
            command,
            env={**environment, **pod, "PATH": f"{python.parent}:{os.environ['PATH']}"},
            check=True,
        )
    assert api.job is not None
    assert [owner["uid"] for owner in api.job["metadata"]["ownerReferences"]] == ["uid-of-step"]
    assert api.job["metadata"]["annotations"] == {"kfext.dev/elastic": "1-4"}
    spec = api.job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    result = {**spec, **container}
    assert {key: result[key] for key in TASK_SETTINGS} == TASK_SETTINGS
    output = json.loads((tmp_path / "output.json").read_text())["artifacts"]["metrics"]
    assert output["artifacts"][0]["metadata"]["loss"] == 0.025

"""Steps of compiled pipelines, run as the back end of Kubeflow Pipelines runs them.

The back end and Argo cannot be built here. Like them, this module passes a step its inputs in the
argument `--executor_input`, and the name and uid of its pod in two environment variables.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from e2e.harness.install import kubectl
from e2e.harness.training import TRAINED_SECONDS
from e2e.harness.wait import until
from e2e.testbed import binaries, paths
from e2e.testbed.cluster import Testbed
from e2e.testbed.images import TRAINING_IMAGE
from e2e.testbed.images.recipes import PACKAGES, install


@dataclass(frozen=True)
class Step:
    """A compiled step. `output`: its output file. `inputs`: the inputs that it has by default."""

    container: dict[str, Any]
    output: Path
    inputs: dict[str, Any]

    @classmethod
    def compiled(cls, pipeline: Path, *, output: Path) -> Self:
        """Return the training step of a compiled pipeline."""
        spec = next(yaml.safe_load_all(pipeline.read_text()))
        container = spec["deploymentSpec"]["executors"]["exec-train"]["container"]
        pods = {"kind": "PyTorchJob", "replicas": 1, "processes": 0, "backoff_limit": 3}
        of_run = {"owned": True, "run": "run-1", "task": "train"}
        return cls(container, output, {**pods, "runtime": "", "settings": {}, **of_run})

    def command(self, **inputs: Any) -> list[str]:
        """Return the command of the step's container; `inputs` replace defaults."""
        artifact = {
            "name": "metrics",
            "uri": str(self.output.with_name("metrics")),
            "type": {"schemaTitle": "system.Metrics"},
            "metadata": {},
        }
        executor_input = {
            "inputs": {"parameterValues": {**self.inputs, **inputs}},
            "outputs": {
                "artifacts": {"metrics": {"artifacts": [artifact]}},
                "outputFile": str(self.output),
            },
        }
        arguments = [
            json.dumps(executor_input) if argument == "{{$}}" else argument
            for argument in self.container["args"]
        ]
        return [*self.container["command"], *arguments]


PIPELINE = paths.REPOSITORY / "tests/contract/pipeline.yaml"
VERSION = next(yaml.safe_load_all(PIPELINE.read_text()))["sdkVersion"].removeprefix("kfp-")
"""The version of kfp that compiled the pipeline."""
_REQUIRES = ("pip", "kubernetes>=28,<38")
_AGGREGATED = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit"
_RBAC = "rbac.authorization.k8s.io/v1"
ACCOUNT = "default-editor"
_STARTED_SECONDS = 180.0


class Steps:
    """Runs steps in pods of a namespace, as an account with only the role `kubeflow-edit`.

    `folder`: a folder on all nodes with the packages that a step would otherwise install.
    """

    def __init__(self, bed: Testbed, namespace: str, folder: Path) -> None:
        self._bed, self._namespace, self._folder = bed, namespace, folder
        selector = [{"matchLabels": {_AGGREGATED: "true"}}]
        edit = {"metadata": {"name": "kubeflow-edit"}}
        texts = (path.read_text() for path in binaries.user_roles())
        roles = filter(None, (role for text in texts for role in yaml.safe_load_all(text)))
        for role in (*roles, {**edit, "aggregationRule": {"clusterRoleSelectors": selector}}):
            bed.api.apply({"apiVersion": _RBAC, "kind": "ClusterRole", **role})
        kubectl(bed, "create", "serviceaccount", ACCOUNT, "-n", namespace)
        account = f"--serviceaccount={namespace}:{ACCOUNT}"
        role = "--clusterrole=kubeflow-edit"
        kubectl(bed, "create", "rolebinding", ACCOUNT, role, account, "-n", namespace)
        until(self._may_train, what="the account has the permissions of kubeflow-edit")

    def _may_train(self) -> bool:
        """Return whether the control plane has aggregated the roles."""
        user = f"--as=system:serviceaccount:{self._namespace}:{ACCOUNT}"
        question = ("auth", "can-i", "--list", "-n", self._namespace, user)
        kinds = {"pytorchjobs.kubeflow.org", "trainjobs.trainer.kubeflow.org"}
        return kinds | {"trainingplans.kfext.dev"} <= {
            line.partition(" ")[0] for line in kubectl(self._bed, *question).splitlines()
        }

    def start(self, name: str, *, attempt: int | None = None, **inputs: Any) -> None:
        """Run a step in a pod. `attempt`: its number, if Argo runs the step with retries."""
        step = Step.compiled(PIPELINE, output=Path("/tmp/output.json"))
        field = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}
        container = {
            "name": "main",
            "image": TRAINING_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": step.command(image=TRAINING_IMAGE, **inputs),
            "env": [
                {"name": "PYTHONPATH", "value": f"/step/{PACKAGES}"},
                {"name": "PATH", "value": "/step/usr/local/bin:/usr/local/bin:/usr/bin:/bin"},
                {"name": "PIP_BREAK_SYSTEM_PACKAGES", "value": "1"},
                *(
                    {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                    for variable, path in field.items()
                ),
            ],
            "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
            "volumeMounts": [{"name": "step", "mountPath": "/step", "readOnly": True}],
        }
        spec = {
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "step", "hostPath": {"path": str(self._folder)}}],
        }
        metadata: dict[str, Any] = {"name": name}
        if attempt is not None:
            node = f"run.root.train.executor({attempt})"
            metadata["annotations"] = {"workflows.argoproj.io/node-name": node}
            metadata["ownerReferences"] = [self._run()]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._bed.api.create(f"/api/v1/namespaces/{self._namespace}/pods", pod)

    def _run(self) -> dict[str, Any]:
        """Return the owner of the pods of a run: a ConfigMap as stand-in for the Workflow."""
        run = {"apiVersion": "v1", "kind": "ConfigMap"}
        named = {"metadata": {"name": "run", "namespace": self._namespace}}
        uid = self._bed.api.apply({**run, **named})["metadata"]["uid"]
        return {**run, "name": "run", "uid": uid}

    def evict(self, name: str) -> None:
        """Evict the pod of a step, as `kubectl drain` does, and wait until it is gone."""
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self._bed.api.create(f"{pods}/{name}/eviction", eviction)

        def present() -> set[str]:
            return {pod["metadata"]["name"] for pod in self._bed.api.get(pods)["items"]}

        until(lambda: name not in present(), what=f"the pod of {name} is gone")

    def delete(self, name: str) -> None:
        self._bed.api.delete(f"/api/v1/namespaces/{self._namespace}/pods/{name}")

    def delete_run(self) -> None:
        """Delete the owner of the pods of a run."""
        self._bed.api.delete(f"/api/v1/namespaces/{self._namespace}/configmaps/run")

    def wait_printed(self, name: str, text: str) -> None:
        until(
            lambda: text in self.log(name),
            what=f"{name} prints {text}",
            account=lambda: self.log(name),
            seconds=_STARTED_SECONDS,
        )

    def log(self, name: str) -> str:
        """Return the output of a step; empty before its start."""
        if self.phase(name) == "Pending":
            return ""
        return kubectl(self._bed, "logs", "-n", self._namespace, name)

    def phase(self, name: str) -> str:
        pod = self._bed.api.get(f"/api/v1/namespaces/{self._namespace}/pods/{name}")
        return str(pod["status"]["phase"])

    def wait_ended(self, name: str) -> str:
        """Wait until the pod of a step has ended, and return its phase."""
        return until(
            lambda: phase if (phase := self.phase(name)) in {"Succeeded", "Failed"} else None,
            what=f"step {name} ends",
            account=lambda: self.log(name),
            seconds=TRAINED_SECONDS,
        )


def check_retry_adopts_job(bed: Testbed, steps: Steps, jobs: str, **inputs: Any) -> None:
    """Evict a step with retries while its job waits; check that the retry adopts the job.

    Also check that the job is deleted with its run. `jobs`: the API path of the step's kind.
    """
    steps.start("one", attempt=0, **inputs)
    steps.wait_printed("one", "Queued: TooBig")
    (job,) = bed.api.get(jobs)["items"]
    steps.evict("one")
    steps.start("two", attempt=1, **inputs)
    steps.wait_printed("two", "which an earlier attempt created")
    steps.wait_printed("two", "Queued: TooBig")
    (kept,) = bed.api.get(jobs)["items"]
    assert kept["metadata"]["uid"] == job["metadata"]["uid"]
    assert {owner["name"] for owner in kept["metadata"]["ownerReferences"]} == {"run", "two"}
    steps.delete("two")
    steps.delete_run()
    until(lambda: not bed.api.get(jobs)["items"], what="the job is gone with its run")


def python_with_sdk(folder: Path, sdk: str) -> Path:
    """Create a virtual environment with an SDK of Kubeflow and kfext; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin/python"
    install_there = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install_there, sdk, str(paths.REPOSITORY)], check=True)
    return python


def run_as_author(bed: Testbed, namespace: str, program: Path, *, sdk: str, folder: Path) -> str:
    """Run a program with an SDK and a kubeconfig for a namespace; return its output."""
    config = yaml.safe_load(bed.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    completed = subprocess.run(
        [python_with_sdk(folder / "venv", sdk), program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(paths.REPOSITORY), "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == 0, output
    return output


def packages_of_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that both nodes see, with a step's packages for the images' Python."""
    folder = tmp_path_factory.mktemp("step")
    install(folder, _REQUIRES)
    install(folder, [f"kfp=={VERSION}"], dependencies=False)
    for parent in (folder, *folder.parents):
        if parent != Path("/tmp") and parent.is_relative_to("/tmp"):
            parent.chmod(0o755)
    return folder

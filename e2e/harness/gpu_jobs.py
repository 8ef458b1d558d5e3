"""Jobs that use a card during part of each step, and helpers to submit and follow them."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from e2e.bench.gpu_share.cards import Cuda
from e2e.gpu import node_cards
from e2e.gpu.nvidia_runtime import FOLDERS
from e2e.harness.install import kubectl
from e2e.harness.training import TRAINED_SECONDS, pods_of
from e2e.harness.wait import until
from e2e.testbed.api import ApiError, Manifest
from e2e.testbed.cluster import Testbed
from e2e.testbed.images import TRAINING_IMAGE
from kfext.names import NATIVE_GPU

Object = dict[str, Any]
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
_STARTED_SECONDS = 180.0
_MACHINE = ("/bin", "/lib", "/lib64", "/opt", "/usr")
"""The folders of this machine's Python and its libraries, which jobs on a real GPU use."""


def dial_job(
    name: str,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    layers: int = 20,
    load_ms: float = 0.0,
    kernel_ms: float = 1.0,
    steps: int = 100,
    queue: int = 0,
    spread: float = 0.0,
    unhooked: bool = False,
) -> Manifest:
    """Return a PyTorchJob with one pod, which runs `e2e/jobs/dial.py` on a simulated card.

    `settings`: the values of its `kfext.dev/gpu-*` annotations, by the rest of the key, such as
        `share`; without settings the job has a whole GPU.
    `queue`: kernels launched at once in each step, in addition to its layers' kernels.
    `spread`: of its pauses, see `dial.py`.
    `unhooked`: whether Python ignores PYTHONPATH, so that the hook is not loaded.
    """
    hooked = "share" in settings and not unhooked
    driver = [] if hooked else ["-m", "cpu_card"]  # the hook loads it for the other jobs
    driver = ["-E", *driver] if unhooked else driver
    dial = ["/jobs/dial.py", "--layers", str(layers), "--load-ms", str(load_ms)]
    dial += ["--queue", str(queue), "--spread", str(spread)]
    container = {
        "name": "pytorch",
        "image": TRAINING_IMAGE,
        "command": ["python3", *driver, *dial, "--steps", str(steps)],
        "workingDir": "/jobs",
        "env": [
            {"name": "KFEXT_GPU_DEVICE", "value": "cpu_card:Card"},
            {"name": "CPU_CARD_NAME", "value": name},
            {"name": "CPU_CARD_KERNEL_MS", "value": str(kernel_ms)},
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "300Mi"},
            "limits": {NATIVE_GPU: "1"},
        },
        "volumeMounts": [{"name": "cards", "mountPath": node_cards.INSIDE}],
    }
    cards = {"name": "cards", "hostPath": {"path": str(node_cards.CARDS)}}
    return _job(name, settings, container, [cards])


def cuda_job(
    name: str,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    load_ms: float = 0.0,
    steps: int = 100,
    unhooked: bool = False,
) -> Manifest:
    """Return a PyTorchJob with one pod, which runs this machine's PyTorch on a real GPU.

    `settings`, `unhooked`: see `dial_job`.
    """
    share = ["/jobs/share.py", *Cuda.model, "--load-ms", str(load_ms), "--steps", str(steps)]
    python = [sys.executable, *(["-E"] if unhooked else [])]
    folders = dict.fromkeys([*_MACHINE, sys.prefix, sys.base_prefix])
    container = {
        "name": "pytorch",
        "image": TRAINING_IMAGE,
        "command": [*python, *share, "--go", "/jobs/share.py"],  # exists, so it begins at once
        "env": [{"name": FOLDERS, "value": ":".join(filter(os.path.isdir, folders))}],
        "resources": {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {NATIVE_GPU: "1"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return _job(name, settings, container, [{"name": "tmp", "emptyDir": {}}])


def _job(
    name: str, settings: Mapping[str, str], container: Object, volumes: list[Object]
) -> Manifest:
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 2}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": name,
            "annotations": {
                f"kfext.dev/gpu-{key.replace('_', '-')}": value for key, value in settings.items()
            },
        },
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": spec}}
            }
        },
    }


@dataclass(frozen=True)
class Team:
    """The jobs of one namespace."""

    bed: Testbed
    namespace: str

    def submit(self, job: Manifest) -> None:
        self.bed.api.create(_JOBS.format(self.namespace), job)

    def delete(self, name: str) -> None:
        """Delete a job, and wait until its pods are gone."""
        self.bed.api.delete(f"{_JOBS.format(self.namespace)}/{name}")
        until(
            lambda: not self._pods(name),
            what=f"the pods of {name} are gone",
            account=self.messages,
            seconds=_STARTED_SECONDS,  # the node may be restarting
        )

    def wait_running(self, name: str) -> Object:
        """Wait until the pod of a job runs, and return it."""

        def running() -> Object | None:
            return next(
                (pod for pod in self._pods(name) if pod["status"]["phase"] == "Running"), None
            )

        return until(running, what=f"{name} runs", account=self.messages, seconds=_STARTED_SECONDS)

    def wait_succeeded(self, name: str) -> None:
        def ended() -> bool:
            job = self.bed.api.get(f"{_JOBS.format(self.namespace)}/{name}")
            conditions = job.get("status", {}).get("conditions", [])
            return any(
                condition["type"] == "Succeeded" and condition["status"] == "True"
                for condition in conditions
            )

        until(ended, what=f"{name} ends", account=self.messages, seconds=TRAINED_SECONDS)

    def jobs(self) -> dict[str, Object]:
        jobs = self.bed.api.get(_JOBS.format(self.namespace))["items"]
        return {job["metadata"]["name"]: job for job in jobs}

    def plan(self, name: str) -> Object:
        """Return the status of a job's TrainingPlan; empty if it has none yet."""
        path = f"/apis/kfext.dev/v1alpha1/namespaces/{self.namespace}/trainingplans"
        plans = self.bed.api.get(path)["items"]
        return next(
            (
                dict(plan.get("status", {}))
                for plan in plans
                if plan["metadata"]["name"] == f"pytorchjob-{name}"
            ),
            {},
        )

    def step_ends(self, name: str) -> list[float]:
        """Return the end time of each step of a job, in seconds by the clock of its node."""
        (pod,) = self._pods(name)
        log = kubectl(self.bed, "logs", "-n", self.namespace, pod["metadata"]["name"])
        return [float(line.partition("at=")[2]) for line in log.splitlines() if "at=" in line]

    def messages(self) -> str:
        """Return the messages of the namespace's TrainingPlans, for the error of a failed wait."""
        path = f"/apis/kfext.dev/v1alpha1/namespaces/{self.namespace}/trainingplans"
        try:
            plans = self.bed.api.get(path)["items"]
        except ApiError as error:
            return str(error)
        shown = [
            (plan["metadata"]["name"], plan.get("status", {}).get("message")) for plan in plans
        ]
        return "\n".join(f"{name}: {message}" for name, message in shown)

    def _pods(self, name: str) -> list[Object]:
        return list(pods_of(self.bed, self.namespace, name).values())

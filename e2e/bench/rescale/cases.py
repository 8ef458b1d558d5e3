"""The cases: a job, its settings of termination and rendezvous, and whether a gang disturbs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from e2e.harness.elastic_jobs import tf_body, torch_body, with_grace, with_policy
from e2e.harness.training import pytorch_job

Object = dict[str, Any]
TRAIN, GANG, GANG_KIND = "train", "gang", "PyTorchJob"
FULL, LEAST = 4, 2
"""The numbers of pods of the job at its full size, one on each node, and at its smallest size."""
CPU = "340m"
DEFAULT_GRACE = 30
TORCHRUN_LAST_CALL = 30
"""How many seconds torchrun waits for more workers by default."""
_TESTBED_GRACE = 2
_CHECKPOINT_STEPS = 300
"""The steps between checkpoints; so many that a checkpoint is seldom due soon by chance."""
_BATCH_SECONDS = {"PyTorchJob": 0.8, "TFJob": 0.3}
"""The seconds of a batch on a single worker, by kind; a PyTorchJob's workers share a batch."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The length of a run. `steps`: of the job, by kind. `parameters`: of the policy `scale`.

    `quiet`: how many seconds the job trains before the gang arrives, so that kfext knows its
    progress, and may change its size again.
    """

    steps: Mapping[str, int]
    gang_steps: int
    quiet: float
    parameters: Mapping[str, float]


PACE = Pace({"PyTorchJob": 1300, "TFJob": 2600}, gang_steps=1200, quiet=75, parameters={})
QUICK_PACE = Pace(
    {"PyTorchJob": 600, "TFJob": 1300},
    gang_steps=100,
    quiet=30,
    parameters={"wait": 3, "idle": 5, "rest": 12},
)


@dataclass(frozen=True, slots=True)
class Case:
    """A set-up.

    `grace`: the termination grace period of a pod, in seconds.
    `last_call`: the rendezvous' last call in seconds, in the job's own elasticPolicy; None means
    that kfext writes the elasticPolicy.
    `listens`: whether the job saves a checkpoint on request.
    `disturbed`: whether the gang arrives.
    """

    title: str
    kind: str = "PyTorchJob"
    grace: int = _TESTBED_GRACE
    last_call: int | None = None
    listens: bool = True
    disturbed: bool = True

    @property
    def pods(self) -> int:
        return FULL if self.kind == "PyTorchJob" else FULL - 1

    @property
    def least(self) -> int:
        return self.pods - (FULL - LEAST)

    def manifest(self, pace: Pace, folder: Path) -> Object:
        """Return its manifest; its checkpoints are in a folder of this machine."""
        arguments = [
            "--steps",
            f"{pace.steps[self.kind]}",
            "--least",
            f"{_BATCH_SECONDS[self.kind]}",
        ]
        arguments += ["--every", f"{_CHECKPOINT_STEPS}", "--print-every", "1"]
        if not self.listens:
            arguments.append("--deaf")
        build = torch_body if self.kind == "PyTorchJob" else tf_body
        sizes = f"{self.least}-{self.pods}"
        body = build(TRAIN, self.pods, cpu=CPU, folder=folder, sizes=sizes, arguments=arguments)
        if self.last_call is not None:
            body = with_policy(body, least=self.least, most=self.pods, last_call=self.last_call)
        return with_grace(body, self.grace)


def gang(pace: Pace) -> Object:
    """Return the gang, which needs all the capacity that the job can release."""
    arguments = ("--model", "cnn", "--steps", str(pace.gang_steps))
    job = pytorch_job(GANG, workers=FULL - LEAST - 1, cpu=CPU, arguments=arguments)
    body: Object = ApiClient().sanitize_for_serialization(job)
    return body


TORCH = Case("torchrun")
TORCH_AGAIN = Case("torchrun again (A/A)")
TORCH_GRACE = Case("torchrun, grace 30 s", grace=DEFAULT_GRACE)
OWN_SETTINGS = Case("torchrun, its own last call of 30 s", last_call=TORCHRUN_LAST_CALL)
DEAF = Case("torchrun, saves only when it likes", listens=False)
TF = Case("TFJob, dynamic workers", kind="TFJob")
TF_GRACE = Case("TFJob, dynamic workers, grace 30 s", kind="TFJob", grace=DEFAULT_GRACE)
UNDISTURBED = {
    "PyTorchJob": Case("torchrun, undisturbed", disturbed=False),
    "TFJob": Case("TFJob, undisturbed", kind="TFJob", disturbed=False),
}
"""The undisturbed case of each kind; the losses of other cases are compared with its loss."""
CASES = (TORCH, TORCH_AGAIN, TORCH_GRACE, OWN_SETTINGS, DEAF, TF, TF_GRACE, *UNDISTURBED.values())
QUICK_CASES = (TORCH, TF, *UNDISTURBED.values())

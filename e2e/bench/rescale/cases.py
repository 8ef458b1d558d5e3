"""What is rescaled: the job, how it ends its pods and meets again, and whether it is disturbed."""

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
"""Pods of the job, one a node; and when it is smallest."""
CPU = "340m"
DEFAULT_GRACE = 30
TORCHRUN_LAST_CALL = 30
"""Seconds that torchrun waits for more workers by default."""
_TESTBED_GRACE = 2
_KEPT_EVERY = 300
"""Steps from one checkpoint to the next, so far apart that the next one is not near by chance."""
_PACE = {"PyTorchJob": 0.8, "TFJob": 0.3}
"""Seconds that a batch takes one worker: of a PyTorchJob a step's, which all workers share."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a run is. `steps`: by kind; `parameters`: of the policy, its defaults if empty.

    `quiet`: seconds that the job trains before the gang comes, so that its size counts as settled
    and its progress is known.
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
    """One set-up.

    `grace`: the seconds that a pod has to end.
    `last_call`: of the job's own elasticPolicy; unset: kfext writes it.
    `listens`: whether the job saves when it is asked to.
    `disturbed`: whether the gang comes.
    """

    title: str
    kind: str = "PyTorchJob"
    grace: int = _TESTBED_GRACE
    last_call: int | None = None
    listens: bool = True
    disturbed: bool = True

    @property
    def pods(self) -> int:
        """Training pods: the parameter server is none."""
        return FULL if self.kind == "PyTorchJob" else FULL - 1

    @property
    def least(self) -> int:
        """Training pods when it is smallest."""
        return self.pods - (FULL - LEAST)

    def manifest(self, pace: Pace, folder: Path) -> Object:
        """Return what is submitted; its checkpoints are in a folder of this machine."""
        arguments = ["--steps", f"{pace.steps[self.kind]}", "--least", f"{_PACE[self.kind]}"]
        arguments += ["--every", f"{_KEPT_EVERY}", "--print-every", "1"]
        if not self.listens:
            arguments.append("--deaf")
        make = torch_body if self.kind == "PyTorchJob" else tf_body
        sizes = f"{self.least}-{self.pods}"
        body = make(TRAIN, self.pods, cpu=CPU, folder=folder, sizes=sizes, arguments=arguments)
        if self.last_call is not None:
            body = with_policy(body, least=self.least, most=self.pods, last_call=self.last_call)
        return with_grace(body, self.grace)


def gang(pace: Pace) -> Object:
    """Return the gang, which needs as much as the job can give."""
    arguments = ("--model", "cnn", "--steps", str(pace.gang_steps))
    made = pytorch_job(GANG, workers=FULL - LEAST - 1, cpu=CPU, arguments=arguments)
    body: Object = ApiClient().sanitize_for_serialization(made)
    return body


TORCH = Case("torchrun")
AGAIN = Case("torchrun again (A/A)")
TORCH_GRACE = Case("torchrun, grace 30 s", grace=DEFAULT_GRACE)
OWN_SETTINGS = Case("torchrun, its own last call of 30 s", last_call=TORCHRUN_LAST_CALL)
DEAF = Case("torchrun, saves only when it likes", listens=False)
TF = Case("TFJob, dynamic workers", kind="TFJob")
TF_GRACE = Case("TFJob, dynamic workers, grace 30 s", kind="TFJob", grace=DEFAULT_GRACE)
UNDISTURBED = {
    "PyTorchJob": Case("torchrun, undisturbed", disturbed=False),
    "TFJob": Case("TFJob, undisturbed", kind="TFJob", disturbed=False),
}
"""What the loss of the others is compared with, by kind."""
CASES = (TORCH, AGAIN, TORCH_GRACE, OWN_SETTINGS, DEAF, TF, TF_GRACE, *UNDISTURBED.values())
QUICK_CASES = (TORCH, TF, *UNDISTURBED.values())

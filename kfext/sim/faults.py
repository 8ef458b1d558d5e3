"""What goes wrong in a model cluster. A fault lasts until it is taken back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kfext.errors import ApiError
from kfext.model.pod import ReplicaKey
from kfext.sim.objects import LiveJob


def _no_refusal(_uid: str, _change: Any) -> ApiError | None:
    return None


def _creates(_job: LiveJob, _key: ReplicaKey) -> bool:
    return True


@dataclass(slots=True)
class Faults:
    """The parts that tests exchange.

    `refusal`: with what error the API server refuses a write of kfext, by the uid of the job or pod
        and the patch; None: it does not.
    `creates`: whether the operator can create a pod of a job.
    `closed`: the nodes to which kube-scheduler binds no pods, although nothing shows why.
    """

    refusal: Callable[[str, Any], ApiError | None] = _no_refusal
    creates: Callable[[LiveJob, ReplicaKey], bool] = _creates
    closed: set[str] = field(default_factory=set)

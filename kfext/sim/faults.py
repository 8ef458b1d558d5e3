"""What goes wrong in a model cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kfext.core.lifecycle.steps import Change
from kfext.errors import ApiError
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.sim.objects import LiveJob, LivePod


@dataclass(slots=True)
class Faults:
    """The faults of this second; without any at first.

    `refusal`: returns the error of the API server for a write of kfext, or None, by the uid of the
        job or pod and the change.
    `creates`: whether the operator can create a pod of a job.
    `resize`: returns why a kubelet does not resize a pod (Deferred, Infeasible or Error), or None.
        The kubelet tries again every 10 s.
    `dies`: whether the controller dies after the next patch of a job, before it writes to pods.
    `closed`: the nodes that kube-scheduler skips, although nothing shows why.
    """

    refusal: Callable[[str, Change], ApiError | None] = lambda _uid, _change: None
    creates: Callable[[LiveJob, ReplicaKey], bool] = lambda _job, _key: True
    resize: Callable[[LivePod], Verdict | None] = lambda _pod: None
    dies: bool = False
    closed: set[str] = field(default_factory=set)

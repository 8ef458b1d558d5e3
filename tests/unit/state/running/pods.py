"""Pods of a job of two types, with the CPU of the container that trains."""

from dataclasses import replace
from typing import Any

from kfext.model.cpu_size import TrainerCpu
from kfext.model.pod import Pod
from tests.builders import job, pod
from tests.unit.state.running.jobs import NODE

OF = job("TFJob", uid="j").worker(4, cpu="20m").ps(1, cpu="20m").build()
REQUEST = 20


def running(
    index: int = 0,
    limit: int | None = None,
    *,
    of: str = "worker",
    request: int = REQUEST,
    given: int | None = None,
    restarts: bool = False,
    allocated: int | None = None,
    **fields: Any,
) -> Pod:
    """A pod that runs with a CPU limit; its uid is such as worker-0."""
    made = pod(OF, of, index, bound=NODE, phase="Running", uid=f"{of}-{index}")
    return replace(made, trainer=TrainerCpu(request, limit, given, restarts, allocated), **fields)

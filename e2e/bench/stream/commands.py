"""What DRAGON has done in the cluster."""

from dataclasses import dataclass
from typing import Any

from e2e.bench.companion.pods import Pods
from e2e.bench.stream.workload import StreamJob
from e2e.harness.jobs import jobs_path
from e2e.testbed.api import ApiError

Object = dict[str, Any]
_CHANGED = (404, 409)
"""The API server's answers for a job or pod that has gone or changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Merge a body into a job, which starts it or changes its size."""

    job: StreamJob
    body: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a pod."""

    pod: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Send a pod to a node."""

    pod: str
    node: str


Command = Resize | Delete | Bind


def carry_out(command: Command, pods: Pods) -> None:
    """Do it in a namespace, unless the job or pod that it is about has gone or changed."""
    api = pods.bed.api
    try:
        match command:
            case Resize(job, body):
                api.patch(jobs_path(pods.namespace, job.kind, job.name), body)
            case Delete(pod):
                api.delete(f"{pods.path}/{pod}")
            case Bind(pod, node):
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}}
                api.create(f"{pods.path}/{pod}/binding", {**body, "target": target})
    except ApiError as error:
        if error.status not in _CHANGED:
            raise

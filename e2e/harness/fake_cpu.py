"""The CPU of pods on fake nodes: a kubelet that resizes pods, and a metrics API with their usage.

kwok does not resize pods, and the testbed of fake nodes has no metrics-server. The controllers'
proxies answer the requests to the metrics API.
"""

import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from e2e.harness.fake_kubelet import in_background
from e2e.harness.faults import Answer, Exchange, Fault
from e2e.harness.kube import Object
from e2e.harness.space import Space

_METRICS = "/apis/metrics.k8s.io/v1beta1"
_POLL_SECONDS = 0.5


@dataclass
class _Metrics(Fault):
    """Answers requests to the metrics API: each pod uses `cores`, and their node the sum."""

    space: str = ""
    pods: Sequence[str] = ()
    cores: float = 0

    async def happen(
        self, exchange: Exchange, send: Callable[[], Awaitable[Answer]], kill: Callable[[], None]
    ) -> Answer:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        sample: Object = {"timestamp": now, "window": "10s"}
        node_metrics = sample | {"usage": _usage(self.cores * len(self.pods))}
        containers = [{"name": "pytorch", "usage": _usage(self.cores)}]
        items = [sample | {"metadata": {"name": p}, "containers": containers} for p in self.pods]
        in_space = f"/namespaces/{self.space}/" in exchange.path
        pod_metrics = {"items": items if in_space else []}
        answer = node_metrics if f"/nodes/{self.space}-" in exchange.path else pod_metrics
        return 200, json.dumps(answer).encode(), "application/json"


def _usage(cores: float) -> dict[str, str]:
    return {"cpu": str(cores), "memory": "1Gi"}


@contextmanager
def fake_cpu(space: Space, *, pods: Sequence[str], cores: float) -> Iterator[None]:
    """Report a usage of `cores` for each pod of `pods` during a `with` block."""

    def allocate(ending: threading.Event) -> None:
        while not ending.wait(_POLL_SECONDS):
            for pod in space.pods():
                if pod["status"].get("phase") == "Running":
                    _allocate(space, pod)

    for controller in (space.kfext.controller, space.kfext.standby):
        metrics = _Metrics(
            lambda exchange: exchange.path.startswith(_METRICS),
            space=space.name,
            pods=pods,
            cores=cores,
        )
        controller.proxy.arm(metrics)
    with in_background(allocate, name="fake-cpu"):
        yield


def _allocate(space: Space, pod: Object) -> None:
    """Report, as a kubelet does, that a pod's requests are allocated."""
    (container,), (main,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
    resources = container["resources"]
    allocated = {"resources": resources, "allocatedResources": resources.get("requests", {})}
    if main | allocated != main:
        path = f"{space.path('pods', pod['metadata']['name'])}/status"
        patch = {"status": {"containerStatuses": [main | allocated]}}
        # A refusal is ignored: the pod may have been deleted.
        space.kube.ask("PATCH", path, patch, kind="application/merge-patch+json")

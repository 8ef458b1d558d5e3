"""Compares kfext's and the API server's verdicts on the same pods and quotas, pod by pod."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from e2e.harness.kube import Kube, Object
from e2e.harness.wait import TooLateError, until
from e2e.testbed.cluster import Testbed
from kfext.core.queue.quota import QuotaView
from kfext.model.charge import pod_charge
from kfext.model.quota import parse_quota

_HARD = {
    "pods": ("1", "3", "6"),
    "count/pods": ("2", "5"),
    "cpu": ("2", "4500m", "0"),
    "requests.cpu": ("2500m", "5"),
    "limits.cpu": ("3", "5"),
    "memory": ("2Gi", "5Gi"),
    "limits.memory": ("3Gi", "6Gi"),
    "requests.ephemeral-storage": ("1Gi", "3Gi"),
    "requests.nvidia.com/gpu": ("0", "2", "4"),
    "requests.hugepages-2Mi": ("4Mi", "8Mi"),
}
_SCOPED = ("pods", "cpu", "requests.cpu", "limits.cpu", "memory", "limits.memory")
"""The resources that a quota with a scope may limit; with the scope BestEffort, only pods."""
_SCOPES = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "PriorityClass")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MAX_QUOTAS = 3


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Both verdicts on a pod; each message is empty if the pod was admitted."""

    pod: Object
    quotas: tuple[Object, ...]
    admitted: bool
    server_message: str
    kfext_message: str

    @property
    def agreed(self) -> bool:
        """Whether both admit the pod, or both refuse it."""
        return self.admitted == (not self.kfext_message)

    def __str__(self) -> str:
        limits = [{**quota["spec"], **quota["status"]} for quota in self.quotas]
        return (
            f"kfext: {self.kfext_message or 'admitted'}; "
            f"API server: {self.server_message or 'admitted'}\n"
            f"  {self.pod['spec']}\n  {limits}"
        )


def compare(testbed: Testbed, *, seed: int, namespaces: int, pods: int) -> list[Verdicts]:
    """Create random pods one by one under random quotas; return both verdicts on each."""
    kube, draw = Kube(testbed), random.Random(seed)
    verdicts: list[Verdicts] = []
    classes = [f"quota-{seed}-{word}" for word in ("high", "low")]
    for name in classes:
        kube.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 0}
        )
    for number in range(namespaces):
        verdicts += _one_namespace(kube, draw, f"quota-{seed}-{number}", classes=classes, pods=pods)
    for name in classes:
        kube.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    return verdicts


def _one_namespace(
    kube: Kube, draw: random.Random, name: str, *, classes: list[str], pods: int
) -> Iterator[Verdicts]:
    kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
    namespace = f"/api/v1/namespaces/{name}"
    until(lambda: kube.find(f"{namespace}/serviceaccounts/default"), what="the account exists")
    for number in range(draw.randrange(1, _MAX_QUOTAS + 1)):
        body = {"metadata": {"name": f"limit-{number}"}, "spec": _quota(draw, classes)}
        kube.create(f"{namespace}/resourcequotas", body)

    def enforced() -> bool:
        quotas = kube.items(f"{namespace}/resourcequotas")
        return all(quota["status"].get("used") for quota in quotas)

    until(enforced, what="the quotas are enforced")
    for number in range(pods):
        pod = {"metadata": {"name": f"pod-{number}"}, "spec": _pod(draw, classes)}
        quotas = kube.items(f"{namespace}/resourcequotas")
        view = QuotaView(tuple(map(parse_quota, quotas)), defaulted=False)
        verdict = view.shortage({pod_charge(pod["spec"]): 1})
        if verdict:
            _wait_refused(kube, f"{namespace}/pods?dryRun=All", pod)
        answer = kube.ask("POST", f"{namespace}/pods", pod)
        if answer.status not in {201, 403}:
            raise AssertionError(f"{answer.status} {answer.message}: {pod['spec']}")
        yield Verdicts(
            pod,
            tuple(quotas),
            admitted=answer.ok,
            server_message="" if answer.ok else answer.message,
            kfext_message=verdict.message if verdict else "",
        )
    kube.delete(namespace)


def _wait_refused(kube: Kube, path: str, pod: Object) -> None:
    """Wait until admission refuses a pod; it may learn of a quota later than this test."""
    with suppress(TooLateError):
        until(lambda: not kube.ask("POST", path, pod).ok, what="the pod is refused")


def _quota(draw: random.Random, classes: list[str]) -> Object:
    scope = draw.choice((*_SCOPES, "", "", ""))
    allowed = ("pods",) if scope == "BestEffort" else _SCOPED if scope else tuple(_HARD)
    keys = draw.sample(allowed, draw.randrange(1, min(3, len(allowed)) + 1))
    spec: Object = {"hard": {key: draw.choice(_HARD[key]) for key in keys}}
    if scope == "PriorityClass":
        operator = draw.choice(_OPERATORS)
        values = draw.sample(classes, draw.choice((1, 2))) if operator.endswith("In") else []
        line = {"scopeName": scope, "operator": operator, "values": values}
        spec["scopeSelector"] = {"matchExpressions": [line]}
    elif scope:
        spec["scopes"] = [scope]
    return spec


def _pod(draw: random.Random, classes: list[str]) -> Object:
    spec: Object = {
        "containers": [_container(draw, f"main-{n}") for n in range(draw.choice((1, 1, 2)))],
        "initContainers": [
            {**_container(draw, f"init-{n}"), **draw.choice(({}, {"restartPolicy": "Always"}))}
            for n in range(draw.choice((0, 0, 0, 1, 2)))
        ],
    }
    if draw.randrange(4) == 0:
        spec["activeDeadlineSeconds"] = 3600
    if draw.randrange(3) == 0:
        spec["priorityClassName"] = draw.choice(classes)
    if draw.randrange(6) == 0:  # pod-level resources, so its containers need none
        spec["containers"] = [{"name": "main", "image": "trainer"}]
        spec["initContainers"] = []
        spec["resources"] = {draw.choice(("requests", "limits")): {"cpu": "300m", "memory": "64Mi"}}
    return spec


def _container(draw: random.Random, name: str) -> Object:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if draw.randrange(6):
        amounts = {
            "cpu": f"{draw.randrange(7) * 100}m",
            "memory": f"{draw.randrange(1, 6) * 128}Mi",
        }
        for key in draw.sample(tuple(amounts), draw.choice((1, 2, 2, 2))):
            draw.choice((requests, limits, limits))[key] = amounts[key]
    if draw.randrange(6) == 0:
        draw.choice((requests, limits))["ephemeral-storage"] = f"{draw.randrange(1, 3)}Gi"
    if draw.randrange(5) == 0:
        limits["nvidia.com/gpu"] = str(draw.randrange(1, 3))
    if draw.randrange(10) == 0:
        limits.update({"memory": "256Mi", "hugepages-2Mi": "2Mi"})
        requests.pop("memory", None)
    return {"name": name, "image": "trainer", "resources": {"requests": requests, "limits": limits}}

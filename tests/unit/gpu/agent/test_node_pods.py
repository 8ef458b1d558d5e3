import json
from dataclasses import asdict
from typing import Any, cast

import pytest

from kfext import names
from kfext.gpu.agent.node_pods import NodePods, _decode
from kfext.kube.client import Client
from kfext.kube.informer import Key
from kfext.model.gpu import GpuShare

SHARE = GpuShare(50, 2**30, high=True, loss_budget=0.1, min_share=0.3)


def pod(annotations: dict[str, str]) -> bytes:
    return json.dumps({"metadata": {"uid": "u", "annotations": annotations}}).encode()


TERMS: dict[str, tuple[dict[str, str], GpuShare | None]] = {
    "what the controller has written": (
        {names.GPU_TERMS: json.dumps(asdict(SHARE))},
        SHARE,
    ),
    "not what a user asks for": ({names.GPU_SHARE: "0.9", names.GPU_PRIORITY: "high"}, None),
    "nothing": ({}, None),
    "no JSON": ({names.GPU_TERMS: "{"}, None),
    "more text than terms have": ({names.GPU_TERMS: " " * 2000 + json.dumps(asdict(SHARE))}, None),
}


@pytest.mark.parametrize(("annotations", "want"), TERMS.values(), ids=TERMS)
def test_the_terms_of_a_pod(annotations: dict[str, str], want: Any) -> None:
    found = _decode(pod(annotations))
    assert (found.uid, found.terms) == ("u", want)


def shown(name: str, *, namespace: str = "team", shares: bool = True, **more: Any) -> bytes:
    annotations = {names.GPU_TERMS: json.dumps(asdict(SHARE))} if shares else {}
    metadata = {"uid": name, "name": name, "namespace": namespace, "annotations": annotations}
    deleted = more.pop("deleted", None)
    metadata |= {"deletionTimestamp": deleted} if deleted else {}
    return json.dumps({"metadata": metadata, "status": more}).encode()


RUNNING: dict[str, tuple[bytes, bool]] = {
    "a pod that shares and runs": (shown("a", phase="Running"), True),
    "a reservation": (
        shown("a", namespace=names.GPU_NAMESPACE, shares=False, phase="Running"),
        True,
    ),
    "a pod that shares nothing": (shown("a", shares=False, phase="Running"), False),
    "a pod that kubelet may not have taken yet": (shown("a", phase="Pending"), False),
    "a pod that has ended": (shown("a", phase="Succeeded"), False),
    "a pod that is about to go": (
        shown("a", phase="Running", deleted="2026-11-25T00:00:00Z"),
        False,
    ),
}


@pytest.mark.parametrize(("raw", "runs"), RUNNING.values(), ids=RUNNING)
async def test_which_pods_kubelet_has_to_list(raw: bytes, *, runs: bool) -> None:
    pods = NodePods(cast(Client, None), node="node-1")
    found = _decode(raw)
    pods._pods.store.put(Key(found.uid, *found.pod), found)
    assert (found.pod in pods.running()) is runs

import json
from dataclasses import asdict
from typing import Any

import pytest

from kfext import names
from kfext.agent.node_pods import _decode
from kfext.agent.sharer import Terms
from kfext.model.gpu_share import GpuShare

SHARE = GpuShare(50, 80, 2**30, high=True, loss_budget=0.1, min_share=0.3)


def pod(annotations: dict[str, str]) -> bytes:
    return json.dumps({"metadata": {"uid": "u", "annotations": annotations}}).encode()


TERMS: dict[str, tuple[dict[str, str], Terms | None]] = {
    "what the controller has written": (
        {names.GPU_TERMS: json.dumps(asdict(SHARE))},
        Terms(high=True, share=0.5, limit=0.8, budget=0.1, minimum=0.3, memory=2**30),
    ),
    "one that gets no hook": (
        {names.GPU_TERMS: json.dumps(asdict(GpuShare(50, gated=False)))},
        Terms(high=False, share=0.5, hooked=False),
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

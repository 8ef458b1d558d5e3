"""The patch that resizes a pod: nothing but the CPU of one container, of exactly that pod."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.core.patches.resize import resize
from kfext.model.cpu_size import CpuSize, TrainerCpu
from tests.builders import job, pod

POD = pod(job().worker(cpu="1").build(), "worker", 0, version=7)
SIZES: dict[str, tuple[TrainerCpu | None, CpuSize, dict[str, Any]]] = {
    "the limit alone": (TrainerCpu(20, None), CpuSize(150), {"limits": {"cpu": "150m"}}),
    "whole cores": (TrainerCpu(20, 900), CpuSize(2000), {"limits": {"cpu": "2000m"}}),
    "the request with it": (
        TrainerCpu(900, 900), CpuSize(500, 500),
        {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
    ),
    "of a pod that requests none, which stays so": (
        TrainerCpu(0, None), CpuSize(500), {"limits": {"cpu": "500m"}, "requests": {"cpu": "0m"}}
    ),
    "of a pod that is not known to train": (None, CpuSize(500), {"limits": {"cpu": "500m"}}),
}  # fmt: skip


@pytest.mark.parametrize(("now", "size", "want"), SIZES.values(), ids=SIZES)
def test_only_the_cpu_of_the_container_that_trains_is_written(
    now: TrainerCpu | None, size: CpuSize, want: dict[str, Any]
) -> None:
    assert resize(replace(POD, trainer=now), size, container="pytorch")["spec"] == {
        "containers": [{"name": "pytorch", "resources": want}]
    }


def test_a_pod_that_was_edited_or_replaced_meanwhile_is_a_conflict() -> None:
    body = resize(POD, CpuSize(150), container="pytorch")
    assert body["metadata"] == {"resourceVersion": "7"}

"""Why a job cannot have its parts of GPUs, by what its object shows."""

from typing import Any

import pytest

from kfext import names
from kfext.core.queue.unshareable import why_unshareable
from kfext.core.settings.resolve import resolve
from kfext.core.settings.shares import as_sharing
from kfext.model.policy import TrainingPolicy
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing

PART: dict[str, Any] = {"kfext.dev/gpu-1": "50"}
JOBS: dict[str, tuple[JobBuilder, str]] = {
    "a low job of one pod": (sharing(), ""),
    "a high job of several": (sharing(replicas=3, priority="high"), ""),
    "a low job of several": (sharing(replicas=2), "a job of 2 pods cannot have low priority yet"),
    "Kueue starts it": (
        sharing().queued_by_kueue(),
        f"Kueue starts this job (label {names.KUEUE_QUEUE})",
    ),
    "Kueue starts it, and its GPUs are its own": (job().worker(gpus=1).queued_by_kueue(), ""),
    "another type has whole GPUs": (sharing(priority="high").master(gpus=2), ""),
    "its template names a node": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=1, spec={"nodeName": "n"}),
        "the Worker template names its node (nodeName: 'n')",
    ),
    "it was edited to have two GPUs": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=2),
        "the Worker template asks for nvidia.com/gpu: 2 in limits and 2 in requests; allowed: ",
    ),
    "it was edited to have none": (
        job().annotated(names.GPU_SHARE, "0.5").worker(),
        "the job has no GPUs",
    ),
    "it was edited to ask for a part itself": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=1, **PART),
        "the Worker template asks for kfext.dev/gpu-1 itself",
    ),
    "a template without a share names a node": (
        sharing(priority="high").master(gpus=2, spec={"nodeName": "n"}),
        "",
    ),
}


@pytest.mark.parametrize(("made", "why"), JOBS.values(), ids=JOBS)
def test_why_a_job_cannot_share_gpus(made: JobBuilder, why: str) -> None:
    found = as_sharing(made.suspended().build(), None)
    said = why_unshareable(found, resolve(found.annotations, {}, TrainingPolicy()))
    assert said.startswith(why)
    assert bool(said) == bool(why)

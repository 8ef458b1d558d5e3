"""Why a job cannot have its parts of GPUs, by what its object shows."""

import pytest

from kfext import names
from kfext.core.queue.unshareable import why_unshareable
from kfext.core.settings.gpu_shares import as_sharing
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing

JOBS: dict[str, tuple[JobBuilder, str]] = {
    "a low job of one pod": (sharing(), ""),
    "a high job of several": (sharing(replicas=3, priority="high"), ""),
    "a low job of several": (sharing(replicas=2), "a job of 2 pods cannot have low priority yet"),
    "Kueue starts it": (
        sharing().queued_by_kueue(),
        f"Kueue starts this job (label {names.KUEUE_QUEUE})",
    ),
    "Kueue starts it, and its GPUs are its own": (job().worker(gpus=1).queued_by_kueue(), ""),
    "a type with low priority and no replicas beside a high one": (
        sharing(replicas=2, priority="high")
        .group("Master", 0, gpus=1)
        .annotated(f"{names.GPU_PRIORITY}.master", "low"),
        "",
    ),
    "its template names a node": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=1, spec={"nodeName": "n"}),
        "the Worker template names its node (nodeName: 'n')",
    ),
    "a template without a share names a node": (
        sharing(priority="high").master(spec={"nodeName": "n"}),
        "",
    ),
}


@pytest.mark.parametrize(("made", "why"), JOBS.values(), ids=JOBS)
def test_why_a_job_cannot_share_gpus(made: JobBuilder, why: str) -> None:
    found = as_sharing(made.suspended().build(), None)
    shares = {one.type.lower(): one.share for one in found.groups if one.share}
    said = why_unshareable(found, shares)
    assert said.startswith(why)
    assert bool(said) == bool(why)

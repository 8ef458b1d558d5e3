"""What was edited of the parts of GPUs of a job that runs."""

import pytest

from kfext.core.settings.edited_shares import edited_shares
from kfext.core.settings.gpu_shares import as_sharing
from kfext.model.gpu_share import GpuShare
from kfext.model.plan import Plan
from kfext.names import GPU_SHARE, RELEASED
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing

HALF = GpuShare(50)
EDITS: dict[str, tuple[dict[str, GpuShare], JobBuilder, list[str]]] = {
    "nothing": ({"worker": HALF}, sharing("0.5"), []),
    "a default is written out": (
        {"worker": HALF},
        sharing("0.5", priority="low", min_share="0.2"),
        [],
    ),
    "the share": (
        {"worker": HALF},
        sharing("0.9"),
        ["kfext.dev/gpu-share of worker is 0.5 and was edited to 0.9"],
    ),
    "memory, for the first time": (
        {"worker": HALF},
        sharing("0.5", memory="1536Mi"),
        ["kfext.dev/gpu-memory of worker is that of its share and was edited to 1.5 Gi memory"],
    ),
    "everything else": (
        {"worker": HALF},
        sharing(
            "0.5",
            priority="high",
            loss_budget="0.1",
            min_share="0.3",
        ),
        [
            "kfext.dev/gpu-priority of worker is low and was edited to high",
            "kfext.dev/gpu-loss-budget of worker is 0.05 and was edited to 0.1",
            "kfext.dev/gpu-min-share of worker is 0.2 and was edited to 0.3",
        ],
    ),
    "it is to have a whole GPU again": (
        {"worker": HALF},
        job().worker(1, gpus=1),
        ["kfext.dev/gpu-share of worker is 0.5 and was edited to 1 (a whole GPU)"],
    ),
    "it has a whole GPU": (
        {},
        sharing("0.5"),
        ["kfext.dev/gpu-share of worker is 1 (a whole GPU) and was edited to 0.5"],
    ),
    "one of two types, which started with shares of their own": (
        {"worker": HALF, "master": GpuShare(25)},
        sharing("0.5").master(gpus=1),
        ["kfext.dev/gpu-share of master is 0.25 and was edited to 0.5"],
    ),
    "a type without GPUs": ({"worker": HALF}, sharing("0.5").master(cpu="1"), []),
    "a malformed value: the last good one holds": ({"worker": HALF}, sharing("2"), []),
}


def said(made: JobBuilder, plan: Plan | None) -> str:
    for spec in made.raw["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["metadata"] = {"annotations": {GPU_SHARE: "0.5"}}
    return edited_shares(as_sharing(made.build(), plan), plan)


@pytest.mark.parametrize(("has", "made", "want"), EDITS.values(), ids=EDITS)
def test_what_was_edited(has: dict[str, GpuShare], made: JobBuilder, want: list[str]) -> None:
    end = ["edits hold from the next start"] if want else []
    assert said(made, Plan("uid-1", 1, shares=has)) == "; ".join([*want, *end])


NOT_RUNNING: dict[str, tuple[JobBuilder, Plan | None]] = {
    "it has no plan": (sharing("0.9"), None),
    "it is in the queue": (sharing("0.9").held(), Plan("uid-1", 1, shares={"worker": HALF})),
    "it has ended": (
        sharing("0.9").condition("Succeeded"),
        Plan("uid-1", 1, shares={"worker": HALF}),
    ),
    "it was released": (
        sharing("0.9").annotated(RELEASED, "ByUser"),
        Plan("uid-1", 1, shares={"worker": HALF}),
    ),
}


@pytest.mark.parametrize(("made", "plan"), NOT_RUNNING.values(), ids=NOT_RUNNING)
def test_nothing_is_said_of_a_job_that_does_not_run(made: JobBuilder, plan: Plan | None) -> None:
    assert said(made, plan) == ""

"""The GPU share of each replica, obstacles to sharing, and edits of shares."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.cards import as_sharing, as_template, as_written, why_unshareable
from kfext.core.lifecycle.cards import edited_shares
from kfext.core.settings.resolve import resolve
from kfext.model.gpu import GpuShare, cards_counted_by, decode_share, encode_share
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import TrainingPolicy
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing

SHARES: dict[str, tuple[JobBuilder, dict[str, GpuShare]]] = {
    "nothing is set": (job().worker(2, gpus=1), {}),
    "half a GPU for each worker": (sharing("0.5", replicas=2), {"worker": GpuShare(50)}),
    "each type that requests one GPU": (
        sharing("0.5").master(gpus=1),
        {"master": GpuShare(50), "worker": GpuShare(50)},
    ),
    "a type that requests no GPU": (sharing("0.5").master(cpu="1"), {"worker": GpuShare(50)}),
    "a type that requests two GPUs": (sharing("0.5").master(gpus=2), {"worker": GpuShare(50)}),
    "everything that can be set": (
        sharing(
            "0.5", priority="high", memory="1Gi", loss_budget="0.1", min_share="0.3"
        ),
        {"worker": GpuShare(50, 2**30, True, 0.1, 0.3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("builder", "want"), SHARES.values(), ids=SHARES)
def test_the_shares_of_a_job(builder: JobBuilder, want: dict[str, GpuShare]) -> None:
    seen = as_sharing(builder.suspended().build(), None)
    assert {group.type.lower(): group.share for group in seen.groups if group.share} == want
    assert seen.shares_gpus == bool(want)


def test_a_sharing_job_requests_cards_instead_of_gpus() -> None:
    seen = as_sharing(sharing("0.5", replicas=2).suspended().build(), None)
    (group,) = seen.groups
    assert names.NATIVE_GPU not in group.requests
    assert [n for name, n in group.requests.items() if cards_counted_by(name)] == [1]
    assert as_sharing(seen, None) == seen, "once is enough"
    assert as_written(seen).groups[0].requests[names.NATIVE_GPU] == 1


def test_shares_and_whole_gpus_of_one_job_are_both_counted() -> None:
    builder = job("TFJob").worker(gpus=1).ps(gpus=3).annotated(names.GPU_SHARE, "0.5")
    groups = {group.type: group for group in as_sharing(builder.suspended().build(), None).groups}
    counts = {
        type_: sorted(n for name, n in group.requests.items() if cards_counted_by(name))
        for type_, group in groups.items()
    }
    assert counts == {"Worker": [1, 1], "PS": [3]}


def test_the_planned_share_counts_while_a_job_runs() -> None:
    plan = Plan("uid-1", 1, shares={"worker": GpuShare(30)}, slots={ReplicaKey("worker", 0): 0})
    edited = sharing("0.9").build()
    assert as_sharing(edited, plan).groups[0].share == GpuShare(30)
    assert as_sharing(sharing("0.9").suspended().build(), plan).groups[0].share == GpuShare(90)


def test_a_released_job_has_whole_gpus() -> None:
    assert not as_sharing(sharing("0.5").suspended().released().build(), None).shares_gpus


def test_the_template_of_a_pod_with_a_share_has_a_whole_gpu() -> None:
    assert as_template({"cpu": 1, "kfext.dev/gpu-0": 50}) == {"cpu": 1, names.NATIVE_GPU: 1}


@given(st.integers(1, 100))
def test_terms_that_admission_accepts_are_the_same_after_a_plan(units: int) -> None:
    written = {names.GPU_SHARE: f"{units / 100:g}"}
    share = resolve(written, {}, TrainingPolicy(name="none")).share
    assert share == GpuShare(units)
    assert decode_share(encode_share(share)) == share


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
        ["kfext.dev/gpu-memory of worker is in proportion and was edited to 1.5 Gi memory"],
    ),
    "all other terms": (
        {"worker": HALF},
        sharing("0.5", priority="high", loss_budget="0.1", min_share="0.3"),
        [
            "kfext.dev/gpu-priority of worker is low and was edited to high",
            "kfext.dev/gpu-loss-budget of worker is 0.05 and was edited to 0.1",
            "kfext.dev/gpu-min-share of worker is 0.2 and was edited to 0.3",
        ],
    ),
    "the share is removed": (
        {"worker": HALF},
        job().worker(1, gpus=1),
        ["kfext.dev/gpu-share of worker is 0.5 and was edited to 1 (a whole GPU)"],
    ),
    "a share is added to a whole GPU": (
        {},
        sharing("0.5"),
        ["kfext.dev/gpu-share of worker is 1 (a whole GPU) and was edited to 0.5"],
    ),
    "one of two types that started with different shares": (
        {"worker": HALF, "master": GpuShare(25)},
        sharing("0.5").master(gpus=1),
        ["kfext.dev/gpu-share of master is 0.25 and was edited to 0.5"],
    ),
    "a type without GPUs": ({"worker": HALF}, sharing("0.5").master(cpu="1"), []),
    "a malformed value: the last good value holds": ({"worker": HALF}, sharing("2"), []),
}


def edits_of(builder: JobBuilder, plan: Plan | None) -> str:
    for spec in builder.raw["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["metadata"] = {"annotations": {names.GPU_SHARE: "0.5"}}
    return edited_shares(as_sharing(builder.build(), plan), plan)


@pytest.mark.parametrize(("planned", "builder", "want"), EDITS.values(), ids=EDITS)
def test_the_edits_that_are_shown(
    planned: dict[str, GpuShare], builder: JobBuilder, want: list[str]
) -> None:
    end = ["edits hold from the next start"] if want else []
    assert edits_of(builder, Plan("uid-1", 1, shares=planned)) == "; ".join([*want, *end])


NOT_RUNNING: dict[str, tuple[JobBuilder, Plan | None]] = {
    "it has no plan": (sharing("0.9"), None),
    "it is in the queue": (sharing("0.9").held(), Plan("uid-1", 1, shares={"worker": HALF})),
    "it has ended": (
        sharing("0.9").condition("Succeeded"),
        Plan("uid-1", 1, shares={"worker": HALF}),
    ),
    "it was released": (
        sharing("0.9").annotated(names.RELEASED, "ByUser"),
        Plan("uid-1", 1, shares={"worker": HALF}),
    ),
}


@pytest.mark.parametrize(("builder", "plan"), NOT_RUNNING.values(), ids=NOT_RUNNING)
def test_no_edit_is_shown_for_a_waiting_job(builder: JobBuilder, plan: Plan | None) -> None:
    assert edits_of(builder, plan) == ""


UNITS: dict[str, Any] = {"kfext.dev/gpu-1": "50"}
JOBS: dict[str, tuple[JobBuilder, str]] = {
    "a low job of one pod": (sharing(), ""),
    "a high job of three pods": (sharing(replicas=3, priority="high"), ""),
    "a low job of two pods": (sharing(replicas=2), "a job of 2 pods cannot have low priority yet"),
    "Kueue starts it": (
        sharing().queued_by_kueue(),
        "Kueue starts this job, and kfext shares the GPUs of jobs that it starts itself",
    ),
    "another type has whole GPUs": (sharing(priority="high").master(gpus=2), ""),
    "its template names a node": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=1, spec={"nodeName": "n"}),
        "the Worker template names its node (nodeName: 'n')",
    ),
    "it was edited to have two GPUs": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=2),
        "the Worker template asks for nvidia.com/gpu: 2 in limits and 2 in requests; allowed: ",
    ),
    "it was edited to have no GPU": (
        job().annotated(names.GPU_SHARE, "0.5").worker(),
        "the job has no GPUs",
    ),
    "it was edited to request units itself": (
        job().annotated(names.GPU_SHARE, "0.5").worker(gpus=1, **UNITS),
        "the Worker template asks for kfext.dev/gpu-1 itself",
    ),
    "a template without a share names a node": (
        sharing(priority="high").master(gpus=2, spec={"nodeName": "n"}),
        "",
    ),
}


@pytest.mark.parametrize(("builder", "why"), JOBS.values(), ids=JOBS)
def test_the_reason_why_a_job_cannot_share_gpus(builder: JobBuilder, why: str) -> None:
    seen = as_sharing(builder.suspended().build(), None)
    result = why_unshareable(seen, resolve(seen.annotations, {}, TrainingPolicy()))
    assert result.startswith(why)
    assert bool(result) == bool(why)

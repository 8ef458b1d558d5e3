import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.settings.gpu_shares import (
    as_sharing,
    as_template,
    as_written,
    share_of,
    shares_by,
)
from kfext.core.settings.gpu_values import TYPES
from kfext.core.settings.of_job import gpu_settings_of
from kfext.core.settings.resolve import resolve
from kfext.model.gpu_share import GpuShare, counted, decode_share, encode_share
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import TrainingPolicy
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing

SHARE = names.GPU_SHARE
SUFFIXES = ("", *(f".{kind}" for kind in TYPES))
SHARES: dict[str, tuple[JobBuilder, dict[str, GpuShare]]] = {
    "nothing is set": (job().worker(2, gpus=1), {}),
    "half a GPU for each worker": (sharing("0.5", replicas=2), {"worker": GpuShare(50)}),
    "for one type alone": (
        job().master(gpus=1).worker(2, gpus=1).annotated(f"{SHARE}.master", "0.25"),
        {"master": GpuShare(25)},
    ),
    "a type has its own": (
        sharing("0.5").master(gpus=1).annotated(f"{SHARE}.master", "0.25"),
        {"master": GpuShare(25), "worker": GpuShare(50)},
    ),
    "a type that asks for no GPU": (sharing("0.5").master(cpu="1"), {"worker": GpuShare(50)}),
    "a type that asks for two": (
        sharing("0.5").master(gpus=2),
        {"worker": GpuShare(50)},
    ),
    "everything that can be set": (
        sharing(
            "0.5", priority="high", limit="0.8", memory="1Gi", loss_budget="0.1", min_share="0.3"
        ).annotated(names.GPU_ISOLATION, "none"),
        {"worker": GpuShare(50, 80, 2**30, True, 0.1, 0.3, False)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "want"), SHARES.values(), ids=SHARES)
def test_the_shares_of_a_job(made: JobBuilder, want: dict[str, GpuShare]) -> None:
    built = made.suspended().build()
    assert shares_by(gpu_settings_of(built), built) == want
    seen = as_sharing(built, None)
    assert {group.type.lower(): group.share for group in seen.groups if group.share} == want
    assert seen.shares_gpus == bool(want)


def test_a_job_that_shares_requests_cards_instead_of_gpus() -> None:
    seen = as_sharing(sharing("0.5", replicas=2).suspended().build(), None)
    (group,) = seen.groups
    assert names.NATIVE_GPU not in group.requests
    assert [n for name, n in group.requests.items() if counted(name)] == [1]
    assert as_sharing(seen, None) == seen, "once is enough"
    assert as_written(seen).groups[0].requests[names.NATIVE_GPU] == 1


def test_each_combination_of_needs_is_counted() -> None:
    made = job("TFJob").worker(gpus=1).group("Chief", gpus=1).ps(gpus=3)
    made.annotated(SHARE, "0.5").annotated(f"{SHARE}.chief", "0.25")
    groups = {group.type: group for group in as_sharing(made.suspended().build(), None).groups}
    counts = {
        type_: sorted(n for name, n in group.requests.items() if counted(name))
        for type_, group in groups.items()
    }
    # Its own and that of both, each also with the whole GPUs of another type.
    assert counts["Chief"] == counts["Worker"] == [1, 1, 1, 1]
    assert counts["PS"] == [3, 3, 3]


def test_while_a_job_runs_what_was_planned_counts() -> None:
    plan = Plan("uid-1", 1, shares={"worker": GpuShare(30)}, slots={ReplicaKey("worker", 0): 0})
    edited = sharing("0.9").build()
    assert as_sharing(edited, plan).groups[0].share == GpuShare(30)
    assert as_sharing(sharing("0.9").suspended().build(), plan).groups[0].share == GpuShare(90)


def test_a_released_job_has_whole_gpus() -> None:
    assert not as_sharing(sharing("0.5").suspended().released().build(), None).shares_gpus


def test_a_pod_with_a_part_was_to_have_a_gpu() -> None:
    assert as_template({"cpu": 1, "kfext.dev/gpu-0": 50}) == {"cpu": 1, names.NATIVE_GPU: 1}
    assert as_template({"cpu": 1}) == {"cpu": 1}


SHARES_OF_TYPES = st.dictionaries(
    st.sampled_from([f"{key}{suffix}" for key in (SHARE, names.GPU_LIMIT) for suffix in SUFFIXES]),
    st.integers(1, 100).map(lambda units: f"{units / 100:g}"),
)


@given(SHARES_OF_TYPES)
def test_what_admission_accepts_is_the_same_once_it_was_written_in_a_plan(
    written: dict[str, str],
) -> None:
    found = resolve(written, {}, TrainingPolicy(name="none"))
    if found.errors:
        return
    for kind in TYPES:
        if share := share_of(found.gpu, kind):
            assert decode_share(encode_share(share)) == share

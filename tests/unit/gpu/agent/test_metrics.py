from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from kfext.gpu.agent import metrics
from kfext.gpu.agent.metrics import LABELS
from kfext.gpu.agent.report import SharerReport, SlotReport
from kfext.gpu.device.inventory import Card

HIGH = SharerReport("team", "high", True, 0.5, memory=3, used=0.75, beacon_age=0.25)
LOW = SharerReport(
    *("team", "low", False, 0.25),
    memory=2,
    planned=2**30,
    used=0.125,
    waited=4.0,
    intruded=1.5,
    micro_step=0.005,
    longest=0.08,
    coarse=True,
    infeasible=True,
    times_shut=2,
    times_evicted=1,
)
SLOTS = [SlotReport(0, "GPU-1", 0.03, (HIGH, LOW)), SlotReport(1, None, None, ())]
CARDS = [
    Card("GPU-1", 16, utilisation=0.8, power=412.5, errors={31: 2, 79: 1}),
    Card("GPU-2", 16, "it is split by MIG"),
]


def registry(*slots: SlotReport) -> CollectorRegistry:
    return metrics.registry(lambda: slots or SLOTS, lambda: CARDS)


def shown(pod: str, *slots: SlotReport) -> dict[str, float]:
    """Return the samples of one pod, by the name of the metric, with the label `kind` appended."""
    families = registry(*slots).collect()
    samples = [sample for family in families for sample in family.samples]
    return {
        sample.name + sample.labels.get("kind", ""): sample.value
        for sample in samples
        if sample.labels.get("pod_name") == pod and sample.labels.keys() >= set(LABELS)
    }


def test_the_series_of_a_low_priority_pod() -> None:
    assert shown("low") == {
        "kfext_gpu_share_ratio": 0.25,
        "kfext_gpu_low_share_ratio": 0.125,
        "kfext_gpu_micro_step_seconds": 0.005,
        "kfext_gpu_longest_micro_step_seconds": 0.08,
        "kfext_gpu_memory_used_bytes": 2,
        "kfext_gpu_memory_limit_bytes": 2**30,
        "kfext_gpu_guarantee_infeasible": 1,
        "kfext_gpu_gate_wait_seconds_total": 4.0,
        "kfext_gpu_overlap_seconds_total": 1.5,
        "kfext_gpu_preemptions_totalshut": 2,
        "kfext_gpu_preemptions_totalevict": 1,
    }


def test_the_series_of_a_high_priority_pod() -> None:
    assert shown("high") == {
        "kfext_gpu_share_ratio": 0.5,
        "kfext_gpu_high_busy_ratio": 0.75,
        "kfext_gpu_memory_used_bytes": 3,
        "kfext_gpu_memory_limit_bytes": 8 * 2**20,
        "kfext_gpu_beacon_age_seconds": 0.25,
    }


def test_a_pod_without_a_hook_lacks_the_series_that_need_a_hook() -> None:
    unhooked = tuple(SharerReport("team", name, name == "high", 0.5) for name in ("high", "low"))
    unknown = {"kfext_gpu_high_busy_ratio", "kfext_gpu_low_share_ratio"}
    for pod in ("high", "low"):
        result = shown(pod, SlotReport(0, "GPU-1", None, unhooked))
        assert result.keys().isdisjoint({*unknown, "kfext_gpu_memory_used_bytes"})
        assert result["kfext_gpu_share_ratio"] == 0.5


@pytest.mark.parametrize(("slot", "loss", "info"), [("0", 0.03, 1), ("1", None, None)])
def test_the_series_of_a_slot(slot: str, loss: float | None, info: float | None) -> None:
    samples = registry()
    assert samples.get_sample_value("kfext_gpu_high_loss_ratio", {"slot": slot}) == loss
    labels = {"slot": slot, "uuid": "GPU-1"}
    assert samples.get_sample_value("kfext_gpu_slot_info", labels) == info


SHARERS: dict[str, tuple[tuple[SharerReport, ...], float | None]] = {
    "a low-priority job uses half of the remaining quarter": ((HIGH, LOW), 0.5),
    "two low-priority jobs use all of it": ((HIGH, LOW, replace(LOW, pod="other")), 1.0),
    "there is no low-priority job": ((HIGH,), None),
    "there is no high-priority job": ((LOW,), None),
    "the high-priority job has no hook": ((replace(HIGH, used=None), LOW), None),
    "a low-priority job has no hook": ((HIGH, LOW, replace(LOW, used=None)), None),
    "no time remains": ((replace(HIGH, used=1.0), LOW), None),
}


@pytest.mark.parametrize(("sharers", "want"), SHARERS.values(), ids=SHARERS)
def test_the_harvest_efficiency_is_the_used_fraction_of_the_remaining_time(
    sharers: tuple[SharerReport, ...], want: float | None
) -> None:
    samples = registry(SlotReport(0, "GPU-1", None, sharers))
    assert samples.get_sample_value("kfext_gpu_harvest_efficiency", {"slot": "0"}) == want


def test_a_pod_on_a_card_of_unknown_size_has_no_memory_limit() -> None:
    samples = registry(SlotReport(0, "GPU-3", None, (HIGH,)))
    labels = dict(zip(LABELS, ("0", "team", "high"), strict=True))
    assert samples.get_sample_value("kfext_gpu_memory_limit_bytes", labels) is None


CARD_SERIES: dict[str, tuple[float | None, float | None]] = {
    "kfext_gpu_card_utilisation_ratio": (0.8, None),
    "kfext_gpu_card_power_watts": (412.5, None),
}


@pytest.mark.parametrize(("name", "want"), CARD_SERIES.items())
def test_the_series_of_a_card(name: str, want: tuple[float | None, ...]) -> None:
    samples = registry()
    assert tuple(samples.get_sample_value(name, {"uuid": card.uuid}) for card in CARDS) == want


@pytest.mark.parametrize(("xid", "times"), [("31", 2), ("79", 1), ("13", None)])
def test_the_errors_of_a_card_by_xid(xid: str, times: float | None) -> None:
    labels = {"uuid": "GPU-1", "xid": xid}
    assert registry().get_sample_value("kfext_gpu_xid_errors_total", labels) == times

import pytest

from kfext.agent.metrics import LABELS, Metrics
from kfext.agent.report import CardReport, SharerReport

HIGH = SharerReport("team", "high", True, 0.5, memory=3, harvest=0.75, beacon_age=0.25)
LOW = SharerReport(
    *("team", "low", False, 0.25),
    memory=2,
    harvest=0.125,
    waited=4.0,
    intruded=1.5,
    micro_step=0.005,
    infeasible=True,
    times_shut=2,
    evict=True,
)
CARDS = [CardReport(0, "GPU-1", 0.03, (HIGH, LOW)), CardReport(1, None, None, ())]


def shown(pod: str) -> dict[str, float]:
    """Return the samples of one pod, by name, and by kind where there is one."""
    families = Metrics(lambda: CARDS).registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return {
        one.name + one.labels.get("kind", ""): one.value
        for one in samples
        if one.labels.get("pod_name") == pod and one.labels.keys() >= set(LABELS)
    }


def test_the_series_of_a_pod_of_low_priority() -> None:
    assert shown("low") == {
        "kfext_gpu_share_ratio": 0.25,
        "kfext_gpu_low_share_ratio": 0.125,
        "kfext_gpu_micro_step_seconds": 0.005,
        "kfext_gpu_memory_used_bytes": 2,
        "kfext_gpu_guarantee_infeasible": 1,
        "kfext_gpu_gate_wait_seconds_total": 4.0,
        "kfext_gpu_overlap_seconds_total": 1.5,
        "kfext_gpu_preemptions_totalshut": 2,
        "kfext_gpu_preemptions_totalevict": 1,
    }


def test_the_series_of_a_pod_of_high_priority() -> None:
    assert shown("high") == {
        "kfext_gpu_share_ratio": 0.5,
        "kfext_gpu_high_busy_ratio": 0.75,
        "kfext_gpu_memory_used_bytes": 3,
        "kfext_gpu_beacon_age_seconds": 0.25,
    }


@pytest.mark.parametrize(("slot", "loss", "info"), [("0", 0.03, 1), ("1", None, None)])
def test_the_series_of_a_card(slot: str, loss: float | None, info: float | None) -> None:
    registry = Metrics(lambda: CARDS).registry
    assert registry.get_sample_value("kfext_gpu_high_loss_ratio", {"slot": slot}) == loss
    labels = {"slot": slot, "uuid": "GPU-1"}
    assert registry.get_sample_value("kfext_gpu_slot_info", labels) == info

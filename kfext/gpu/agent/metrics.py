"""The agent's metrics for Prometheus, read from the state of the cards at each scrape."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kfext.gpu.agent.report import SharerReport, SlotReport
from kfext.gpu.device.inventory import Card
from kfext.runtime import Scraped, filled

LABELS = ("slot", "namespace", "pod_name")
"""Prometheus itself adds a label `pod`."""
_MIB = 2**20
_MIN_IDLE = 0.01
"""A fraction of the time; the efficiency is unknown if the card is idle for less."""
_GAUGES: dict[str, tuple[str, Callable[[SharerReport], float | None]]] = {
    "kfext_gpu_share_ratio": ("The share of the card that a pod has", lambda sharer: sharer.share),
    "kfext_gpu_high_busy_ratio": (
        "The fraction of the last seconds in which the high-priority pod had work on the card",
        lambda sharer: sharer.used if sharer.high else None,
    ),
    "kfext_gpu_low_share_ratio": (
        "The fraction of the last seconds in which a low-priority pod worked on the card",
        lambda sharer: None if sharer.high else sharer.used,
    ),
    "kfext_gpu_micro_step_seconds": (
        "The target length of a micro-step beside the high-priority pod",
        lambda sharer: sharer.micro_step,
    ),
    "kfext_gpu_longest_micro_step_seconds": (
        "The duration of the longest micro-step, as the pod measured it when it began",
        lambda sharer: sharer.longest,
    ),
    "kfext_gpu_memory_used_bytes": (
        "Memory of the card that a pod uses, as reported by the pod",
        lambda sharer: sharer.memory,
    ),
    "kfext_gpu_guarantee_infeasible": (
        "1 while a low-priority pod cannot get its minimum share within the loss budget",
        lambda sharer: None if sharer.high else sharer.infeasible,
    ),
    "kfext_gpu_beacon_age_seconds": (
        "Time since a process of the high-priority pod last updated its beacon",
        lambda sharer: sharer.beacon_age,
    ),
}
_COUNTERS: dict[str, tuple[str, Callable[[SharerReport], float]]] = {
    "kfext_gpu_gate_wait_seconds": (
        "Time that a low-priority pod has waited at its GPU gate",
        lambda sharer: sharer.waited,
    ),
    "kfext_gpu_overlap_seconds": (
        "Time that a low-priority pod has worked while the high-priority pod was busy",
        lambda sharer: sharer.intruded,
    ),
}


def registry(
    reports: Callable[[], Iterable[SlotReport]], cards: Callable[[], Iterable[Card]]
) -> CollectorRegistry:
    """Return the agent's metrics, in a registry of their own.

    `reports`: returns the reports of all slots; `cards`: the cards of the node.
    """
    metrics = CollectorRegistry()
    metrics.register(Scraped(lambda: _families(list(reports()), list(cards()))))
    return metrics


def _families(slots: Sequence[SlotReport], cards: Sequence[Card]) -> Iterator[Metric]:
    """Yield the families of the cards, of the slots and of their current sharers."""
    yield from _card_metrics(cards)
    yield from _slot_metrics(slots)
    sizes = {card.uuid: card.memory * _MIB for card in cards}
    sharers = [(_labels(slot, sharer), sharer) for slot in slots for sharer in slot.sharers]
    limit = GaugeMetricFamily(
        "kfext_gpu_memory_limit_bytes",
        "Memory of the card that is planned for a pod; nothing enforces it",
        labels=LABELS,
    )
    planned = (
        (_labels(slot, sharer), _planned(sharer, sizes.get(slot.card or "")))
        for slot in slots
        for sharer in slot.sharers
    )
    yield filled(limit, planned)
    for name, (text, value_of) in _GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=LABELS)
        yield filled(gauge, ((labels, value_of(sharer)) for labels, sharer in sharers))
    lows = [(labels, sharer) for labels, sharer in sharers if not sharer.high]
    for name, (text, count_of) in _COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=LABELS)
        yield filled(counter, ((labels, count_of(sharer)) for labels, sharer in lows))
    preemptions = CounterMetricFamily(
        "kfext_gpu_preemptions",
        "How often a low-priority pod was paused (shut) or evicted for the high-priority pod",
        labels=(*LABELS, "kind"),
    )
    for labels, sharer in lows:
        preemptions.add_metric((*labels, "shut"), sharer.times_shut)
        preemptions.add_metric((*labels, "evict"), sharer.times_evicted)
    yield preemptions


def _labels(slot: SlotReport, sharer: SharerReport) -> tuple[str, str, str]:
    return str(slot.slot), sharer.namespace, sharer.pod


def _card_metrics(cards: Sequence[Card]) -> Iterator[Metric]:
    used = GaugeMetricFamily(
        "kfext_gpu_card_utilisation_ratio",
        "The fraction of the last moments in which a card was busy, as reported by the driver",
        labels=("uuid",),
    )
    yield filled(used, (((card.uuid,), card.utilisation) for card in cards))
    power = GaugeMetricFamily(
        "kfext_gpu_card_power_watts", "The power that a card draws", labels=("uuid",)
    )
    yield filled(power, (((card.uuid,), card.power) for card in cards))
    errors = CounterMetricFamily(
        "kfext_gpu_xid_errors",
        "Errors of a card that the driver has reported since the agent started, by Xid",
        labels=("uuid", "xid"),
    )
    reported = ((card.uuid, xid, times) for card in cards for xid, times in card.errors.items())
    yield filled(errors, (((uuid, str(xid)), times) for uuid, xid, times in reported))


def _planned(sharer: SharerReport, size: int | None) -> float | None:
    """Return the memory that is planned for a sharer, of a card with `size` bytes, if known."""
    if sharer.planned is not None:
        return sharer.planned
    return None if size is None else sharer.share * size


def _slot_metrics(slots: Sequence[SlotReport]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "kfext_gpu_slot_info", "1 for each reserved card, with its slot", labels=("slot", "uuid")
    )
    reserved = ((str(slot.slot), slot.card) for slot in slots if slot.card is not None)
    yield filled(info, ((labels, 1) for labels in reserved))
    loss = GaugeMetricFamily(
        "kfext_gpu_high_loss_ratio",
        "The fraction of its speed that the high-priority pod loses by sharing",
        labels=("slot",),
    )
    yield filled(loss, (((str(slot.slot),), slot.loss) for slot in slots))
    harvest = GaugeMetricFamily(
        "kfext_gpu_harvest_efficiency",
        "The fraction of the time unused by the high-priority pod that low-priority pods use",
        labels=("slot",),
    )
    yield filled(harvest, (((str(slot.slot),), _efficiency(slot)) for slot in slots))


def _efficiency(slot: SlotReport) -> float | None:
    """Return the fraction of the recent idle time that low-priority pods used, if it is known.

    Above 1, they also work while the high-priority pod works, within its loss budget.
    """
    idle = [1 - sharer.used for sharer in slot.sharers if sharer.high and sharer.used is not None]
    lows = [sharer.used for sharer in slot.sharers if not sharer.high]
    worked = [part for part in lows if part is not None]
    if not idle or not lows or len(worked) < len(lows) or idle[0] < _MIN_IDLE:
        return None
    return sum(worked) / idle[0]

"""The agent's metrics for Prometheus, read from the state of the cards at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kfext.gpu.agent.report import SharerReport, SlotReport
from kfext.gpu.device.inventory import Card

LABELS = ("slot", "namespace", "pod_name")
"""Prometheus itself adds a label `pod`."""
_MIB = 2**20
_LEAST_LEFT = 0.01
"""Of the time: a share of less time than this says nothing."""
_GAUGES: dict[str, tuple[str, Callable[[SharerReport], float | None]]] = {
    "kfext_gpu_share_ratio": (
        "The part of the card that a pod was promised",
        lambda sharer: sharer.share,
    ),
    "kfext_gpu_high_busy_ratio": (
        "The part of the last seconds in which the pod of high priority had work on the card",
        lambda sharer: sharer.harvest if sharer.high else None,
    ),
    "kfext_gpu_low_share_ratio": (
        "The part of the last seconds in which a pod of low priority worked",
        lambda sharer: None if sharer.high else sharer.harvest,
    ),
    "kfext_gpu_micro_step_seconds": (
        "How long a micro-step beside the pod of high priority should take at most",
        lambda sharer: sharer.micro_step,
    ),
    "kfext_gpu_longest_micro_step_seconds": (
        "How long the longest micro-step takes, as the pod itself measured it at first",
        lambda sharer: sharer.longest,
    ),
    "kfext_gpu_memory_used_bytes": (
        "Memory of the card that the processes of a pod have reserved",
        lambda sharer: sharer.memory,
    ),
    "kfext_gpu_guarantee_infeasible": (
        "1 while a pod cannot have its least share within the loss budget of another",
        lambda sharer: None if sharer.high else sharer.infeasible,
    ),
    "kfext_gpu_beacon_age_seconds": (
        "Time since a process of the pod of high priority has shown life",
        lambda sharer: sharer.beacon_age,
    ),
}
_COUNTERS: dict[str, tuple[str, Callable[[SharerReport], float]]] = {
    "kfext_gpu_gate_wait_seconds": (
        "Time that a pod of low priority has waited at its gate",
        lambda sharer: sharer.waited,
    ),
    "kfext_gpu_overlap_seconds": (
        "Time that a pod of low priority has worked beside the busy pod of high priority",
        lambda sharer: sharer.intruded,
    ),
}


def registry(
    reports: Callable[[], Iterable[SlotReport]], cards: Callable[[], Iterable[Card]]
) -> CollectorRegistry:
    """Return the agent's metrics, in a registry of their own.

    `reports`: what is known of each slot; `cards`: the cards of the node.
    """
    made = CollectorRegistry()
    made.register(_CardCollector(reports, cards))
    return made


class _CardCollector(Collector):
    """Reads the reports at each scrape: sharers come and go."""

    def __init__(
        self, reports: Callable[[], Iterable[SlotReport]], cards: Callable[[], Iterable[Card]]
    ) -> None:
        self._reports = reports
        self._cards = cards

    def collect(self) -> Iterable[Metric]:
        """Yield the families of the cards, of the slots and of their sharers."""
        slots, cards = list(self._reports()), list(self._cards())
        yield from _of_cards(cards)
        yield from _of_slots(slots)
        yield _of_memory(slots, cards)
        sharers = [(_labels(slot, sharer), sharer) for slot in slots for sharer in slot.sharers]
        for name, (text, value_of) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            for labels, sharer in sharers:
                value = value_of(sharer)
                if value is not None:
                    gauge.add_metric(labels, value)
            yield gauge
        lows = [(labels, sharer) for labels, sharer in sharers if not sharer.high]
        for name, (text, value_of) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            for labels, sharer in lows:
                counter.add_metric(labels, value_of(sharer))
            yield counter
        preemptions = CounterMetricFamily(
            "kfext_gpu_preemptions",
            "Times that a pod of low priority was held back for losses, or is to leave the card",
            labels=(*LABELS, "kind"),
        )
        for labels, sharer in lows:
            preemptions.add_metric((*labels, "shut"), sharer.times_shut)
            preemptions.add_metric((*labels, "evict"), sharer.times_evicted)
        yield preemptions


def _labels(slot: SlotReport, sharer: SharerReport) -> tuple[str, str, str]:
    return str(slot.slot), sharer.namespace, sharer.pod


def _of_cards(cards: Iterable[Card]) -> Iterable[Metric]:
    used = GaugeMetricFamily(
        "kfext_gpu_card_utilisation_ratio",
        "The part of the last moments in which a card worked, by its driver",
        labels=("uuid",),
    )
    power = GaugeMetricFamily(
        "kfext_gpu_card_power_watts", "What a card draws, by its driver", labels=("uuid",)
    )
    errors = CounterMetricFamily(
        "kfext_gpu_xid_errors",
        "Errors of a card that the driver reported since the agent started, by Xid",
        labels=("uuid", "xid"),
    )
    for card in cards:
        if card.utilisation is not None:
            used.add_metric((card.uuid,), card.utilisation)
        if card.power is not None:
            power.add_metric((card.uuid,), card.power)
        for xid, times in card.errors.items():
            errors.add_metric((card.uuid, str(xid)), times)
    return used, power, errors


def _of_memory(slots: Iterable[SlotReport], cards: Iterable[Card]) -> Metric:
    limit = GaugeMetricFamily(
        "kfext_gpu_memory_limit_bytes",
        "Memory of the card that a pod was promised; nothing enforces it",
        labels=LABELS,
    )
    sizes = {card.uuid: card.memory * _MIB for card in cards}
    for slot in slots:
        size = sizes.get(slot.card or "")
        for sharer in slot.sharers:
            if sharer.promised is not None:
                limit.add_metric(_labels(slot, sharer), sharer.promised)
            elif size is not None:
                limit.add_metric(_labels(slot, sharer), sharer.share * size)
    return limit


def _of_slots(slots: Iterable[SlotReport]) -> Iterable[Metric]:
    info = GaugeMetricFamily(
        "kfext_gpu_slot_info", "1 for each card that is reserved", labels=("slot", "uuid")
    )
    loss = GaugeMetricFamily(
        "kfext_gpu_high_loss_ratio",
        "The part of its speed that the pod of high priority loses by sharing",
        labels=("slot",),
    )
    harvest = GaugeMetricFamily(
        "kfext_gpu_harvest_efficiency",
        "The part of the time left by the pod of high priority in which pods of low priority work",
        labels=("slot",),
    )
    for slot in slots:
        if slot.card is not None:
            info.add_metric((str(slot.slot), slot.card), 1)
        if slot.loss is not None:
            loss.add_metric((str(slot.slot),), slot.loss)
        efficiency = _efficiency(slot)
        if efficiency is not None:
            harvest.add_metric((str(slot.slot),), efficiency)
    return info, loss, harvest


def _efficiency(slot: SlotReport) -> float | None:
    """Return the harvest over the last seconds, or None without sharers or with an unknown part.

    Above 1, low-priority pods work beside the high-priority pod, within its loss budget.
    """
    idle = [
        1 - sharer.harvest for sharer in slot.sharers if sharer.high and sharer.harvest is not None
    ]
    lows = [sharer.harvest for sharer in slot.sharers if not sharer.high]
    worked = [part for part in lows if part is not None]
    if not idle or not lows or len(worked) < len(lows) or idle[0] < _LEAST_LEFT:
        return None
    return sum(worked) / idle[0]

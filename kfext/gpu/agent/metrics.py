"""The agent's metrics for Prometheus, read at each scrape from what is known of the cards."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kfext.gpu.agent.report import CardReport, SharerReport
from kfext.gpu.device.inventory import Card

LABELS = ("slot", "namespace", "pod_name")
"""`pod` is a label that Prometheus itself adds."""
_MIB = 2**20
_LEAST_LEFT = 0.01
"""Of the time; of less than that a part says nothing."""
_GAUGES: dict[str, tuple[str, Callable[[SharerReport], float | None]]] = {
    "kfext_gpu_share_ratio": (
        "The part of the card that a pod was promised",
        lambda one: one.share,
    ),
    "kfext_gpu_high_busy_ratio": (
        "The part of the last seconds in which the pod of high priority had work on the card",
        lambda one: one.harvest if one.high else None,
    ),
    "kfext_gpu_low_share_ratio": (
        "The part of the last seconds in which a pod of low priority worked",
        lambda one: None if one.high else one.harvest,
    ),
    "kfext_gpu_micro_step_seconds": (
        "How long a micro-step beside the pod of high priority should take at most",
        lambda one: one.micro_step,
    ),
    "kfext_gpu_longest_micro_step_seconds": (
        "How long the longest micro-step takes, as the pod itself has measured it at first",
        lambda one: one.longest,
    ),
    "kfext_gpu_memory_used_bytes": (
        "Memory of the card that the processes of a pod have reserved",
        lambda one: one.memory,
    ),
    "kfext_gpu_guarantee_infeasible": (
        "1 while a pod cannot have its least share within the loss budget of another",
        lambda one: None if one.high else one.infeasible,
    ),
    "kfext_gpu_beacon_age_seconds": (
        "Time since a process of the pod of high priority has shown life",
        lambda one: one.beacon_age,
    ),
}
_COUNTERS: dict[str, tuple[str, Callable[[SharerReport], float]]] = {
    "kfext_gpu_gate_wait_seconds": (
        "Time that a pod of low priority has waited at its gate",
        lambda one: one.waited,
    ),
    "kfext_gpu_overlap_seconds": (
        "Time that a pod of low priority has worked beside the busy one of high priority",
        lambda one: one.intruded,
    ),
}


class Metrics:
    """The agent's metrics, in a registry of their own.

    `reports`: what is known of each slot; `cards`: the cards of the node.
    """

    def __init__(
        self, reports: Callable[[], Iterable[CardReport]], cards: Callable[[], Iterable[Card]]
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_CardCollector(reports, cards))


class _CardCollector(Collector):
    """Reads the reports at each scrape: sharers come and go."""

    def __init__(
        self, reports: Callable[[], Iterable[CardReport]], cards: Callable[[], Iterable[Card]]
    ) -> None:
        self._reports = reports
        self._cards = cards

    def collect(self) -> Iterable[Metric]:
        """Yield the families of the cards, of the slots and of their sharers."""
        slots, cards = list(self._reports()), list(self._cards())
        yield from _of_cards(cards)
        yield from _of_slots(slots)
        yield _of_memory(slots, cards)
        sharers = [(_labels(slot, one), one) for slot in slots for one in slot.sharers]
        for name, (text, value_of) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            for labels, one in sharers:
                value = value_of(one)
                if value is not None:
                    gauge.add_metric(labels, value)
            yield gauge
        lows = [(labels, one) for labels, one in sharers if not one.high]
        for name, (text, value_of) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            for labels, one in lows:
                counter.add_metric(labels, value_of(one))
            yield counter
        preemptions = CounterMetricFamily(
            "kfext_gpu_preemptions",
            "Times that a pod of low priority was held back for losses, or is to leave the card",
            labels=(*LABELS, "kind"),
        )
        for labels, one in lows:
            preemptions.add_metric((*labels, "shut"), one.times_shut)
            preemptions.add_metric((*labels, "evict"), one.times_evicted)
        yield preemptions


def _labels(slot: CardReport, one: SharerReport) -> tuple[str, str, str]:
    return str(slot.slot), one.namespace, one.pod


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
        "Errors that the driver has reported of a card since the agent started, by their Xid",
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


def _of_memory(slots: Iterable[CardReport], cards: Iterable[Card]) -> Metric:
    limit = GaugeMetricFamily(
        "kfext_gpu_memory_limit_bytes",
        "Memory of the card that a pod was promised; nothing holds it to that",
        labels=LABELS,
    )
    sizes = {card.uuid: card.memory * _MIB for card in cards}
    for slot in slots:
        size = sizes.get(slot.card or "")
        for one in slot.sharers:
            if one.promised is not None:
                limit.add_metric(_labels(slot, one), one.promised)
            elif size is not None:
                limit.add_metric(_labels(slot, one), one.share * size)
    return limit


def _of_slots(slots: Iterable[CardReport]) -> Iterable[Metric]:
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
        "The part of the time left by the pod of high priority in which those of low priority work",
        labels=("slot",),
    )
    for one in slots:
        if one.card is not None:
            info.add_metric((str(one.slot), one.card), 1)
        if one.loss is not None:
            loss.add_metric((str(one.slot),), one.loss)
        efficiency = _efficiency(one)
        if efficiency is not None:
            harvest.add_metric((str(one.slot),), efficiency)
    return info, loss, harvest


def _efficiency(slot: CardReport) -> float | None:
    """Return it over the last seconds, None if nobody shares or some of that is not known.

    Over 1 those of low priority work beside the one of high priority, within its loss budget.
    """
    left = [1 - one.harvest for one in slot.sharers if one.high and one.harvest is not None]
    lows = [one.harvest for one in slot.sharers if not one.high]
    worked = [part for part in lows if part is not None]
    if not left or not lows or len(worked) < len(lows) or left[0] < _LEAST_LEFT:
        return None
    return sum(worked) / left[0]

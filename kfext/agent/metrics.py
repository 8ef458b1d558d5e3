"""The agent's metrics for Prometheus, read at each scrape from what is known of the cards."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kfext.agent.report import CardReport, SharerReport

LABELS = ("slot", "namespace", "pod_name")
"""`pod` is a label that Prometheus itself adds."""
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
    """The agent's metrics, in a registry of their own. `reports`: what is known of each card."""

    def __init__(self, reports: Callable[[], Iterable[CardReport]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_CardCollector(reports))


class _CardCollector(Collector):
    """Reads the reports at each scrape: sharers come and go."""

    def __init__(self, reports: Callable[[], Iterable[CardReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        """Yield the families of the cards, and of their sharers."""
        cards = list(self._reports())
        yield from _of_cards(cards)
        sharers = [
            ((str(card.slot), one.namespace, one.pod), one)
            for card in cards
            for one in card.sharers
        ]
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
            preemptions.add_metric((*labels, "evict"), one.evict)
        yield preemptions


def _of_cards(cards: Iterable[CardReport]) -> Iterable[Metric]:
    info = GaugeMetricFamily(
        "kfext_gpu_slot_info", "1 for each card that is reserved", labels=("slot", "uuid")
    )
    loss = GaugeMetricFamily(
        "kfext_gpu_high_loss_ratio",
        "The part of its speed that the pod of high priority loses by sharing",
        labels=("slot",),
    )
    for card in cards:
        if card.card is not None:
            info.add_metric((str(card.slot), card.card), 1)
        if card.loss is not None:
            loss.add_metric((str(card.slot),), card.loss)
    return info, loss

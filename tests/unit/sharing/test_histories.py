"""G2 (tests/statements.md) in random histories: no share of a card is shares_by_slot twice.

A low-priority job is never placed where it could not have its minimum.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.claims import card_key
from kfext.model.gpu import UNITS, GpuShare, slot_of
from kfext.model.pod import parse_pod
from tests.gpu_builders import USABLE, memory_of
from tests.unit.state.history import History, admitted


def shares_by_slot(history: History) -> dict[tuple[str, int], list[GpuShare]]:
    """Return the shares in each slot: of pods until they end, and of plans without such pods."""
    results: dict[tuple[str, int], list[GpuShare]] = {}
    with_pod = set()
    for pod in map(parse_pod, history.pods.values()):
        if pod.share and pod.home and not pod.finished:
            slot = next(slot for name in pod.requests if (slot := slot_of(name)) is not None)
            results.setdefault((pod.home, slot), []).append(pod.share)
            with_pod.add((pod.owner_uid, pod.replica))
    for uid, tracked in history.planner.cluster.jobs.items():
        plan = tracked.assumed or tracked.plan
        if plan is None:
            continue
        claimed = history.planner.cluster.holds.plan(uid)
        for key, slot in plan.slots.items():
            if card_key(uid, key) in claimed and (uid, key) not in with_pod:
                results.setdefault((plan.assignment[key], slot), []).append(plan.shares[key.type])
    return results


class Sharing(History):
    """A history of small jobs with GPUs, most of them with a share of a GPU."""

    def submit(self) -> None:
        self.count += 1
        name, fields = f"job-{self.count}", self.draw.draw(small, label="job")
        self.put_job(admitted(name, uid=name, created=self.now, **{**PLAIN, **fields}).raw)


PLAIN = {
    **dict.fromkeys(("colocation", "network", "priority", "claim"), ""),
    "cpu": "1",
    "elastic": False,
    "deadline": 0,
    "terms": None,
}
small = st.fixed_dictionaries(
    {
        "workers": st.integers(1, 2),
        "gpu": st.sampled_from(["low", "high", "high", "whole"]),
        # Two shares of 8Gi fit a card only without its reserve and the overhead of processes.
        "memory": st.sampled_from(["", "", "7Gi", "8Gi"]),
    }
)
SHARING = (
    *(Sharing.submit, Sharing.submit, Sharing.catch_up, Sharing.catch_up, Sharing.wait),
    *(Sharing.delete_before_its_pods, Sharing.end_pods, Sharing.suspend, Sharing.opt_out),
    *(Sharing.report, Sharing.lose_reservation, Sharing.change_node, Sharing.restart),
)


@pytest.mark.histories
@settings(max_examples=100, deadline=None)
@given(data=st.data(), acts=st.lists(st.sampled_from(SHARING), max_size=40))
def test_G2_no_history_promises_a_card_twice(
    data: st.DataObject, acts: list[Callable[[Sharing], None]]
) -> None:
    history = Sharing(data)
    for act in (Sharing.submit, Sharing.submit, Sharing.catch_up, *acts):
        note(act.__name__)
        act(history)
        for place, shares in shares_by_slot(history).items():
            assert sum(share.units for share in shares) <= UNITS, place
            assert sum(share.high for share in shares) <= 1, place
            assert memory_of(share.need for share in shares) <= USABLE, place


class Measured(Sharing):
    """Two cards, and jobs that share them; a low-priority job has a minimum of half a card."""

    def __init__(self, draw: st.DataObject) -> None:
        super().__init__(draw)
        self.planner.cluster.observe_node(self.nodes.pop("b"), None)

    def high(self) -> None:
        self._submit("high")

    def low(self) -> None:
        self._submit("low")

    def _submit(self, gpu: str) -> None:
        self.count += 1
        name, fields = f"job-{self.count}", {**PLAIN, "workers": 1, "gpu": gpu}
        raw = admitted(name, uid=name, created=self.now, **fields).raw
        template = raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        for owner in (raw, template):
            owner["metadata"]["annotations"][names.GPU_MIN_SHARE] = "0.5"
        self.put_job(raw)

    def busy(self) -> dict[str, float]:
        """Return the fraction of time in which each job counts as busy."""
        jobs = self.planner.cluster.jobs
        return {uid: tracked.state.busy.get("worker", 1000) / 1000 for uid, tracked in jobs.items()}

    def planned(self) -> dict[tuple[str, int], dict[str, GpuShare]]:
        """Return the shares that plans have in each slot, by the uid of the job."""
        results: dict[tuple[str, int], dict[str, GpuShare]] = {}
        for uid, tracked in self.planner.cluster.jobs.items():
            plan = tracked.assumed or tracked.plan
            if plan is None or not self.planner.cluster.holds.plan(uid):
                continue
            for key, slot in plan.slots.items():
                results.setdefault((plan.assignment[key], slot), {})[uid] = plan.shares[key.type]
        return results


MEASURING = (
    *(Measured.low, Measured.high, Measured.measure, Measured.catch_up, Measured.catch_up),
    *(Measured.delete_before_its_pods, Measured.end_pods, Measured.suspend, Measured.restart),
)


@pytest.mark.histories
@settings(max_examples=60, deadline=None)
@given(data=st.data(), acts=st.lists(st.sampled_from(MEASURING), max_size=15))
def test_no_history_places_a_low_job_where_its_minimum_does_not_fit(
    data: st.DataObject, acts: list[Callable[[Measured], None]]
) -> None:
    history = Measured(data)
    for act in (
        Measured.high,
        Measured.catch_up,
        Measured.measure,
        Measured.catch_up,
        Measured.low,
        *acts,
    ):
        note(act.__name__)
        before, known = history.planned(), history.busy()
        act(history)
        now = history.busy()
        for place, shares in history.planned().items():
            high = [uid for uid, share in before.get(place, {}).items() if share.high]
            lows = {uid for uid, share in shares.items() if not share.high}
            if not (lows - before.get(place, {}).keys() and high and high[0] in shares):
                continue
            # A measurement may become known before or after a job is placed.
            left = 1 - min(busy.get(high[0], 1.0) for busy in (known, now))
            assert sum(min(known.get(low, 1.0), now[low]) for low in lows) / 2 <= left, place

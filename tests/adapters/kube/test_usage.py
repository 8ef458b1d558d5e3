"""CPU use of pods from the metrics API, else from kubelets; and why it is not known."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kfext import names
from kfext.kube import sources
from kfext.kube.usage import Usage
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.timestamps import timestamp
from kfext.model.verdict import Verdict

from .test_kubelet import Bed
from .usage_servers import (
    OWN_TOKEN,
    counter_of_node,
    counters,
    figures,
    figures_of_node,
)

AT = timestamp("2026-11-22T10:00:30Z")


def pod(name: str, *, node: str = "n1", uid: str = "", created: float = 0.0) -> Pod:
    return Pod("team", name, uid or name, node_name=node, created=created)


class UsageBed(Bed):
    """The adapter that asks both."""

    usage: Usage

    async def start(self) -> None:
        client = await self.stack.enter_async_context(self.api.client(self.pki))
        self.usage = Usage(client, monotonic=self.clock)
        self.stack.push_async_callback(self.usage.close)

    async def read(self, *pods: Pod) -> Mapping[str, CpuUse | Verdict]:
        return (await self.usage.read(pods)).pods

    async def nodes(self, *names: str, of: Iterable[Pod]) -> Mapping[str, CpuUse]:
        return (await self.usage.read(of, nodes={*names})).nodes

    async def reason(self, one: Pod) -> str:
        found = (await self.read(one))[one.uid]
        assert isinstance(found, Verdict), found
        return found.reason


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[UsageBed]:
    async with AsyncExitStack() as stack:
        made = UsageBed(tmp_path, stack)
        await made.start()
        yield made


# --- the metrics API ------------------------------------------------------------------------------


async def test_the_metrics_api_is_asked_first_with_one_list_for_each_namespace(
    bed: UsageBed,
) -> None:
    kubelet = await bed.kubelet("n1")
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m"), figures("c", "1")]}
    found = await bed.read(pod("a", node="n1"), pod("b", node="n2"))
    assert found == {
        "a": CpuUse(0.2, at=AT, window=15.5),
        "b": CpuUse(0.05, at=AT, window=15.5),
    }
    assert bed.api.asked == ["/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"]
    assert bed.api.queries == [{"labelSelector": names.JOB_NAME}]
    assert kubelet.requests == []


async def test_a_pod_without_figures_is_pending_and_no_kubelet_is_asked(bed: UsageBed) -> None:
    kubelet = await bed.kubelet("n1")
    bed.api.metrics = {"team": []}
    assert await bed.reason(pod("a")) == names.REASON_CPU_USE_PENDING
    assert kubelet.requests == []


async def test_the_kubelet_is_asked_for_a_pod_that_the_metrics_api_leaves_out(
    bed: UsageBed,
) -> None:
    kubelet = await bed.kubelet("n1")
    bed.api.metrics = {"team": [figures("b", "50m")]}
    pods = (pod("a", node="n1"), pod("b", node="n2"))
    for _ in range(3):
        found = await bed.read(*pods)
        assert isinstance(found["a"], Verdict)
        assert found["a"].reason == names.REASON_CPU_USE_PENDING
        bed.clock.now += 60
    assert len(kubelet.requests) == 1
    kubelet.body = counters(a=24.5).replace(b" 1000000", b" 1060000")
    found = await bed.read(*pods)
    assert found["a"] == CpuUse(0.2, at=1060, window=60)
    assert found["b"] == CpuUse(0.05, at=AT, window=15.5)


async def test_figures_of_an_earlier_pod_of_the_same_name_are_not_those_of_the_new_one(
    bed: UsageBed,
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")]}
    assert await bed.reason(pod("a", uid="new", created=AT)) == names.REASON_CPU_USE_PENDING
    assert isinstance((await bed.read(pod("a", created=AT - 20)))["a"], CpuUse)


async def test_a_pod_that_is_not_bound_is_pending_and_nothing_is_asked(bed: UsageBed) -> None:
    assert await bed.reason(pod("a", node="")) == names.REASON_CPU_USE_PENDING
    assert bed.api.asked == []


async def test_nothing_is_asked_for_no_pods(bed: UsageBed) -> None:
    assert await bed.read() == {}
    assert bed.api.asked == []


async def test_a_list_that_is_too_long_costs_its_own_namespace_alone(bed: UsageBed) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")], "other": b" " * (4 * 2**20 + 1)}
    found = await bed.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(found["a"], CpuUse)
    assert isinstance(found["b"], Verdict)
    assert "more than 4194304 bytes" in found["b"].message


async def test_the_metrics_api_states_what_is_used_on_the_nodes_that_are_named(
    bed: UsageBed,
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m")]}
    bed.api.of_nodes = {"n1": figures_of_node("3500m"), "n2": figures_of_node("1")}
    pods = [pod("a", node="n1"), pod("b", node="n2")]
    assert await bed.nodes("n1", of=pods) == {"n1": CpuUse(3.5, at=AT, window=15.5)}
    assert bed.api.count("/nodes/") == 1
    assert await bed.nodes(of=pods) == {}
    assert bed.api.count("/nodes/") == 1


@pytest.mark.parametrize("cpu", [None, "much", "-1", [3]])
async def test_a_node_of_which_the_metrics_api_states_no_use_is_left_out(
    bed: UsageBed, cpu: object
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m")]}
    bed.api.of_nodes = {"n1": figures_of_node(cpu), "n2": figures_of_node("1")}
    found = await bed.nodes("n1", "n2", of=[pod("a", node="n1"), pod("b", node="n2")])
    assert found == {"n2": CpuUse(1.0, at=AT, window=15.5)}


async def test_without_the_right_to_nodes_the_use_of_pods_is_known(bed: UsageBed) -> None:
    bed.api.metrics, bed.api.without = {"team": [figures("a", "200m")]}, 403
    for _ in range(3):
        found = await bed.usage.read([pod("a")], nodes={"n1"})
        assert isinstance(found.pods["a"], CpuUse)
        assert found.nodes == {}
    assert bed.api.count("/nodes/") == 1  # in a minute


# --- kubelets -------------------------------------------------------------------------------------


async def test_without_a_metrics_api_the_rate_between_two_readings_counts(bed: UsageBed) -> None:
    kubelet = await bed.kubelet("n1")
    assert await bed.reason(pod("a")) == names.REASON_CPU_USE_PENDING
    bed.clock.now += 30
    kubelet.body = counters(a=18.5).replace(b" 1000000", b" 1030000")
    assert await bed.read(pod("a")) == {"a": CpuUse(0.2, at=1030, window=30)}
    assert set(kubelet.shown) == {"Bearer of-the-node-account"}


async def test_the_kubelet_that_counts_the_pods_of_a_node_counts_the_node(bed: UsageBed) -> None:
    kubelet = await bed.kubelet("n1")
    kubelet.body = counters(a=12.5) + counter_of_node(100.0)
    pods = [pod("a")]
    assert await bed.nodes("n1", of=pods) == {}
    bed.clock.now += 30
    counted = counters(a=18.5) + counter_of_node(190.0)
    kubelet.body = counted.replace(b" 1000000", b" 1030000")
    assert await bed.nodes("n1", of=pods) == {"n1": CpuUse(3.0, at=1030, window=30)}
    assert bed.api.count("/apis/metrics.k8s.io/v1beta1/nodes/") == 0


async def test_the_metrics_api_that_is_not_there_is_asked_for_once_a_minute(bed: UsageBed) -> None:
    await bed.kubelet("n1")
    for _ in range(6):  # in 70 s
        await bed.read(pod("a"))
        bed.clock.now += 14
    assert bed.api.count("metrics.k8s.io") == 2


async def test_each_kubelet_is_asked_once_for_all_its_pods(bed: UsageBed) -> None:
    kubelet, other = await bed.kubelet("n1"), await bed.kubelet("n2")
    await bed.read(*(pod(f"p{number}", node=f"n{1 + number % 2}") for number in range(20)))
    assert (len(kubelet.requests), len(other.requests)) == (1, 1)


async def test_a_kubelet_is_not_believed_of_pods_of_other_nodes(bed: UsageBed) -> None:
    liar, honest = await bed.kubelet("n1"), await bed.kubelet("n2")
    liar.body, honest.body = counters(a=0.0, b=0.0), counters(b=0.0)
    pods = (pod("a", node="n1"), pod("b", node="n2"))
    await bed.read(*pods)
    bed.clock.now += 30
    liar.body = counters(a=6.0, b=900.0).replace(b" 1000000", b" 1030000")
    honest.body = counters(b=3.0).replace(b" 1000000", b" 1030000")
    found = await bed.read(*pods)
    assert found["b"] == CpuUse(0.1, at=1030, window=30)


async def test_the_counter_of_an_earlier_pod_of_the_same_name_is_not_gone_on_with(
    bed: UsageBed,
) -> None:
    kubelet = await bed.kubelet("n1")
    await bed.read(pod("a", uid="old"))
    bed.clock.now += 30
    kubelet.body = counters(a=18.5).replace(b" 1000000", b" 1030000")
    assert await bed.reason(pod("a", uid="new")) == names.REASON_CPU_USE_PENDING
    bed.clock.now += 30
    kubelet.body = counters(a=21.5).replace(b" 1000000", b" 1060000")
    found = await bed.read(pod("a", uid="new"))
    assert found == {"new": CpuUse(0.1, at=1060, window=30)}


async def test_counters_of_pods_that_are_asked_for_no_more_are_forgotten(bed: UsageBed) -> None:
    await bed.kubelet("n1")
    await bed.read(pod("a"))
    bed.clock.now += 899
    await bed.read()
    assert bed.usage.followed == 1
    bed.clock.now += 2
    await bed.read()
    assert bed.usage.followed == 0


async def test_a_kubelet_that_hangs_costs_only_its_own_pods(
    bed: UsageBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, _ = await bed.kubelet("n1"), await bed.kubelet("n2")
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 1.0)
    hung.silent = True
    found = await bed.read(pod("a", node="n1"), pod("b", node="n2"))
    reasons = {uid: one.reason for uid, one in found.items() if isinstance(one, Verdict)}
    assert reasons == {
        "a": names.REASON_CPU_USE_UNAVAILABLE,
        "b": names.REASON_CPU_USE_PENDING,
    }


# --- neither --------------------------------------------------------------------------------------


async def test_a_namespace_without_the_right_has_the_reason_and_others_their_figures(
    bed: UsageBed,
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")], "other": 403}
    bed.api.token_status = 403
    found = await bed.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(found["a"], CpuUse)
    assert isinstance(found["b"], Verdict)
    assert found["b"].reason == names.REASON_CPU_USE_FORBIDDEN
    assert found["b"].message == "metrics API: refused; kubelet: refused"


@pytest.mark.parametrize(
    ("api", "token", "trusted", "reason"),
    [
        (404, 403, True, names.REASON_CPU_USE_FORBIDDEN),
        (403, 403, True, names.REASON_CPU_USE_FORBIDDEN),
        (403, 201, False, names.REASON_CPU_USE_FORBIDDEN),
        (404, 201, False, names.REASON_KUBELET_UNVERIFIED),
        (503, 201, False, names.REASON_KUBELET_UNVERIFIED),
        (503, 503, True, names.REASON_CPU_USE_UNAVAILABLE),
    ],
)
async def test_the_reason_is_what_an_administrator_can_mend(
    bed: UsageBed, api: int, token: int, trusted: bool, reason: str
) -> None:
    await bed.kubelet("n1", pki=bed.pki if trusted else bed.stranger)
    bed.api.without, bed.api.token_status = api, token
    assert await bed.reason(pod("a")) == reason


async def test_the_token_of_the_controller_is_shown_to_no_kubelet(bed: UsageBed) -> None:
    kubelet = await bed.kubelet("n1")
    for status in (200, 401, 403, 307, 500):
        kubelet.status = status
        await bed.read(pod("a"))
        bed.clock.now += 61
    assert len(kubelet.shown) == 5
    assert OWN_TOKEN not in kubelet.shown

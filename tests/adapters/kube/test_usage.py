"""CPU use of pods and nodes from the metrics API, and the reasons for unknown use."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.errors import ApiError, Forbidden, NotFound, NotServed, Unauthorized, Unavailable
from kfext.kube import usage
from kfext.kube.client import Client
from kfext.kube.connection import Access, Token
from kfext.kube.usage import AT_ONCE, REST_SECONDS, Asking, Usage, uses_of
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.timestamps import timestamp
from kfext.model.verdict import Verdict

AT = timestamp("2026-11-22T10:00:30Z")


def figures(name: str, cpu: str, *, at: str = "2026-11-22T10:00:30Z") -> dict[str, Any]:
    """Return one item of the metrics API."""
    used = {"cpu": cpu, "memory": "1Mi"}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "timestamp": at,
        "window": "15.5s",
        "containers": [{"name": "pytorch", "usage": used}],
    }


def figures_of_node(cpu: object) -> dict[str, Any]:
    """Return the item of the metrics API about a node."""
    usage = {"cpu": cpu, "memory": "1Gi"}
    return {"timestamp": "2026-11-22T10:00:30Z", "window": "15.5s", "usage": usage}


class FakeCluster:
    """An API server with a metrics API.

    `metrics`: the items of each namespace, the HTTP status of a refusal, or a raw answer; another
    namespace is refused with `without`.
    `of_nodes`: the items of the metrics API on nodes by name; others are refused with `without`.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[dict[str, Any]] | int | bytes] = {}
        self.of_nodes: dict[str, dict[str, Any]] = {}
        self.without = 404
        self.requested: list[str] = []
        self.queries: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requested.append(request.path)
        self.queries.append(dict(request.query))
        if request.path.startswith("/apis/metrics.k8s.io/v1beta1/nodes/"):
            stated = self.of_nodes.get(request.path.split("/")[-1])
            return web.json_response(stated or {}, status=200 if stated else self.without)
        content = self.metrics.get(request.path.split("/")[-2], self.without)
        if isinstance(content, int):
            return web.json_response({"message": "refused"}, status=content)
        if isinstance(content, bytes):
            return web.Response(body=content)
        return web.json_response({"items": content})

    def count(self, part: str) -> int:
        """Return the number of requests with a part in their path."""
        return sum(part in path for path in self.requested)


class Bed:
    """The adapter and its server; the clock shows `now`."""

    def __init__(self, api: FakeCluster, client: Client) -> None:
        self.api, self.now = api, 5000.0
        self.usage = Usage(client, monotonic=lambda: self.now)

    async def read(self, *pods: Pod) -> Mapping[str, CpuUse | Verdict]:
        return (await self.usage.read(pods)).pods

    async def nodes(self, *names: str, of: Iterable[Pod]) -> Mapping[str, CpuUse]:
        return (await self.usage.read(of, nodes={*names})).nodes

    async def why(self, pod: Pod) -> Verdict:
        result = (await self.read(pod))[pod.uid]
        assert isinstance(result, Verdict), result
        return result


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    api, app = FakeCluster(), web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    url = str(server.make_url("")).rstrip("/")
    async with Client(Access(server=url, tls=None, token=Token(lambda: ""))) as client:
        yield Bed(api, client)
    await server.close()


def pod(name: str, *, node: str = "n1", uid: str = "", created: float = 0.0) -> Pod:
    return Pod("team", name, uid or name, node_name=node, created=created)


# --- pods and nodes -------------------------------------------------------------------------------


async def test_one_list_per_namespace_is_requested_of_the_metrics_api(bed: Bed) -> None:
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m"), figures("c", "1")]}
    content = await bed.read(pod("a", node="n1"), pod("b", node="n2"))
    assert content == {"a": CpuUse(0.2, at=AT, window=15.5), "b": CpuUse(0.05, at=AT, window=15.5)}
    assert bed.api.requested == ["/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"]
    assert bed.api.queries == [{"labelSelector": names.JOB_NAME}]


async def test_a_pod_without_figures_is_pending(bed: Bed) -> None:
    bed.api.metrics = {"team": [figures("b", "50m")]}
    content = await bed.read(pod("a"), pod("b"))
    assert isinstance(content["a"], Verdict)
    assert content["a"].reason == names.REASON_CPU_USE_PENDING
    assert content["b"] == CpuUse(0.05, at=AT, window=15.5)


async def test_figures_of_an_earlier_pod_of_the_same_name_do_not_count_for_the_new_pod(
    bed: Bed,
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")]}
    new = await bed.why(pod("a", uid="new", created=AT))
    assert new.reason == names.REASON_CPU_USE_PENDING
    assert isinstance((await bed.read(pod("a", created=AT - 20)))["a"], CpuUse)


async def test_an_unbound_pod_is_pending_and_nothing_is_requested(bed: Bed) -> None:
    assert (await bed.why(pod("a", node=""))).reason == names.REASON_CPU_USE_PENDING
    assert bed.api.requested == []


async def test_nothing_is_requested_without_pods(bed: Bed) -> None:
    assert await bed.read() == {}
    assert bed.api.requested == []


async def test_a_list_that_is_too_long_affects_only_its_own_namespace(bed: Bed) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")], "other": b" " * (4 * 2**20 + 1)}
    content = await bed.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(content["a"], CpuUse)
    assert isinstance(content["b"], Verdict)
    assert "more than 4194304 bytes" in content["b"].message


async def test_the_metrics_api_states_the_use_of_the_named_nodes(bed: Bed) -> None:
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m")]}
    bed.api.of_nodes = {"n1": figures_of_node("3500m"), "n2": figures_of_node("1")}
    pods = [pod("a", node="n1"), pod("b", node="n2")]
    assert await bed.nodes("n1", of=pods) == {"n1": CpuUse(3.5, at=AT, window=15.5)}
    assert bed.api.count("/nodes/") == 1
    assert await bed.nodes(of=pods) == {}
    assert bed.api.count("/nodes/") == 1


@pytest.mark.parametrize("cpu", [None, "much", "-1", [3]])
async def test_a_node_without_figures_is_left_out(bed: Bed, cpu: object) -> None:
    bed.api.metrics = {"team": [figures("a", "200m"), figures("b", "50m")]}
    bed.api.of_nodes = {"n1": figures_of_node(cpu), "n2": figures_of_node("1")}
    result = await bed.nodes("n1", "n2", of=[pod("a", node="n1"), pod("b", node="n2")])
    assert result == {"n2": CpuUse(1.0, at=AT, window=15.5)}


async def test_the_use_of_pods_is_known_without_the_right_to_nodes(bed: Bed) -> None:
    bed.api.metrics, bed.api.without = {"team": [figures("a", "200m")]}, 403
    for _ in range(3):
        content = await bed.usage.read([pod("a")], nodes={"n1"})
        assert isinstance(content.pods["a"], CpuUse)
        assert content.nodes == {}
    assert bed.api.count("/nodes/") == 1  # in a minute


async def test_a_missing_metrics_api_is_requested_once_a_minute(bed: Bed) -> None:
    for _ in range(6):  # in 70 s
        why = await bed.why(pod("a"))
        assert why.reason == names.REASON_CPU_USE_UNAVAILABLE
        assert "install metrics-server" in why.message
        bed.now += 14
    assert bed.api.count("metrics.k8s.io") == 2


async def test_a_namespace_without_the_right_has_the_reason_and_others_have_figures(
    bed: Bed,
) -> None:
    bed.api.metrics = {"team": [figures("a", "200m")], "other": 403}
    content = await bed.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(content["a"], CpuUse)
    assert content["b"] == Verdict(names.REASON_CPU_USE_FORBIDDEN, "metrics API: refused")


# --- requests for any number of failing names end -----------------------------------------------


class Asked:
    """Answers with the name, or fails as set; counts."""

    def __init__(self) -> None:
        self.faults: dict[str, ApiError] = {}
        self.silent: set[str] = set()
        self.names: list[str] = []
        self.under_way = self.most = 0
        self.now = 0.0

    def asking(self) -> Asking:
        return Asking(lambda: self.now)

    async def __call__(self, name: str) -> str:
        self.names.append(name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if name in self.silent:
                await asyncio.sleep(3600)
            await asyncio.sleep(0)
            if name in self.faults:
                raise self.faults[name]
            return name.upper()
        finally:
            self.under_way -= 1


@pytest.fixture
def asked() -> Asked:
    return Asked()


def fault(kind: type[ApiError], status: int = 0) -> ApiError:
    return kind(status=status, reason="", message="no")


FAULTS: dict[str, tuple[ApiError, str]] = {
    "a missing right": (fault(Forbidden), names.REASON_CPU_USE_FORBIDDEN),
    "a refused token": (fault(Unauthorized), names.REASON_CPU_USE_FORBIDDEN),
    "no answer": (fault(Unavailable), names.REASON_CPU_USE_UNAVAILABLE),
    "nothing there": (fault(NotFound), names.REASON_CPU_USE_UNAVAILABLE),
}


@pytest.mark.parametrize(("error", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_has_a_reason_and_does_not_affect_others(
    asked: Asked, error: ApiError, reason: str
) -> None:
    asked.faults["b"] = error
    answer = await asked.asking().ask(["a", "b", "c"], asked)
    assert answer == {"a": "A", "b": Verdict(reason, "metrics API: no"), "c": "C"}


async def test_a_failed_source_is_not_requested_for_a_while(asked: Asked) -> None:
    asked.faults["b"] = fault(Unavailable)
    of = asked.asking()
    first = await of.ask(["a", "b"], asked)
    asked.now += REST_SECONDS - 1
    assert await of.ask(["a", "b"], asked) == first
    assert asked.names.count("b") == 1
    asked.now += 1
    asked.faults.clear()
    assert await of.ask(["a", "b"], asked) == {"a": "A", "b": "B"}


async def test_few_requests_run_at_once(asked: Asked) -> None:
    answer = await asked.asking().ask(map(str, range(200)), asked)
    assert len(answer) == 200
    assert asked.most == AT_ONCE


async def test_a_resource_missing_for_one_name_is_requested_for_few_others(asked: Asked) -> None:
    everywhere = [str(number) for number in range(200)]
    asked.faults = dict.fromkeys(everywhere, fault(NotServed, 404))
    of = asked.asking()
    answer = await of.ask(everywhere, asked)
    assert {verdict.reason for verdict in answer.values() if isinstance(verdict, Verdict)} == {
        names.REASON_CPU_USE_UNAVAILABLE
    }
    assert len(asked.names) <= AT_ONCE
    await of.ask(["another"], asked)
    assert "another" not in asked.names


async def test_a_resource_missing_for_one_node_is_requested_for_the_others(asked: Asked) -> None:
    asked.faults["a"] = fault(NotFound, 404)
    of = asked.asking()
    await of.ask(["a"], asked)
    answer = await of.ask(["a", "b"], asked)
    assert answer["b"] == "B"
    assert asked.names == ["a", "b"]


async def test_silent_sources_do_not_block_the_others(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "ANSWER_SECONDS", 0.5)
    asked.silent = {f"hung-{number}" for number in range(AT_ONCE)}
    answer = await asked.asking().ask([*asked.silent, *map(str, range(50))], asked)
    assert [answer[str(number)] for number in range(50)] == list(map(str, range(50)))
    reasons = {answer[name].reason for name in asked.silent}  # type: ignore[union-attr]
    assert reasons == {names.REASON_CPU_USE_UNAVAILABLE}


async def test_after_too_many_silent_sources_the_rest_is_requested_the_next_time(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.silent = {f"hung-{number}" for number in range(200)}
    of = asked.asking()
    with monkeypatch.context() as patched:
        patched.setattr(usage, "ALL_SECONDS", 0.05)
        answer = await of.ask(asked.silent, asked)
    assert answer.keys() == asked.silent
    assert (len(asked.names), asked.under_way) == (AT_ONCE, 0)
    asked.silent = set()
    again = await of.ask(answer, asked)
    assert again == {name: name.upper() for name in answer}


async def test_a_long_message_is_cut(asked: Asked) -> None:
    asked.faults["a"] = Unavailable(status=500, reason="", message="x" * 10_000)
    result = (await asked.asking().ask(["a"], asked))["a"]
    assert isinstance(result, Verdict)
    assert len(result.message) < 250


# --- statements of the metrics API, by any server -------------------------------------------------


def beside(*pods: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one pod with the containers of all."""
    return pods[0] | {"containers": [result for pod in pods for result in pod["containers"]]}


def containers(*cpus: object, name: str = "pytorch") -> dict[str, Any]:
    used = [{"name": name, "usage": {"cpu": cpu}} for cpu in cpus]
    return figures("a", "0") | {"containers": used}


STATED: dict[str, tuple[dict[str, Any], float | None]] = {
    "nanocores, as metrics-server writes them": (containers("201234567n"), 0.201234567),
    "millicores": (containers("250m"), 0.25),
    "nothing used": (containers("0"), 0.0),
    "a sidecar, which does not count": (beside(containers("200m"), containers("1", name="x")), 0.2),
    "only other containers": (containers("200m", name="x"), None),
    "a sidecar without figures": (beside(containers("200m"), containers(None, name="x")), 0.2),
    "a container without figures": (containers(None), None),
    "a container with odd figures": (containers("much"), None),
    "a container with negative CPU": (containers("-200m"), None),
    "no containers": (containers(), None),
    "containers null": (figures("a", "0") | {"containers": None}, None),
    "no time": (figures("a", "100m") | {"timestamp": None}, None),
    "a malformed time": (figures("a", "100m", at="now"), None),
    "no window": (figures("a", "100m") | {"window": ""}, None),
    "a window without length": (figures("a", "100m") | {"window": "0s"}, None),
}


@pytest.mark.parametrize(("item", "cores"), STATED.values(), ids=STATED)
def test_the_figures_of_a_pod_in_a_list(item: dict[str, Any], cores: float | None) -> None:
    result = uses_of(json.dumps({"items": [item, figures("other", "1")]}).encode())
    assert result.get("a") == (None if cores is None else CpuUse(cores, at=AT, window=15.5))
    assert result["other"] == CpuUse(1.0, at=AT, window=15.5)


@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b'{"items": []}'])
def test_a_list_may_be_empty(body: bytes) -> None:
    assert uses_of(body) == {}


@pytest.mark.parametrize("body", [b"", b"[1", b'{"items": 1}', b'{"items": [{}]}', b"<html>"])
def test_a_malformed_list_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unavailable, match="not from the metrics API"):
        uses_of(body)


@given(st.binary(max_size=300))
def test_any_answer_is_read_without_an_error(body: bytes) -> None:
    with suppress(Unavailable):
        uses_of(b'{"items": [' + body + b"]}")

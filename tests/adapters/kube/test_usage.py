"""CPU use of pods and nodes from the metrics API, and why it is unknown."""

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
from kfext.kube.usage import AT_ONCE, BACK_OFF_SECONDS, BoundedRequests, Usage, uses_of
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.timestamps import timestamp
from kfext.model.verdict import Verdict

AT = timestamp("2026-11-22T10:00:30Z")


def pod_metrics(name: str, cpu: str, *, at: str = "2026-11-22T10:00:30Z") -> dict[str, Any]:
    """Return the PodMetrics of a pod."""
    used = {"cpu": cpu, "memory": "1Mi"}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "timestamp": at,
        "window": "15.5s",
        "containers": [{"name": "pytorch", "usage": used}],
    }


def node_metrics(cpu: object) -> dict[str, Any]:
    """Return the NodeMetrics of a node."""
    usage = {"cpu": cpu, "memory": "1Gi"}
    return {"timestamp": "2026-11-22T10:00:30Z", "window": "15.5s", "usage": usage}


class FakeCluster:
    """An API server with a metrics API.

    `metrics`: by namespace the PodMetrics, the HTTP status of a refusal, or a raw answer.
    `nodes`: by name the NodeMetrics.
    `missing_status`: the HTTP status for other namespaces and nodes.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[dict[str, Any]] | int | bytes] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.missing_status = 404
        self.requested: list[str] = []
        self.queries: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requested.append(request.path)
        self.queries.append(dict(request.query))
        if request.path.startswith("/apis/metrics.k8s.io/v1beta1/nodes/"):
            found = self.nodes.get(request.path.split("/")[-1])
            return web.json_response(found or {}, status=200 if found else self.missing_status)
        content = self.metrics.get(request.path.split("/")[-2], self.missing_status)
        if isinstance(content, int):
            return web.json_response({"message": "refused"}, status=content)
        if isinstance(content, bytes):
            return web.Response(body=content)
        return web.json_response({"items": content})

    def count(self, part: str) -> int:
        """Return the number of requests with `part` in their path."""
        return sum(part in path for path in self.requested)


class Harness:
    """A Usage adapter that reads from a FakeCluster, with a settable clock `now`."""

    def __init__(self, api: FakeCluster, client: Client) -> None:
        self.api, self.now = api, 5000.0
        self.usage = Usage(client, monotonic=lambda: self.now)

    async def read(self, *pods: Pod) -> Mapping[str, CpuUse | Verdict]:
        return (await self.usage.read(pods)).pods

    async def nodes(self, *names: str, pods: Iterable[Pod]) -> Mapping[str, CpuUse]:
        return (await self.usage.read(pods, nodes={*names})).nodes

    async def why(self, pod: Pod) -> Verdict:
        result = (await self.read(pod))[pod.uid]
        assert isinstance(result, Verdict), result
        return result


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    api, app = FakeCluster(), web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    url = str(server.make_url("")).rstrip("/")
    async with Client(Access(server=url, tls=None, token=Token(lambda: ""))) as client:
        yield Harness(api, client)
    await server.close()


def pod(name: str, *, node: str = "n1", uid: str = "", created: float = 0.0) -> Pod:
    return Pod("team", name, uid or name, node_name=node, created=created)


# --- pods and nodes -------------------------------------------------------------------------------


async def test_one_list_per_namespace_is_requested_of_the_metrics_api(harness: Harness) -> None:
    harness.api.metrics = {
        "team": [pod_metrics("a", "200m"), pod_metrics("b", "50m"), pod_metrics("c", "1")]
    }
    content = await harness.read(pod("a", node="n1"), pod("b", node="n2"))
    assert content == {"a": CpuUse(0.2, at=AT, window=15.5), "b": CpuUse(0.05, at=AT, window=15.5)}
    assert harness.api.requested == ["/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"]
    assert harness.api.queries == [{"labelSelector": names.JOB_NAME}]


async def test_a_pod_without_metrics_is_pending(harness: Harness) -> None:
    harness.api.metrics = {"team": [pod_metrics("b", "50m")]}
    content = await harness.read(pod("a"), pod("b"))
    assert isinstance(content["a"], Verdict)
    assert content["a"].reason == names.REASON_CPU_USE_PENDING
    assert content["b"] == CpuUse(0.05, at=AT, window=15.5)


async def test_metrics_of_an_earlier_pod_of_the_same_name_do_not_count_for_the_new_pod(
    harness: Harness,
) -> None:
    harness.api.metrics = {"team": [pod_metrics("a", "200m")]}
    new = await harness.why(pod("a", uid="new", created=AT))
    assert new.reason == names.REASON_CPU_USE_PENDING
    assert isinstance((await harness.read(pod("a", created=AT - 20)))["a"], CpuUse)


async def test_an_unbound_pod_is_pending_and_nothing_is_requested(harness: Harness) -> None:
    assert (await harness.why(pod("a", node=""))).reason == names.REASON_CPU_USE_PENDING
    assert harness.api.requested == []


async def test_nothing_is_requested_without_pods(harness: Harness) -> None:
    assert await harness.read() == {}
    assert harness.api.requested == []


async def test_a_list_that_is_too_long_affects_only_its_own_namespace(harness: Harness) -> None:
    harness.api.metrics = {"team": [pod_metrics("a", "200m")], "other": b" " * (4 * 2**20 + 1)}
    content = await harness.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(content["a"], CpuUse)
    assert isinstance(content["b"], Verdict)
    assert "more than 4194304 bytes" in content["b"].message


async def test_only_the_use_of_the_named_nodes_is_read(harness: Harness) -> None:
    harness.api.metrics = {"team": [pod_metrics("a", "200m"), pod_metrics("b", "50m")]}
    harness.api.nodes = {"n1": node_metrics("3500m"), "n2": node_metrics("1")}
    pods = [pod("a", node="n1"), pod("b", node="n2")]
    assert await harness.nodes("n1", pods=pods) == {"n1": CpuUse(3.5, at=AT, window=15.5)}
    assert harness.api.count("/nodes/") == 1
    assert await harness.nodes(pods=pods) == {}
    assert harness.api.count("/nodes/") == 1


@pytest.mark.parametrize("cpu", [None, "much", "-1", [3]])
async def test_a_node_without_valid_metrics_is_left_out(harness: Harness, cpu: object) -> None:
    harness.api.metrics = {"team": [pod_metrics("a", "200m"), pod_metrics("b", "50m")]}
    harness.api.nodes = {"n1": node_metrics(cpu), "n2": node_metrics("1")}
    result = await harness.nodes("n1", "n2", pods=[pod("a", node="n1"), pod("b", node="n2")])
    assert result == {"n2": CpuUse(1.0, at=AT, window=15.5)}


async def test_the_use_of_pods_is_known_without_the_permission_to_read_nodes(
    harness: Harness,
) -> None:
    harness.api.metrics, harness.api.missing_status = {"team": [pod_metrics("a", "200m")]}, 403
    for _ in range(3):
        content = await harness.usage.read([pod("a")], nodes={"n1"})
        assert isinstance(content.pods["a"], CpuUse)
        assert content.nodes == {}
    assert harness.api.count("/nodes/") == 1  # the back-off is a minute


async def test_a_missing_metrics_api_is_requested_once_a_minute(harness: Harness) -> None:
    for _ in range(6):  # within 70 s
        why = await harness.why(pod("a"))
        assert why.reason == names.REASON_CPU_USE_UNAVAILABLE
        assert "install metrics-server" in why.message
        harness.now += 14
    assert harness.api.count("metrics.k8s.io") == 2


async def test_only_a_namespace_without_the_permission_has_unknown_use(harness: Harness) -> None:
    harness.api.metrics = {"team": [pod_metrics("a", "200m")], "other": 403}
    content = await harness.read(pod("a"), Pod("other", "b", "b", node_name="n1"))
    assert isinstance(content["a"], CpuUse)
    assert content["b"] == Verdict(names.REASON_CPU_USE_FORBIDDEN, "metrics API: refused")


# --- requests for any number of failing names end in bounded time -------------------------------


class FakeRequest:
    """A request that returns the name in upper case, or fails as set; it counts the calls."""

    def __init__(self) -> None:
        self.faults: dict[str, ApiError] = {}
        self.silent: set[str] = set()
        self.names: list[str] = []
        self.running = self.most = 0
        self.now = 0.0

    def new(self) -> BoundedRequests:
        return BoundedRequests(lambda: self.now)

    async def __call__(self, name: str) -> str:
        self.names.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if name in self.silent:
                await asyncio.sleep(3600)
            await asyncio.sleep(0)
            if name in self.faults:
                raise self.faults[name]
            return name.upper()
        finally:
            self.running -= 1


@pytest.fixture
def fake() -> FakeRequest:
    return FakeRequest()


def fault(kind: type[ApiError], status: int = 0) -> ApiError:
    return kind(status=status, reason="", message="no")


FAULTS: dict[str, tuple[ApiError, str]] = {
    "a missing permission": (fault(Forbidden), names.REASON_CPU_USE_FORBIDDEN),
    "a refused token": (fault(Unauthorized), names.REASON_CPU_USE_FORBIDDEN),
    "no answer": (fault(Unavailable), names.REASON_CPU_USE_UNAVAILABLE),
    "not found": (fault(NotFound), names.REASON_CPU_USE_UNAVAILABLE),
}


@pytest.mark.parametrize(("error", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_has_a_reason_and_does_not_affect_others(
    fake: FakeRequest, error: ApiError, reason: str
) -> None:
    fake.faults["b"] = error
    answer = await fake.new().request_all(["a", "b", "c"], fake)
    assert answer == {"a": "A", "b": Verdict(reason, "metrics API: no"), "c": "C"}


async def test_a_failed_name_is_not_requested_again_for_a_minute(fake: FakeRequest) -> None:
    fake.faults["b"] = fault(Unavailable)
    requests = fake.new()
    first = await requests.request_all(["a", "b"], fake)
    fake.now += BACK_OFF_SECONDS - 1
    assert await requests.request_all(["a", "b"], fake) == first
    assert fake.names.count("b") == 1
    fake.now += 1
    fake.faults.clear()
    assert await requests.request_all(["a", "b"], fake) == {"a": "A", "b": "B"}


async def test_the_number_of_concurrent_requests_is_bounded(fake: FakeRequest) -> None:
    answer = await fake.new().request_all(map(str, range(200)), fake)
    assert len(answer) == 200
    assert fake.most == AT_ONCE


async def test_if_the_api_server_does_not_serve_a_path_no_other_name_is_requested(
    fake: FakeRequest,
) -> None:
    nodes = [str(number) for number in range(200)]
    fake.faults = dict.fromkeys(nodes, fault(NotServed, 404))
    requests = fake.new()
    answer = await requests.request_all(nodes, fake)
    assert {verdict.reason for verdict in answer.values() if isinstance(verdict, Verdict)} == {
        names.REASON_CPU_USE_UNAVAILABLE
    }
    assert len(fake.names) <= AT_ONCE
    await requests.request_all(["another"], fake)
    assert "another" not in fake.names


async def test_if_a_node_is_not_found_the_other_nodes_are_requested(fake: FakeRequest) -> None:
    fake.faults["a"] = fault(NotFound, 404)
    requests = fake.new()
    await requests.request_all(["a"], fake)
    answer = await requests.request_all(["a", "b"], fake)
    assert answer["b"] == "B"
    assert fake.names == ["a", "b"]


async def test_names_without_an_answer_do_not_block_the_others(
    fake: FakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "ANSWER_SECONDS", 0.5)
    fake.silent = {f"hung-{number}" for number in range(AT_ONCE)}
    answer = await fake.new().request_all([*fake.silent, *map(str, range(50))], fake)
    assert [answer[str(number)] for number in range(50)] == list(map(str, range(50)))
    reasons = {answer[name].reason for name in fake.silent}  # type: ignore[union-attr]
    assert reasons == {names.REASON_CPU_USE_UNAVAILABLE}


async def test_names_that_were_too_late_are_requested_the_next_time(
    fake: FakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.silent = {f"hung-{number}" for number in range(200)}
    requests = fake.new()
    with monkeypatch.context() as patched:
        patched.setattr(usage, "ALL_SECONDS", 0.05)
        answer = await requests.request_all(fake.silent, fake)
    assert answer.keys() == fake.silent
    assert (len(fake.names), fake.running) == (AT_ONCE, 0)
    fake.silent = set()
    again = await requests.request_all(answer, fake)
    assert again == {name: name.upper() for name in answer}


async def test_a_long_message_is_cut(fake: FakeRequest) -> None:
    fake.faults["a"] = Unavailable(status=500, reason="", message="x" * 10_000)
    result = (await fake.new().request_all(["a"], fake))["a"]
    assert isinstance(result, Verdict)
    assert len(result.message) < 250


# --- what a list of PodMetrics may contain --------------------------------------------------------


def in_one_pod(*pods: dict[str, Any]) -> dict[str, Any]:
    """Return the PodMetrics of one pod with the containers of all these pods."""
    return pods[0] | {"containers": [container for pod in pods for container in pod["containers"]]}


def containers(*cpus: object, name: str = "pytorch") -> dict[str, Any]:
    usages = [{"name": name, "usage": {"cpu": cpu}} for cpu in cpus]
    return pod_metrics("a", "0") | {"containers": usages}


REPORTED: dict[str, tuple[dict[str, Any], float | None]] = {
    "nanocores, as metrics-server writes them": (containers("201234567n"), 0.201234567),
    "millicores": (containers("250m"), 0.25),
    "no use": (containers("0"), 0.0),
    "a sidecar, which does not count": (
        in_one_pod(containers("200m"), containers("1", name="x")),
        0.2,
    ),
    "only other containers": (containers("200m", name="x"), None),
    "a sidecar without CPU use": (in_one_pod(containers("200m"), containers(None, name="x")), 0.2),
    "a container without CPU use": (containers(None), None),
    "a container with malformed CPU use": (containers("much"), None),
    "a container with negative CPU": (containers("-200m"), None),
    "no containers": (containers(), None),
    "containers null": (pod_metrics("a", "0") | {"containers": None}, None),
    "no time": (pod_metrics("a", "100m") | {"timestamp": None}, None),
    "a malformed time": (pod_metrics("a", "100m", at="now"), None),
    "no window": (pod_metrics("a", "100m") | {"window": ""}, None),
    "a window without length": (pod_metrics("a", "100m") | {"window": "0s"}, None),
}


@pytest.mark.parametrize(("item", "cores"), REPORTED.values(), ids=REPORTED)
def test_the_use_of_a_pod_in_a_list(item: dict[str, Any], cores: float | None) -> None:
    result = uses_of(json.dumps({"items": [item, pod_metrics("other", "1")]}).encode())
    assert result.get("a") == (None if cores is None else CpuUse(cores, at=AT, window=15.5))
    assert result["other"] == CpuUse(1.0, at=AT, window=15.5)


@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b'{"items": []}'])
def test_a_list_may_be_empty(body: bytes) -> None:
    assert uses_of(body) == {}


@pytest.mark.parametrize("body", [b"", b"[1", b'{"items": 1}', b'{"items": [{}]}', b"<html>"])
def test_a_malformed_list_counts_as_no_answer(body: bytes) -> None:
    with pytest.raises(Unavailable, match="not from the metrics API"):
        uses_of(body)


@given(st.binary(max_size=300))
def test_any_answer_is_read_without_an_error(body: bytes) -> None:
    with suppress(Unavailable):
        uses_of(b'{"items": [' + body + b"]}")

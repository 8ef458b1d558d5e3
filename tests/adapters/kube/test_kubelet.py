"""Kubelets that are whom they claim to be, and others; the token that they are shown."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.testbed.pki import Pki
from kfext.errors import ApiError, Forbidden, NotFound, Unavailable, Unverified
from kfext.kube.access import Access, Token
from kfext.kube.client import Client
from kfext.kube.kubelet import MOST_BYTES, Kubelets, Readings, endpoint_of, parsed
from kfext.model.cpu_use import CpuReading

from .usage_servers import NODE_TOKEN, OWN_TOKEN, Answering, FakeCluster, counters


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


class Bed:
    """A cluster with kubelets, and the adapter."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.pki = Pki(folder / "cluster")
        self.stranger = Pki(folder / "stranger")
        self.api = FakeCluster()
        self.clock = Clock()
        self.stack = stack
        self.kubelets: Kubelets

    async def start(self) -> None:
        client = await self.stack.enter_async_context(self.api.client(self.pki))
        self.kubelets = Kubelets(client, monotonic=self.clock)
        self.stack.push_async_callback(self.kubelets.close)

    async def kubelet(
        self, name: str, *, pki: Pki | None = None, host: str = "127.0.0.1"
    ) -> Answering:
        made = Answering(counters(a=12.5))
        await self.stack.enter_async_context(made.serving(pki or self.pki, host=host))
        self.api.nodes[name] = ("127.0.0.1", made.port)
        return made


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with AsyncExitStack() as stack:
        made = Bed(tmp_path, stack)
        await made.start()
        yield made


READING = CpuReading(12.5, at=1000.0, read=5000.0)


async def test_counters_are_read_with_the_token_of_the_account_for_nodes(bed: Bed) -> None:
    kubelet = await bed.kubelet("n1")
    assert await bed.kubelets.readings("n1") == Readings({("team", "a"): READING})
    assert kubelet.shown == [f"Bearer {NODE_TOKEN}"]
    assert kubelet.requests[0].path == "/metrics/resource"


async def test_token_and_address_are_asked_for_once(bed: Bed) -> None:
    await bed.kubelet("n1")
    await bed.kubelet("n2")
    for _ in range(3):
        await bed.kubelets.readings("n1")
        await bed.kubelets.readings("n2")
    assert (bed.api.count("/token"), bed.api.count("/nodes")) == (1, 2)


async def test_a_token_is_asked_for_again_before_it_expires(bed: Bed) -> None:
    await bed.kubelet("n1")
    await bed.kubelets.readings("n1")
    bed.clock.now += 479
    await bed.kubelets.readings("n1")
    assert bed.api.count("/token") == 1
    bed.clock.now += 1
    await bed.kubelets.readings("n1")
    assert bed.api.count("/token") == 2


async def test_without_the_right_to_a_token_no_node_is_asked_and_the_api_server_once(
    bed: Bed,
) -> None:
    kubelet = await bed.kubelet("n1")
    bed.api.token_status = 403
    for _ in range(3):
        with pytest.raises(Forbidden):
            await bed.kubelets.readings("n1")
    assert (bed.api.asked, kubelet.requests) == ([bed.api.asked[0]], [])
    bed.api.token_status = 201
    bed.clock.now += 60
    assert await bed.kubelets.readings("n1")


UNPROVEN: dict[str, Callable[[Bed], dict[str, Any]]] = {
    "signed by itself or a stranger": lambda bed: {"pki": bed.stranger},
    "signed for another address": lambda _: {"host": "10.0.0.9"},
    "signed for a name only": lambda _: {"host": "n1"},
}


@pytest.mark.parametrize("how", UNPROVEN.values(), ids=UNPROVEN)
async def test_a_kubelet_without_a_certificate_of_the_cluster_is_sent_nothing(
    bed: Bed, how: Callable[[Bed], dict[str, Any]]
) -> None:
    kubelet = await bed.kubelet("n1", **how(bed))
    with pytest.raises(Unverified, match="certificate of the kubelet of n1"):
        await bed.kubelets.readings("n1")
    assert kubelet.requests == []


def unverified() -> ssl.SSLContext:
    """Return what `insecure-skip-tls-verify` of a kubeconfig makes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("tls", [None, unverified()], ids=["plain HTTP", "any certificate"])
async def test_where_the_api_server_is_not_verified_no_kubelet_is_asked(
    tls: ssl.SSLContext | None,
) -> None:
    access = Access(server="http://127.0.0.1:1", tls=tls, token=Token(lambda: OWN_TOKEN))
    async with Client(access) as client:
        with pytest.raises(Unverified, match="the API server is not verified"):
            await Kubelets(client).readings("n1")


async def test_a_redirect_is_not_followed(bed: Bed) -> None:
    kubelet, other = await bed.kubelet("n1"), await bed.kubelet("n2")
    kubelet.status = 307
    kubelet.headers = {"Location": f"https://127.0.0.1:{other.port}/metrics/resource"}
    with pytest.raises(ApiError, match="the kubelet of n1 answered 307"):
        await bed.kubelets.readings("n1")
    assert other.requests == []


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ApiError), (403, Forbidden), (404, NotFound), (500, Unavailable)]
)
async def test_a_refusal_quotes_nothing_that_the_kubelet_wrote(
    bed: Bed, status: int, kind: type[ApiError]
) -> None:
    kubelet = await bed.kubelet("n1")
    kubelet.status, kubelet.body = status, b"<script>\x1b[31m"
    with pytest.raises(kind) as raised:
        await bed.kubelets.readings("n1")
    assert raised.value.message == f"the kubelet of n1 answered {status}"


@pytest.mark.parametrize(
    ("size", "headers", "message"),
    [
        (MOST_BYTES + 1, {}, "more than"),
        (100, {}, "states no CPU time"),
        (100, {"Content-Encoding": "gzip"}, "states no CPU time"),
    ],
)
async def test_an_answer_that_is_too_long_or_no_list_of_counters(
    bed: Bed, size: int, headers: dict[str, str], message: str
) -> None:
    kubelet = await bed.kubelet("n1")
    kubelet.body, kubelet.headers = b"x" * size, headers
    with pytest.raises(ApiError, match=message):
        await bed.kubelets.readings("n1")


async def test_a_node_that_came_back_elsewhere_is_found_again(bed: Bed) -> None:
    await bed.kubelet("n1")
    await bed.kubelets.readings("n1")
    address, _ = bed.api.nodes["n1"]
    bed.api.nodes["n1"] = (address, 1)  # nobody listens there
    bed.clock.now += 600
    with pytest.raises(Unavailable, match="does not answer"):
        await bed.kubelets.readings("n1")
    await bed.kubelet("n1")
    assert await bed.kubelets.readings("n1")


@pytest.mark.parametrize(
    ("name", "asked"),
    [("gone", 1), ("", 0), ("a,spec.unschedulable=true", 0), ("n1\n", 0), ("x" * 254, 0)],
)
async def test_a_node_that_does_not_exist_or_cannot(bed: Bed, name: str, asked: int) -> None:
    with pytest.raises(NotFound):
        await bed.kubelets.readings(name)
    assert bed.api.count("/nodes") == asked


def node(address: object, port: object) -> dict[str, Any]:
    return {
        "status": {
            "addresses": [
                {"type": "ExternalIP", "address": "8.8.8.8"},
                {"type": "InternalIP", "address": address},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
    }


ENDPOINTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "address and port": (node("10.0.0.1", 10250), "https://10.0.0.1:10250/metrics/resource"),
    "an IPv6 address": (node("fd00::1", 10250), "https://[fd00::1]:10250/metrics/resource"),
    "a name in place of the address": (node("metadata.internal", 10250), None),
    "more than an address": (node("10.0.0.1/x?y", 10250), None),
    "no address": (node(None, 10250), None),
    "a port that is none": (node("10.0.0.1", "10250"), None),
    "no port": (node("10.0.0.1", None), None),
    "port 0": (node("10.0.0.1", 0), None),
    "a port beyond all ports": (node("10.0.0.1", 65536), None),
    "no status": ({}, None),
}


@pytest.mark.parametrize(("raw", "want"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_where_a_kubelet_is_asked(raw: dict[str, Any], want: str | None) -> None:
    found = endpoint_of(raw)
    assert (str(found) if found else None) == want


LINES: dict[str, tuple[bytes, float | None]] = {
    "a number": (b'namespace="team",pod="a"} 12.5 1000000', 12.5),
    "a large number": (b'namespace="team",pod="a"} 1.2345e+06 1000000', 1234500.0),
    "without a time": (b'namespace="team",pod="a"} 12.5', None),
    "a number with two points": (b'namespace="team",pod="a"} 1.2.3 1000000', None),
    "a number beyond all": (b'namespace="team",pod="a"} 9e999 1000000', None),
    "not a number": (b'namespace="team",pod="a"} NaN 1000000', None),
    "infinite": (b'namespace="team",pod="a"} +Inf 1000000', None),
    "negative": (b'namespace="team",pod="a"} -1 1000000', None),
    "a name that no pod has": (b'namespace="team",pod="a\\n"} 1 1000000', None),
    "no pod": (b'namespace="team"} 1 1000000', None),
}


@pytest.mark.parametrize(("line", "want"), LINES.values(), ids=LINES)
def test_what_a_line_states(line: bytes, want: float | None) -> None:
    body = (
        b"# TYPE pod_cpu_usage_seconds_total counter\n"
        b'container_cpu_usage_seconds_total{container="x",namespace="team",pod="a"} 7 1000000\n'
        b"pod_cpu_usage_seconds_total{" + line + b"\n"
    )
    want_all = {} if want is None else {("team", "a"): CpuReading(want, at=1000.0, read=1.0)}
    assert parsed(body, read=1.0) == Readings(want_all)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(b"node_cpu_usage_seconds_total 51081.5 1000000", 51081.5, id="its counter"),
        pytest.param(b"node_cpu_usage_seconds_total NaN 1000000", None, id="not a number"),
        pytest.param(b'node_cpu_usage_seconds_total{cpu="0"} 7 1000000', None, id="of one CPU"),
    ],
)
def test_what_a_line_states_of_the_node(line: bytes, want: float | None) -> None:
    reading = None if want is None else CpuReading(want, at=1000.0, read=1.0)
    assert parsed(b"# HELP x\n" + line + b"\n", read=1.0) == Readings({}, reading)

"""The client against a true API server, and against faults on the way."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from e2e.testbed.cluster import Testbed
from kfext import errors
from kfext.kube import paths
from kfext.kube.access import Access, Token, in_cluster
from kfext.kube.client import Client
from kfext.kube.paths import resource_path

from .faulty_server import FaultyServer, Refuse

Act = Callable[[Client, str], Awaitable[object]]


def configmaps(namespace: str, name: str = "") -> str:
    return resource_path("configmaps", namespace=namespace, name=name)


def configmap(name: str, **data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"tried": "yes"}},
        "data": data,
    }


async def test_an_object_from_creation_to_deletion(client: Client, namespace: str) -> None:
    made = await client.create(configmaps(namespace), configmap("a", x="1"))
    path = configmaps(namespace, "a")

    await client.json_patch(
        path,
        [
            {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
            {"op": "add", "path": "/data/y", "value": "2"},
        ],
    )
    await client.merge_patch(path, {"data": {"x": None, "z": "3"}})
    await client.apply(path, configmap("a", z="4"))

    found = await client.get(path)
    assert found["data"] == {"y": "2", "z": "4"}
    await client.delete(path, uid=found["metadata"]["uid"], grace=0)
    with pytest.raises(errors.NotFound):
        await client.get(path)


async def test_lists_are_merged_by_their_keys(client: Client, namespace: str) -> None:
    containers = [{"name": name, "image": "i"} for name in ("a", "b")]
    spec = {"schedulerName": "nobody", "containers": containers}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    made = await client.create(paths.pods(namespace), pod)
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    wanted = {"metadata": version, "spec": {"containers": [{"name": "b", "image": "j"}]}}

    found = await client.strategic_patch_as(paths.pods(namespace, "p"), wanted, decode=orjson.loads)

    assert [one["image"] for one in found["spec"]["containers"]] == ["i", "j"]
    with pytest.raises(errors.Conflict):
        await client.strategic_patch_as(paths.pods(namespace, "p"), wanted, decode=orjson.loads)


async def test_apply_creates_what_is_absent(client: Client, namespace: str) -> None:
    made = await client.apply(configmaps(namespace, "new"), configmap("new", x="1"))

    assert made["data"] == {"x": "1"}


REFUSALS: dict[str, tuple[Act, type[errors.ApiError]]] = {
    "an object that is not there": (
        lambda client, ns: client.get(configmaps(ns, "absent")),
        errors.NotFound,
    ),
    "a name that is taken": (
        lambda client, ns: client.create(configmaps(ns), configmap("here")),
        errors.Conflict,
    ),
    "a failed test of a JSON patch": (
        lambda client, ns: client.json_patch(
            configmaps(ns, "here"), [{"op": "test", "path": "/metadata/uid", "value": "other"}]
        ),
        errors.Invalid,
    ),
    "a test of a field that is absent": (
        lambda client, ns: client.json_patch(
            configmaps(ns, "here"), [{"op": "test", "path": "/data/none", "value": "x"}]
        ),
        errors.Invalid,
    ),
    "a stale resource version": (
        lambda client, ns: client.merge_patch(
            configmaps(ns, "here"), {"metadata": {"resourceVersion": "1"}, "data": {"x": "2"}}
        ),
        errors.Conflict,
    ),
    "the deletion of a namesake": (
        lambda client, ns: client.delete(configmaps(ns, "here"), uid="other"),
        errors.Conflict,
    ),
    "the deletion of another version": (
        lambda client, ns: client.delete(configmaps(ns, "here"), resource_version="1"),
        errors.Conflict,
    ),
    "a value that breaks the schema": (
        lambda client, ns: client.create(configmaps(ns), configmap("Not A Name")),
        errors.Invalid,
    ),
    "a body that cannot be read": (
        lambda client, ns: client.create(configmaps(ns), {"metadata": "text"}),
        errors.BadRequest,
    ),
}


@pytest.mark.parametrize(("act", "want"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refusal_has_its_own_error(
    act: Act, want: type[errors.ApiError], client: Client, namespace: str
) -> None:
    await client.create(configmaps(namespace), configmap("here", x="1"))

    with pytest.raises(errors.ApiError) as caught:
        await act(client, namespace)

    assert type(caught.value) is want
    assert caught.value.message


async def test_a_user_without_rights_is_forbidden(testbed: Testbed, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "nobody"
    testbed.pki.kubeconfig(kubeconfig, server=testbed.server, user="nobody")

    async with await Client.connect(kubeconfig) as nobody:
        with pytest.raises(errors.Forbidden, match="nobody"):
            await nobody.get(paths.nodes())


async def test_a_pod_finds_the_server_by_its_service_account(
    testbed: Testbed, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = paths.resource_path(
        "serviceaccounts", namespace="default", name="default", subresource="token"
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await client.create(account, request))["status"]["token"]
    (tmp_path / "token").write_text(token + "\n")
    shutil.copy(testbed.pki.authority.certificate, tmp_path / "ca.crt")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(testbed.apiserver_port))

    async with Client(in_cluster(folder=tmp_path)) as pod:
        with pytest.raises(errors.Forbidden, match="system:serviceaccount:default:default"):
            await pod.get(paths.nodes())


async def test_a_list_has_all_pages(client: Client, namespace: str) -> None:
    await asyncio.gather(
        *(client.create(configmaps(namespace), configmap(f"m-{i}")) for i in range(520))
    )

    found = await client.list_all(configmaps(namespace), labelSelector="tried=yes")

    assert sorted(item["metadata"]["name"] for item in found) == sorted(
        f"m-{i}" for i in range(520)
    )


async def test_every_request_is_observed(testbed: Testbed, namespace: str) -> None:
    seen: list[tuple[str, str, int]] = []
    client = await Client.connect(
        testbed.kubeconfig, observe=lambda verb, what, status, _: seen.append((verb, what, status))
    )
    async with client:
        await client.create(configmaps(namespace), configmap("a"))
        await client.merge_patch(configmaps(namespace, "a"), {"data": {"x": "1"}})
        await client.list_all(configmaps(namespace))
        with pytest.raises(errors.NotFound):
            await client.get(paths.pods(namespace, "absent"))

    assert seen == [
        ("create", "configmaps", 201),
        ("patch", "configmaps", 200),
        ("list", "configmaps", 200),
        ("get", "pods", 404),
    ]


async def test_a_throttled_request_is_sent_again(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [Refuse(429, {"Retry-After": "0"}), Refuse(429, {"Retry-After": "0"}), b"{}"]

    assert await faulty_client.get("/api/v1/nodes/a") == {}
    assert len(faulty.read_queries) == 3


async def test_throttling_without_end_is_an_error(
    faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads += [Refuse(429, {"Retry-After": "0"})] * 4

    with pytest.raises(errors.TooManyRequests):
        await faulty_client.get("/api/v1/nodes/a")


async def test_a_refused_token_is_read_anew_once(faulty: FaultyServer) -> None:
    tokens = iter(["Bearer old", "Bearer new", "Bearer newer"])
    access = Access(server=faulty.url, tls=None, token=Token(lambda: next(tokens)))
    faulty.reads += [Refuse(401), b"{}", Refuse(401), Refuse(401)]

    async with Client(access) as client:
        await client.get("/api/v1/nodes/a")
        with pytest.raises(errors.Unauthorized):
            await client.get("/api/v1/nodes/a")

    assert faulty.tokens == ["Bearer old", "Bearer new", "Bearer new", "Bearer newer"]


UNAVAILABLE: dict[str, bytes | Refuse] = {
    "a 503": Refuse(503),
    "an answer that is no JSON": orjson.dumps({"a": 1})[:3],
}


@pytest.mark.parametrize("answer", UNAVAILABLE.values(), ids=UNAVAILABLE.keys())
async def test_a_server_in_trouble_is_unavailable(
    answer: bytes | Refuse, faulty: FaultyServer, faulty_client: Client
) -> None:
    faulty.reads.append(answer)

    with pytest.raises(errors.Unavailable):
        await faulty_client.get("/api/v1/nodes/a")
    assert len(faulty.read_queries) == 1, "a write would have been repeated"


async def test_a_server_that_is_gone_is_unavailable() -> None:
    seen: list[int] = []
    access = Access(server="http://127.0.0.1:9", tls=None, token=Token(lambda: ""))
    async with Client(access, observe=lambda *args: seen.append(args[2])) as client:
        with pytest.raises(errors.Unavailable):
            await client.get("/api/v1/nodes/a")

    assert seen == [0]


async def test_who_may_not_write_any_more_reads_only(
    testbed: Testbed, client: Client, namespace: str
) -> None:
    leading = True
    await client.create(configmaps(namespace), configmap("a", x="1"))
    path = configmaps(namespace, "a")
    async with await Client.connect(testbed.kubeconfig) as ours:
        ours.write_only_while(lambda: leading)
        await ours.merge_patch(path, {"data": {"x": "2"}})

        leading = False
        acts: tuple[Awaitable[object], ...] = (
            ours.merge_patch(path, {"data": {"x": "3"}}),
            ours.json_patch(path, [{"op": "add", "path": "/data/x", "value": "3"}]),
            ours.create(configmaps(namespace), configmap("b")),
            ours.apply(configmaps(namespace, "b"), configmap("b")),
            ours.delete(path),
        )
        for act in acts:
            with pytest.raises(errors.NotLeading):
                await act

        assert (await ours.get(path))["data"] == {"x": "2"}
    assert "b" not in [one["metadata"]["name"] for one in await client.list_all(path[:-2])]

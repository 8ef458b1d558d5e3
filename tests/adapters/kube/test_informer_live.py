"""The informer against a true API server, restarts included."""

import asyncio
from contextlib import aclosing

import orjson
import pytest

from e2e.testbed.cluster import Testbed
from kfext.errors import ApiError, Gone
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.informer import Backoff, Change, Informer, Lines, decode_change, stream_error
from kfext.kube.wire import decode_node, decode_pod

from .conftest import until
from .test_client import configmap, configmaps
from .test_informer_faults import running


def decode(raw: bytes) -> str:
    data = orjson.loads(raw).get("data") or {}
    return str(data.get("x", ""))


async def test_changes_of_the_cluster_reach_the_copy(client: Client, namespace: str) -> None:
    await asyncio.gather(
        *(client.create(configmaps(namespace), configmap(f"m-{i}", x="old")) for i in range(520))
    )
    followed = Informer(
        client, configmaps(namespace), decode=decode, selectors={"labelSelector": "tried=yes"}
    )

    async with running(followed):
        await until(followed.synced.is_set, what="synced")
        assert len(followed.store) == 520  # two pages
        await client.create(configmaps(namespace), configmap("new", x="1"))
        await client.merge_patch(configmaps(namespace, "m-7"), {"data": {"x": "changed"}})
        await client.delete(configmaps(namespace, "m-8"))
        await client.delete(configmaps(namespace, "m-9"))
        await until(lambda: len(followed.store) == 519, what="the deletions")

        assert followed.store.by_name("new", namespace=namespace) == "1"
        assert followed.store.by_name("m-7", namespace=namespace) == "changed"
        assert followed.store.by_name("m-8", namespace=namespace) is None
        assert followed.metrics.relists == 1
        assert followed.metrics.failures == 0


async def test_a_restart_of_the_api_server_is_survived(
    testbed: Testbed, client: Client, namespace: str
) -> None:
    followed = Informer(
        client,
        configmaps(namespace),
        decode=decode,
        selectors={"labelSelector": "tried=yes"},
        backoff=Backoff(first=0.1, longest=1.0),
    )
    async with running(followed):
        await until(followed.synced.is_set, what="synced")
        await client.create(configmaps(namespace), configmap("before", x="1"))
        await until(lambda: len(followed.store) == 1, what="the first object")

        await asyncio.to_thread(testbed.restart_process, "kube-apiserver")
        while True:
            try:
                await client.create(configmaps(namespace), configmap("after", x="2"))
                break
            except ApiError:
                await asyncio.sleep(0.1)

        await until(lambda: len(followed.store) == 2, what="the object created after the restart")
        assert followed.metrics.failures > 0


async def test_the_server_reports_expired_history_in_the_stream(client: Client) -> None:
    lines = Lines()
    chunks = client.watch(
        paths.namespaces(), resource_version="1", server_seconds=5, silence_seconds=30
    )

    async def changes() -> list[Change]:
        async with aclosing(chunks):
            return [decode_change(line) async for chunk in chunks for line in lines.feed(chunk)]

    try:
        (change,) = await changes()
    except Gone:
        return  # the HTTP status said so, which is as good
    assert change.type == "ERROR"
    assert isinstance(stream_error(bytes(change.object)), Gone)


@pytest.fixture
def pod_manifest() -> dict[str, object]:
    return {
        "metadata": {"name": "p"},
        "spec": {
            "schedulingGates": [{"name": "kfext.dev/placement"}],
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "c",
                    "image": "none",
                    "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
                }
            ],
        },
    }


async def test_pods_and_nodes_of_a_true_api_server_are_read(
    client: Client, namespace: str, pod_manifest: dict[str, object]
) -> None:
    account = paths.Namespaced("serviceaccounts")(namespace)
    await client.apply(
        f"{account}/default",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
    )
    await client.create(paths.pods(namespace), pod_manifest)
    node = {
        "metadata": {"name": f"node-{namespace}", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    await client.create(paths.nodes(), node)
    await client.merge_patch(
        f"{paths.nodes(f'node-{namespace}')}/status",
        {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
    )
    pods = Informer(client, paths.pods(namespace), decode=decode_pod)
    nodes = Informer(client, paths.nodes(), decode=decode_node)

    async with running(pods), running(nodes):
        await until(lambda: pods.synced.is_set() and nodes.synced.is_set(), what="synced")

        pod = pods.store.by_name("p", namespace=namespace)
        assert pod is not None
        assert pod.gated
        assert pod.requests == {"cpu": 250, "memory": 2**30, "pods": 1}
        result = nodes.store.by_name(f"node-{namespace}")
        assert result is not None
        assert result.allocatable == {"cpu": 4000, "memory": 8 * 2**30, "pods": 110}
        assert result.labels["zone"] == "a"
        assert "k" in {taint.key for taint in result.taints}
    await client.delete(paths.nodes(f"node-{namespace}"))

"""Jobs on the host network of fake nodes: their ports, addresses and settings."""

import json

import pytest

from e2e.harness.jobs import job, on_host, ports, variables, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.pods import HOST, host_network_condition, master_port
from e2e.harness.space import Space

CPU = {"cpu": "1"}


def test_C4_three_jobs_of_three_pods_share_a_node_but_no_port(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    names = ("one", "two", "three")
    for name in names:
        space.submit(workers(name, 3, each=CPU, annotations=HOST))
    master_ports: dict[str, int] = {}
    for name in names:
        assert len(set(space.bound(name, 3).values())) == 1
        pods = {pod["metadata"]["name"]: pod for pod in space.pods(name)}
        assert all(map(on_host, pods.values()))
        assert {pod["spec"]["dnsPolicy"] for pod in pods.values()} == {"ClusterFirstWithHostNet"}
        (master_ports[name],) = ports(pods[f"{name}-master-0"])
        # The operator has set the port that kfext allocated in all pods and in the Service.
        assert {variables(pod)["MASTER_PORT"] for pod in pods.values()} == {str(master_ports[name])}
        service = space.kube.get(f"/api/v1/namespaces/{space.name}/services/{name}-master-0")
        assert [port["port"] for port in service["spec"]["ports"]] == [master_ports[name]]
        assert not any(ports(pods[f"{name}-worker-{index}"]) for index in (0, 1))
        assert host_network_condition(space, name)["status"] == "True"
        assert space.view(name)["network"] == "host"
    assert len(set(master_ports.values())) == 3
    assert all(20000 <= port <= 29999 for port in master_ports.values())


def test_the_same_jobs_without_kfext_stay_pending(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    for name in ("one", "two"):
        plain = {"kfext.dev/colocation": "off"}
        space.submit(workers(name, 3, each=CPU, annotations=plain, pod={"hostNetwork": True}))

    def refused() -> list[Object]:
        pods = [*space.pods("one"), *space.pods("two")]
        return [pod for pod in pods if not pod["spec"].get("nodeName")]

    def lacks_port(pod: Object) -> bool:
        conditions = pod["status"].get("conditions", [])
        return any("free ports" in condition.get("message", "") for condition in conditions)

    space.until(
        lambda: sum(map(lacks_port, refused())) == 5, "kube-scheduler reports the used port"
    )


TYPES = {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}


def addresses_of(pod: Object) -> set[str]:
    cluster = json.loads(variables(pod)["TF_CONFIG"])["cluster"]
    known: set[str] = set()
    for addresses in cluster.values():
        known.update(addresses.values() if isinstance(addresses, dict) else addresses)
    return known


@pytest.mark.parametrize("sparse", [False, True], ids=["full", "sparse"])
def test_the_replicas_of_a_tfjob_know_all_addresses(space: Space, sparse: bool) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    types = {"PS": 2, "Worker": 3} if sparse else TYPES
    manifest = job("tf", types, kind="TFJob", each=CPU, annotations=HOST)
    if sparse:
        manifest["spec"]["enableDynamicWorker"] = True
    space.submit(manifest)
    space.bound("tf", sum(types.values()))
    pods = {pod["metadata"]["name"]: pod for pod in space.pods("tf")}
    own = {f"{name}.{space.name}.svc:{port}" for name, pod in pods.items() for port in ports(pod)}
    assert len(own) == sum(types.values())
    assert set.union(*map(addresses_of, pods.values())) == own
    for name, pod in pods.items():
        assert any(address.startswith(f"{name}.") for address in addresses_of(pod))


def test_elastic_workers_know_the_host_of_the_rendezvous(space: Space) -> None:
    space.nodes(3, cpu="1", memory="64Gi")
    manifest = job("elastic", {"Worker": 3}, each=CPU, annotations=HOST)
    manifest["spec"]["elasticPolicy"] = {
        "minReplicas": 1, "maxReplicas": 3, "rdzvBackend": "c10d", "maxRestarts": 3,
    }  # fmt: skip
    space.submit(manifest)
    space.bound("elastic", 3)
    pods = {pod["metadata"]["name"]: pod for pod in space.pods("elastic")}
    (port,) = ports(pods["elastic-worker-0"])
    for name, pod in pods.items():
        assert ports(pod) == [port]  # so no two pods share a node, whatever binds them
        env = variables(pod)
        assert env["PET_RDZV_ENDPOINT"] == f"elastic-worker-0:{port}"
        assert env["PET_RDZV_CONF"] == f"is_host={int(name == 'elastic-worker-0')}"


def test_ports_stay_allocated_under_a_new_controller_until_the_job_is_deleted(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    space.policy(network={"portRange": "20000-20001"})
    allocated = set()
    for name in ("first", "second"):
        space.submit(workers(name, 2, each=CPU, annotations=HOST))
        allocated.add(master_port(space, name))
    assert allocated == {20000, 20001}
    kfext.kill_controller()
    kfext.restart_killed_controller()
    space.submit(workers("third", 2, each=CPU, annotations=HOST))
    space.phase("third", "Placed")
    assert host_network_condition(space, "third")["reason"] == "PodNetwork"
    space.until(
        lambda: [
            event for event in space.events("third")
            if event["reason"] == "PodNetwork" and "20000-20001" in event["note"]
        ],
        "an event says that no port is free",
    )  # fmt: skip
    space.kube.delete(space.path("pytorchjobs", "first"))
    space.until(lambda: not space.pods("first", ending=True), "its pods are gone")
    space.submit(workers("fourth", 2, each=CPU, annotations=HOST))
    assert master_port(space, "fourth") in allocated


def test_a_port_that_a_pod_without_a_job_uses_is_not_allocated(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi")
    space.policy(network={"portRange": "20000-20001"})
    container = {
        "name": "other",
        "image": "none",
        "ports": [{"containerPort": 20000, "hostPort": 20000}],
    }
    body = {"metadata": {"name": "other"}, "spec": {"nodeName": node, "containers": [container]}}
    space.kube.create(space.path("pods"), {"apiVersion": "v1", "kind": "Pod", **body})
    space.submit(workers("gang", 2, each=CPU, annotations=HOST))
    assert master_port(space, "gang") == 20001


def test_a_policy_sets_the_host_network_and_its_interfaces_for_namespaces(space: Space) -> None:
    space.policy(settings={"network": "host"}, network={"interfaces": ["eth0", "ib0"]})
    space.submit(workers("gang", 2, each=CPU))
    space.phase("gang", "Placed")
    for pod in space.pods("gang"):
        assert on_host(pod)
        assert variables(pod)["GLOO_SOCKET_IFNAME"] == "eth0"
        assert variables(pod)["NCCL_SOCKET_IFNAME"] == "eth0,ib0"
    space.submit(workers("apart", 2, each=CPU, annotations={"kfext.dev/network": "pod"}))
    space.phase("apart", "Placed")
    assert not any(map(on_host, space.pods("apart")))


def test_a_job_that_its_user_suspends_and_resumes_keeps_its_port_and_network(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    space.submit(workers("gang", 3, each=CPU, annotations=HOST))
    first = master_port(space, "gang")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": True}}})
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": False}}})
    space.bound("gang", 3)
    assert all(map(on_host, space.pods("gang")))
    assert master_port(space, "gang") == first

"""Jobs on the host network: ports, addresses, and what keeps a job from it. Fake nodes."""

import json
from collections.abc import Iterator

import pytest

from e2e.harness.jobs import job, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.look import gated
from e2e.harness.pods import occupy
from e2e.harness.space import Space

CPU = {"cpu": "1"}
HOST = {"kfext.dev/network": "host"}


def on_host(pod: Object) -> bool:
    return pod["spec"].get("hostNetwork") is True


def variables(pod: Object) -> dict[str, str]:
    env = pod["spec"]["containers"][0].get("env", [])
    return {one["name"]: one.get("value", "") for one in env}


def ports(pod: Object) -> list[int]:
    """Return the ports of its node that a pod has declared."""
    declared = pod["spec"]["containers"][0].get("ports", [])
    return [port["hostPort"] for port in declared if port.get("hostPort")]


def asked(space: Space, name: str, kind: str = "PyTorchJob") -> Object:
    """Return the condition that answers who asked for the host network."""

    def told() -> Object | None:
        conditions = space.view(name, kind).get("conditions", [])
        return next((one for one in conditions if one["type"] == "HostNetwork"), None)

    found: Object = space.until(told, "the TrainingPlan says which network")
    return found


def reasons(space: Space, name: str) -> set[str]:
    return {event["reason"] for event in space.events(name)}


def test_C4_three_jobs_of_three_share_a_node_and_no_port(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    names = ("one", "two", "three")
    for name in names:
        space.submit(workers(name, 3, each=CPU, annotations=HOST))
    meeting: dict[str, int] = {}
    for name in names:
        assert len(set(space.bound(name, 3).values())) == 1
        pods = {pod["metadata"]["name"]: pod for pod in space.pods(name)}
        assert all(map(on_host, pods.values()))
        assert {pod["spec"]["dnsPolicy"] for pod in pods.values()} == {"ClusterFirstWithHostNet"}
        (meeting[name],) = ports(pods[f"{name}-master-0"])
        # The operator has told all of them, and the Service, the port that kfext gave out.
        assert {variables(pod)["MASTER_PORT"] for pod in pods.values()} == {str(meeting[name])}
        service = space.kube.get(f"/api/v1/namespaces/{space.name}/services/{name}-master-0")
        assert [port["port"] for port in service["spec"]["ports"]] == [meeting[name]]
        assert not any(ports(pods[f"{name}-worker-{index}"]) for index in (0, 1))
        assert asked(space, name)["status"] == "True"
        assert space.view(name)["network"] == "host"
    assert len(set(meeting.values())) == 3
    assert all(20000 <= port <= 29999 for port in meeting.values())


def test_the_same_jobs_without_kfext_stay_pending(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    for name in ("one", "two"):
        plain = {"kfext.dev/colocation": "off"}
        space.submit(workers(name, 3, each=CPU, annotations=plain, pod={"hostNetwork": True}))

    def refused() -> list[Object]:
        pods = [*space.pods("one"), *space.pods("two")]
        return [pod for pod in pods if not pod["spec"].get("nodeName")]

    def told(pod: Object) -> bool:
        conditions = pod["status"].get("conditions", [])
        return any("free ports" in condition.get("message", "") for condition in conditions)

    space.until(
        lambda: sum(map(told, refused())) == 5, "kube-scheduler says that their port is taken"
    )


TYPES = {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}


def told_addresses(pod: Object) -> set[str]:
    """Return the addresses that a TensorFlow process is told."""
    cluster = json.loads(variables(pod)["TF_CONFIG"])["cluster"]
    found: set[str] = set()
    for addresses in cluster.values():
        found.update(addresses.values() if isinstance(addresses, dict) else addresses)
    return found


@pytest.mark.parametrize("sparse", [False, True], ids=["full", "sparse"])
def test_the_replicas_of_a_tfjob_are_told_where_each_listens(space: Space, sparse: bool) -> None:
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
    assert set.union(*map(told_addresses, pods.values())) == own
    for name, pod in pods.items():
        assert any(told.startswith(f"{name}.") for told in told_addresses(pod))


def test_elastic_workers_are_told_who_hosts_the_rendezvous(space: Space) -> None:
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
        assert ports(pod) == [port]  # so that no two are on one node, whoever binds them
        env = variables(pod)
        assert env["PET_RDZV_ENDPOINT"] == f"elastic-worker-0:{port}"
        assert env["PET_RDZV_CONF"] == f"is_host={int(name == 'elastic-worker-0')}"


def master_port(space: Space, name: str) -> int:
    space.phase(name, "Placed")
    (port,) = next(
        ports(pod) for pod in space.pods(name) if pod["metadata"]["name"] == f"{name}-master-0"
    )
    return port


def test_ports_are_known_to_a_successor_and_free_when_the_job_has_ended(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    space.policy(network={"portRange": "20000-20001"})
    taken = set()
    for name in ("first", "second"):
        space.submit(workers(name, 2, each=CPU, annotations=HOST))
        taken.add(master_port(space, name))
    assert taken == {20000, 20001}
    kfext.kill_controller()
    kfext.restart_killed_controller()
    space.submit(workers("third", 2, each=CPU, annotations=HOST))
    space.phase("third", "Placed")
    assert asked(space, "third")["reason"] == "PodNetwork"
    space.until(
        lambda: [
            event for event in space.events("third")
            if event["reason"] == "PodNetwork" and "20000-20001" in event["note"]
        ],
        "it is told that no port is free",
    )  # fmt: skip
    space.kube.delete(space.path("pytorchjobs", "first"))
    space.until(lambda: not space.pods("first", ending=True), "its pods are gone")
    space.submit(workers("fourth", 2, each=CPU, annotations=HOST))
    assert master_port(space, "fourth") in taken


def test_a_port_of_a_pod_that_is_nobodys_job_is_honoured(space: Space) -> None:
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


def test_pod_security_keeps_a_job_on_the_pod_network(space: Space) -> None:
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    space.kube.patch(f"/api/v1/namespaces/{space.name}", {"metadata": {"labels": level}})
    space.submit(workers("gang", 2, each=CPU, annotations=HOST))
    space.phase("gang", "Placed")
    condition = asked(space, "gang")
    assert (condition["status"], condition["reason"]) == ("False", "PodNetwork")
    assert "Pod Security baseline" in condition["message"]
    space.until(lambda: "PodNetwork" in reasons(space, "gang"), "an event tells it")
    assert not any(map(on_host, space.pods("gang")))
    assert space.starts() == 1


@pytest.fixture
def closed(space: Space) -> Iterator[Space]:
    """A namespace in which the API server refuses what kfext does not foresee: a host network."""
    root = "/apis/admissionregistration.k8s.io/v1"
    created = ["CREATE"]
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": created, "resources": ["pods"]}
    specs: dict[str, Object] = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kfext.dev/case": space.name}},
                "resourceRules": [pods],
            },
            "validations": [
                {
                    "expression": "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
                    "message": "no host network here",
                }
            ],
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": space.name,
            "validationActions": ["Deny"],
        },
    }
    paths = [f"{root}/validatingadmissionpolicies", f"{root}/validatingadmissionpolicybindings"]
    for path, (kind, spec) in zip(paths, specs.items(), strict=True):
        body = {"kind": kind, "metadata": {"name": space.name}, "spec": spec}
        space.kube.create(path, {"apiVersion": "admissionregistration.k8s.io/v1", **body})
    probe = {"hostNetwork": True, "containers": [{"name": "probe", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": probe}
    query = space.path("pods") + "?dryRun=All"
    space.until(lambda: not space.kube.ask("POST", query, pod).ok, "the API server refuses")
    yield space
    for path in paths:
        space.kube.delete(f"{path}/{space.name}")


@pytest.mark.long
def test_a_refusal_that_only_the_api_server_knows_is_found_and_the_job_tried_without(
    closed: Space,
) -> None:
    closed.policy(placement={"createTimeout": "2s"})
    closed.submit(workers("gang", 2, each=CPU, annotations=HOST))
    closed.phase("gang", "Placed")
    assert not any(map(on_host, closed.pods("gang")))
    condition = asked(closed, "gang")
    assert condition["reason"] == "PodNetwork"
    assert "no host network here" in condition["message"]
    closed.until(lambda: "CreateTimeout" in reasons(closed, "gang"), "an event tells it")


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


def test_network_policies_that_stop_applying_are_told(space: Space) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{space.name}/networkpolicies"
    body = {"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}}}
    space.kube.create(path, {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", **body})
    space.submit(workers("gang", 2, each=CPU, annotations=HOST))
    space.phase("gang", "Placed")
    event = space.until(
        lambda: [e for e in space.events("gang") if e["reason"] == "NetworkPoliciesBypassed"],
        "it is told",
    )
    assert "deny-all" in event[0]["note"]
    assert all(map(on_host, space.pods("gang")))


def test_a_job_suspended_by_hand_and_resumed_has_its_network_again(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    space.submit(workers("gang", 3, each=CPU, annotations=HOST))
    first = master_port(space, "gang")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": True}}})
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": False}}})
    space.bound("gang", 3)
    assert all(map(on_host, space.pods("gang")))
    assert master_port(space, "gang") == first


def missed(space: Space, kfext: Kfext, manifest: Object, name: str) -> None:
    """Have one pod of a gang of three created while the pod webhook does not answer."""
    space.nodes(1, cpu="32", memory="64Gi")
    space.policy(placement={"createTimeout": "10m"})
    squatted = space.path("pods", f"{name}-worker-1")
    occupy(space, squatted)
    space.submit(manifest)
    space.until(lambda: len(space.pods(name)) == 2, "two of its pods exist")
    assert all(gated(pod) and on_host(pod) for pod in space.pods(name))
    kfext.configure_hooks(dead=("pods.kfext.dev",))
    kfext.wait_hooks(job="held", pod="untouched")
    space.kube.delete(squatted, grace=0)
    space.patch_job(name, {"metadata": {"labels": {"seen": "again"}}}, manifest["kind"])


def test_a_pytorchjob_of_which_the_webhook_missed_a_pod_goes_on(space: Space, kfext: Kfext) -> None:
    missed(space, kfext, workers("gang", 3, each=CPU, annotations=HOST), "gang")
    space.bound("gang", 3)
    pods = {pod["metadata"]["name"]: pod for pod in space.pods("gang")}
    assert {name: on_host(pod) for name, pod in pods.items()} == {
        "gang-master-0": True, "gang-worker-0": True, "gang-worker-1": False,
    }  # fmt: skip
    assert len({variables(pod)["MASTER_PORT"] for pod in pods.values()}) == 1
    assert space.starts() == 1


def test_a_tfjob_of_which_the_webhook_missed_a_pod_is_made_again(
    space: Space, kfext: Kfext
) -> None:
    manifest = job("tf", {"PS": 1, "Worker": 2}, kind="TFJob", each=CPU, annotations=HOST)
    missed(space, kfext, manifest, "tf")
    space.phase("tf", "Placed", "TFJob")
    assert not any(map(on_host, space.pods("tf")))
    assert "webhook" in asked(space, "tf", "TFJob")["message"]
    assert space.starts() == 2


def test_without_a_controller_a_replaced_pod_is_set_up_like_the_others(
    space: Space, kfext: Kfext
) -> None:
    space.submit(workers("gang", 3, each=CPU, annotations=HOST))
    port = master_port(space, "gang")
    kfext.controller_absent()
    space.kube.delete(space.path("pods", "gang-worker-0"), grace=0)
    space.bound("gang", 3)
    pods = {pod["metadata"]["name"]: pod for pod in space.pods("gang")}
    assert on_host(pods["gang-worker-0"])
    assert variables(pods["gang-worker-0"])["MASTER_PORT"] == str(port)

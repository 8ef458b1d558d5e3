"""Pods on the host network: the webhook's edits, and the port in the templates."""

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.ledger.ports import offsets
from kfext.core.patches.job import unsuspend_patch
from kfext.model.constraints import parse_constraints
from kfext.model.job import TrainingJob, parse_job
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, job
from tests.unit.objects import Raw, odd_pods

BASE = 20000


def created(
    job_: TrainingJob, type_: str, index: int, *, env: Sequence[Raw] = (), **spec: Any
) -> Raw:
    """A pod of a job on the host network as the operator creates it; `env`: further variables."""
    container = {
        "name": job_.kind.container,
        "ports": [{"name": job_.kind.port, "containerPort": BASE, "protocol": "TCP"}],
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}, *env],
    }
    return {
        "metadata": {
            "namespace": "team",
            "name": f"{job_.name}-{type_}-{index}",
            "annotations": {names.NETWORK: "host", names.PORT_BASE: str(BASE)},
            "labels": {
                names.JOB_NAME: job_.name,
                names.REPLICA_TYPE: type_,
                names.REPLICA_INDEX: str(index),
            },
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": job_.kind.name,
                    "uid": job_.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"containers": [container], "dnsPolicy": "ClusterFirst", **spec},
    }


def admitted(raw: Raw, *, alive: bool = True) -> Raw:
    before = deepcopy(raw)
    result: Raw = jsonpatch.apply_patch(raw, list(mutate_pod(raw, controller_alive=alive).ops))
    assert raw == before
    return result


def env_of(pod: Raw) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in pod["spec"]["containers"][0]["env"]
    }


def host_ports(pod: Raw) -> list[int]:
    return [number for _, number in parse_constraints(pod["spec"]).host_ports]


DDP = job().master().worker(2).build()
AT_MASTER = [{"name": "MASTER_ADDR", "value": "train-master-0"}]


def test_the_pod_uses_the_network_of_its_node_and_the_dns_of_the_cluster() -> None:
    spec = admitted(created(DDP, "worker", 1, env=AT_MASTER))["spec"]
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.parametrize("policy", ["None", "Default", "ClusterFirstWithHostNet"])
def test_the_dns_policy_of_the_user_is_kept(policy: str) -> None:
    pod = admitted(created(DDP, "worker", 0, env=AT_MASTER, dnsPolicy=policy))
    assert pod["spec"]["dnsPolicy"] == policy


LISTENERS = {
    "the master": ("master", 0, [], [BASE]),
    "no worker": ("worker", 0, AT_MASTER, []),
    "no later worker": ("worker", 1, AT_MASTER, []),
    "no worker without addresses": ("worker", 0, [], []),
    "a torchrun agent": ("worker", 1, [{"name": "PET_RDZV_BACKEND", "value": "c10d"}], [BASE]),
    "a torchrun agent that meets the others in etcd": (
        "worker", 1, [{"name": "PET_RDZV_BACKEND", "value": "etcd-v2"}], [BASE],
    ),
    "no worker that gets its rank from etcd": (
        "worker", 0, [{"name": "PET_RDZV_BACKEND", "value": "etcd"}], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("type_", "index", "env", "want"), LISTENERS.values(), ids=LISTENERS)
def test_which_pods_declare_the_operator_port_as_a_host_port(
    type_: str, index: int, env: list[Raw], want: list[int]
) -> None:
    assert host_ports(admitted(created(DDP, type_, index, env=env))) == want


def test_ports_of_the_user_are_kept() -> None:
    raw = created(DDP, "worker", 0, env=AT_MASTER)
    raw["spec"]["containers"][0]["ports"].append({"name": "metrics", "containerPort": 9090})
    assert host_ports(admitted(raw)) == [9090]


def test_a_container_without_connections_gets_no_port() -> None:
    raw = created(DDP, "worker", 0, env=AT_MASTER)
    del raw["spec"]["containers"][0]["ports"]
    assert "ports" not in admitted(raw)["spec"]["containers"][0]


def test_processes_get_the_address_of_the_pod_and_the_name_of_its_node() -> None:
    env = env_of(admitted(created(DDP, "worker", 0, env=AT_MASTER)))
    assert env["PET_LOCAL_ADDR"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["NCCL_HOSTID"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert "GLOO_SOCKET_IFNAME" not in env


def test_variables_of_the_user_are_kept() -> None:
    env_of_user = [*AT_MASTER, {"name": "PET_LOCAL_ADDR", "value": "10.0.0.1"}]
    raw = created(DDP, "worker", 0, env=env_of_user)
    raw["metadata"]["annotations"][names.INTERFACES] = "eth1"
    raw["spec"]["containers"][0]["env"].append({"name": "GLOO_SOCKET_IFNAME", "value": "ib0"})
    env = env_of(admitted(raw))
    assert (env["PET_LOCAL_ADDR"], env["GLOO_SOCKET_IFNAME"]) == ("10.0.0.1", "ib0")


def test_gloo_gets_the_first_interface_and_nccl_all_interfaces() -> None:
    raw = created(DDP, "worker", 0, env=AT_MASTER)
    raw["metadata"]["annotations"][names.INTERFACES] = "ib0,eth0"
    env = env_of(admitted(raw))
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("ib0", "ib0,eth0")


def rendezvous(host: str = "train-worker-0", *, backend: str = "c10d", conf: str = "") -> list[Raw]:
    env = {"PET_RDZV_ENDPOINT": f"{host}:{BASE}", "PET_RDZV_BACKEND": backend}
    if conf:
        env["PET_RDZV_CONF"] = conf
    return [{"name": name, "value": value} for name, value in env.items()]


HOSTS = {
    "the first worker hosts the store": (0, rendezvous(), "is_host=1"),
    "the other workers do not": (1, rendezvous(), "is_host=0"),
    "the user's configuration stays": (0, rendezvous(conf="timeout=9"), "timeout=9,is_host=1"),
    "a full name is the same host": (0, rendezvous("train-worker-0.team.svc"), "is_host=1"),
    "a user's is_host stays": (0, rendezvous(conf="is_host=0"), "is_host=0"),
    "etcd has a host of its own": (0, rendezvous(backend="etcd"), None),
    "kfext leaves another host alone": (0, rendezvous("elsewhere"), None),
}


@pytest.mark.parametrize(("index", "env", "want"), HOSTS.values(), ids=HOSTS)
def test_each_worker_is_told_whether_it_hosts_the_rendezvous(
    index: int, env: list[Raw], want: str | None
) -> None:
    assert env_of(admitted(created(DDP, "worker", index, env=env))).get("PET_RDZV_CONF") == want


TF = job("TFJob").group("Chief").ps(2).worker(2).group("Evaluator").build()


def address(type_: str, index: int, port: int = 2222) -> str:
    return f"train-{type_}-{index}.team.svc:{port}"


FULL = {
    "chief": [address("chief", 0)],
    "ps": [address("ps", 0), address("ps", 1)],
    "worker": [address("worker", 0), address("worker", 1)],
    "evaluator": [address("evaluator", 0)],
}


def tf_config(cluster: Raw) -> list[Raw]:
    """The variable TF_CONFIG as the operator writes it."""
    config = {"cluster": cluster, "task": {"type": "x", "index": 0}, "environment": "cloud"}
    return [{"name": "TF_CONFIG", "value": json.dumps(config)}]


def cluster_in(pod: Raw) -> Any:
    return json.loads(env_of(pod)["TF_CONFIG"])["cluster"]


@pytest.mark.parametrize(("type_", "index"), [(key.type, key.index) for key, _ in TF.replicas()])
def test_every_replica_gets_the_same_addresses_and_listens_on_its_own_port(
    type_: str, index: int
) -> None:
    pod = admitted(created(TF, type_, index, env=tf_config(FULL)))
    want = offsets(TF)
    assert cluster_in(pod) == {
        kind: [address(kind, n, BASE + offset) for n, offset in enumerate(results)]
        for kind in FULL
        if (results := [offset for key, offset in want.items() if key.type == kind])
    }
    ports = [BASE + n for key, n in want.items() if (key.type, key.index) == (type_, index)]
    assert host_ports(pod) == ports


def test_a_sparse_cluster_has_the_same_addresses_as_the_full_cluster() -> None:
    worker = {"worker": {"1": address("worker", 1)}, "ps": FULL["ps"]}
    server = {"ps": [address("ps", 1)], "worker": {}}
    full = cluster_in(admitted(created(TF, "worker", 1, env=tf_config(FULL))))
    of_worker = cluster_in(admitted(created(TF, "worker", 1, env=tf_config(worker))))
    of_server = cluster_in(admitted(created(TF, "ps", 1, env=tf_config(server))))
    assert of_worker == {"worker": {"1": full["worker"][1]}, "ps": full["ps"]}
    assert of_server == {"ps": [full["ps"][1]], "worker": {}}


def test_a_malformed_tf_config_before_the_tf_config_of_the_operator_is_ignored() -> None:
    env = [{"name": "TF_CONFIG", "value": "{"}, *tf_config(FULL)]
    pod = admitted(created(TF, "worker", 1, env=env))
    assert cluster_in(pod)["worker"][1] == address("worker", 1, BASE + 6)


def test_a_port_that_a_person_restored_in_the_template_is_replaced() -> None:
    env = [*AT_MASTER, {"name": "MASTER_PORT", "value": "23456"}]
    raw = created(DDP, "worker", 0, env=env)
    assert env_of(admitted(raw))["MASTER_PORT"] == str(BASE)
    env = [{"name": "PET_RDZV_ENDPOINT", "value": "train-worker-0:23456"},
           {"name": "PET_RDZV_BACKEND", "value": "c10d"}]  # fmt: skip
    raw = created(DDP, "worker", 1, env=env)
    assert env_of(admitted(raw))["PET_RDZV_ENDPOINT"] == f"train-worker-0:{BASE}"


def test_a_pod_of_a_job_that_was_released_keeps_the_network_of_its_peers() -> None:
    raw = created(TF, "ps", 0, env=tf_config(FULL))
    raw["metadata"]["annotations"][names.RELEASED] = "BindTimeout"
    spec = admitted(raw)["spec"]
    assert spec["hostNetwork"] is True
    assert "schedulingGates" not in spec


def test_a_single_replica_does_not_listen() -> None:
    assert host_ports(admitted(created(TF, "worker", 0))) == []


def test_the_pod_gets_its_edits_even_if_the_controller_is_down() -> None:
    spec = admitted(created(DDP, "worker", 0, env=AT_MASTER), alive=False)["spec"]
    assert spec["hostNetwork"] is True
    assert "schedulingGates" not in spec


def test_a_second_admission_changes_nothing() -> None:
    once = admitted(created(TF, "ps", 1, env=tf_config(FULL)))
    assert mutate_pod(once, controller_alive=True).ops == ()


@pytest.mark.parametrize("base", ["", "0", "65536", "-1", "x", None])
def test_without_a_base_the_pod_keeps_its_own_network(base: str | None) -> None:
    raw = created(DDP, "master", 0)
    if base is None:
        del raw["metadata"]["annotations"][names.PORT_BASE]
    else:
        raw["metadata"]["annotations"][names.PORT_BASE] = base
    assert "hostNetwork" not in admitted(raw)["spec"]


@given(odd_pods, st.sampled_from(["PyTorchJob", "TFJob"]))
def test_the_edits_of_any_malformed_pod_can_be_applied(raw: Raw, kind: str) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "uid": "u", "controller": True}
    if isinstance(raw, dict) and isinstance(raw.get("metadata"), dict):
        raw["metadata"]["ownerReferences"] = [owner]
        raw["metadata"]["annotations"] = {names.PORT_BASE: str(BASE)}
    ops = list(mutate_pod(raw, controller_alive=True).ops)
    if ops:
        jsonpatch.apply_patch(raw, ops)


# --- the port in the templates ----------------------------------------------------------------

OTHER = {"name": "metrics", "containerPort": 9090}
PORT = {"name": "pytorchjob-port", "containerPort": 23456}


def training(*ports: Raw, container: str = "pytorch") -> Raw:
    main: Raw = {"name": container}
    if ports:
        main["ports"] = [dict(port) for port in ports]
    return {"containers": [{"name": "logger"}, main]}


def started(builder: JobBuilder, *, port: int = 20000) -> Raw:
    raw = builder.held().raw
    parsed = parse_job(raw)
    assert parsed is not None
    plan = Plan(parsed.uid, 1, {ReplicaKey("worker", 0): "a"}, port=port)
    patch = unsuspend_patch(raw, parsed, plan)
    after: Raw = jsonpatch.apply_patch(deepcopy(raw), patch)
    return after


def template(raw: Raw, type_: str = "Worker") -> Any:
    specs = raw["spec"].get("pytorchReplicaSpecs") or raw["spec"]["tfReplicaSpecs"]
    return specs[type_]["template"]


def port_of(raw: Raw, type_: str = "Worker") -> Any:
    return template(raw, type_)["spec"]["containers"][1].get("ports")


DECLARED = {
    "no port at all": ((), [("pytorchjob-port", 20000)]),
    "another port": ((OTHER,), [("metrics", 9090), ("pytorchjob-port", 20000)]),
    "the operator's port": ((PORT,), [("pytorchjob-port", 20000)]),
    "both": ((OTHER, PORT), [("metrics", 9090), ("pytorchjob-port", 20000)]),
}


@pytest.mark.parametrize(("ports", "want"), DECLARED.values(), ids=DECLARED)
def test_the_template_gets_the_port_under_the_name_that_the_operator_expects(
    ports: tuple[Raw, ...], want: list[tuple[str, int]]
) -> None:
    after = started(job().master(spec=training(*ports)).worker(1, spec=training(*ports)))
    for type_ in ("Master", "Worker"):
        result = port_of(after, type_)
        assert [(port["name"], port["containerPort"]) for port in result] == want
    assert "ports" not in template(after)["spec"]["containers"][0]


def test_on_the_pod_network_no_port_is_written() -> None:
    assert port_of(started(job().worker(2, spec=training()), port=0)) is None


def test_elastic_workers_meet_on_the_port_of_the_job() -> None:
    builder = job().worker(2, spec=training()).elastic(rdzvBackend="c10d", rdzvPort=29400)
    after = started(builder)
    assert port_of(after, "Worker")[0]["containerPort"] == 20000
    assert after["spec"]["elasticPolicy"]["rdzvPort"] == 20000


def test_a_rendezvous_outside_the_job_is_not_changed() -> None:
    policy = {"rdzvBackend": "etcd", "rdzvHost": "etcd.example", "rdzvPort": 2379}
    builder = job().worker(2, spec=training()).elastic(**policy)
    assert started(builder)["spec"]["elasticPolicy"] == policy


def test_the_templates_of_a_tfjob_get_no_port() -> None:
    builder = job("TFJob").ps(1, spec=training(container="tensorflow")).worker(1)
    assert port_of(started(builder), "PS") is None


def test_the_patch_fails_if_the_order_of_the_containers_has_changed() -> None:
    raw = job().worker(1, spec=training(PORT)).held().raw
    parsed = parse_job(raw)
    assert parsed is not None
    patch = unsuspend_patch(raw, parsed, Plan(parsed.uid, 1, port=20000))
    template(raw)["spec"]["containers"].reverse()
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(raw, patch)

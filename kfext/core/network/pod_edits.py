"""The edits with which a pod of a training job finds its peers on the network of its node.

They follow only from the pod as the operator created it and from the base of the job's ports, so
that all pods of a job have the same addresses. Either all of them are made or none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfext import names
from kfext.core.network import tf_config
from kfext.core.patches.json_patch import Operation, pointer, write
from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import TENSORFLOW, Kind
from kfext.model.networking import LARGEST_PORT, TCP
from kfext.model.rendezvous import DYNAMIC
from kfext.model.tolerant import mapping, sequence, strings, text

_NODE_NAME = {"fieldRef": {"fieldPath": "spec.nodeName"}}
_POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
_EDITS = (
    ("hostNetwork is true", "pods are to communicate without the overlay"),
    ("dnsPolicy is ClusterFirstWithHostNet", "names of Services do not resolve otherwise"),
    (
        "the operator's port is declared only where it has to be",
        "kube-scheduler puts only one pod that declares it on a node",
    ),
)
_PYTORCH_EDITS = (
    (
        "MASTER_PORT, PET_MASTER_PORT and PET_RDZV_ENDPOINT have the job's port",
        "all ranks meet there",
    ),
    ("PET_LOCAL_ADDR is the pod's address", "other nodes may not resolve the node's name"),
    ("NCCL_HOSTID is the node's name", "NCCL distinguishes nodes by it"),
)
_AGENT_EDITS = (
    ("PET_RDZV_CONF sets which pod hosts the store", "pods on one node have the same host name"),
    ("all workers declare the job's port", "torchrun needs a node for each"),
)
_TENSORFLOW_EDITS = (
    ("TF_CONFIG has a port for each replica", "all replicas listen, and several may share a node"),
)

Env = list[dict[str, Any]]
Raw = Mapping[str, Any]


def edits_of(job: TrainingJob) -> Sequence[tuple[str, str]]:
    """Return the changes to the pods of a job on the host network, each with its reason."""
    if job.kind is TENSORFLOW:
        return (*_EDITS, *_TENSORFLOW_EDITS)
    return (*_EDITS, *_PYTORCH_EDITS, *(_AGENT_EDITS if job.dynamic_rendezvous else ()))


def host_network(kind: Kind, metadata: Raw, spec: Raw) -> list[Operation]:
    """Return the operations that move a pod to its node's network; none if it is not to use it.

    A pod uses it if its template has the base of the job's ports.
    """
    annotations = strings(metadata.get("annotations"))
    base = annotations.get(names.PORT_BASE, "")
    containers = sequence(spec.get("containers"))
    if not _is_port(base) or spec.get("hostNetwork") is True:
        return []
    if not all(isinstance(container, Mapping) for container in containers):
        return []  # the API server will refuse it
    interfaces = annotations.get(names.INTERFACES, "")
    replica = (_TensorFlow if kind is TENSORFLOW else _PyTorch)(metadata, base=int(base))
    operations = [_set(spec, "hostNetwork", True)]
    if text(spec.get("dnsPolicy")) in {"", "ClusterFirst"}:
        # With plain ClusterFirst a pod on the host network asks the node's DNS server.
        operations.append(_set(spec, "dnsPolicy", "ClusterFirstWithHostNet"))
    for number, container in enumerate(containers):
        at = ("spec", "containers", str(number))
        env = [dict(mapping(one)) for one in sequence(container.get("env"))]
        if container.get("name") == kind.container:
            operations += _ports(container, replica.declares(env), name=kind.port, at=at)
        replica.write_env(env)
        _write_interfaces(env, interfaces)
        if env != sequence(container.get("env")):
            operations.append(_set(container, "env", env, at=at))
    return operations


class _PyTorch:
    """PyTorch: ranks meet at the master; torchrun agents meet at a worker, or elsewhere."""

    def __init__(self, metadata: Raw, *, base: int) -> None:
        labels = strings(metadata.get("labels"))
        self._name = text(metadata.get("name"))
        self._job = labels.get(names.JOB_NAME, "")
        self._first = labels.get(names.REPLICA_INDEX) == "0"
        self._type = labels.get(names.REPLICA_TYPE, "").lower()
        self._base = base

    def declares(self, env: Env) -> int | None:
        """Return the port that no other pod on the node may have, None if there is none.

        A master listens on it. One of torchrun's agents does too, and no two may share a node.
        """
        is_master = self._first and self._type == "master"
        is_agent = _value(env, "PET_RDZV_BACKEND") in DYNAMIC
        return self._base if is_master or is_agent else None

    def write_env(self, env: Env) -> None:
        """Add the variables that the framework needs.

        The operator derives the ports from the templates, which a person may edit.
        """
        if _value(env, "MASTER_ADDR"):
            for name in ("MASTER_PORT", "PET_MASTER_PORT"):
                _replace(env, name, str(self._base))
        # By default it advertises the name of the node, which other nodes may not resolve.
        _add(env, "PET_LOCAL_ADDR", valueFrom=_POD_IP)
        _add(env, "NCCL_HOSTID", valueFrom=_NODE_NAME)
        meeting, endpoint = _meeting(env), _value(env, "PET_RDZV_ENDPOINT")
        if not meeting.startswith(f"{self._job}-") or _value(env, "PET_RDZV_BACKEND") != "c10d":
            return
        host = endpoint.rpartition(":")[0]
        _replace(env, "PET_RDZV_ENDPOINT", f"{host}:{self._base}")
        # torchrun finds the host of the store by its host name, which all pods on a node share.
        hosts = f"is_host={int(meeting == self._name)}"
        given = _value(env, "PET_RDZV_CONF")
        if "is_host=" not in given:
            _replace(env, "PET_RDZV_CONF", f"{given},{hosts}" if given else hosts)


class _TensorFlow:
    """TensorFlow: every replica of the cluster listens, each on a port of its own."""

    def __init__(self, metadata: Raw, *, base: int) -> None:
        labels = strings(metadata.get("labels"))
        self._job = labels.get(names.JOB_NAME, "")
        self._index = labels.get(names.REPLICA_INDEX, "")
        self._type = labels.get(names.REPLICA_TYPE, "").lower()
        self._base = base

    def declares(self, env: Env) -> int | None:
        """Return the port on which the pod listens, None if on none."""
        config = tf_config.TFConfig(_value(env, tf_config.NAME))
        index = int(self._index) if self._index.isdecimal() else 0
        return config.port_of(self._type, index, base=self._base)

    def write_env(self, env: Env) -> None:
        """Rewrite the addresses of all replicas, in the full form and in the sparse one."""
        config = tf_config.TFConfig(_value(env, tf_config.NAME))
        moved = config.moved(self._job, base=self._base)
        if moved is not None:
            _replace(env, tf_config.NAME, moved)


def _meeting(env: Env) -> str:
    """Return the short name of the host where elastic workers meet, empty for other jobs."""
    return _value(env, "PET_RDZV_ENDPOINT").rpartition(":")[0].partition(".")[0]


def _ports(container: Raw, port: int | None, *, name: str, at: Sequence[str]) -> list[Operation]:
    """Return the operations that set the operator's port to `port`, or remove it.

    On the host network a declared port belongs to the node, and kube-scheduler puts no other pod
    that declares it there.
    """
    declared = [mapping(one) for one in sequence(container.get("ports"))]
    others = [dict(one) for one in declared if one.get("name") != name]
    own = {"name": name, "containerPort": port, "protocol": TCP}
    wanted = [*others, own] if port else others
    if wanted == declared:
        return []
    if not wanted:
        return [{"op": "remove", "path": pointer(*at, "ports")}]
    return [_set(container, "ports", wanted, at=at)]


def _write_interfaces(env: Env, interfaces: str) -> None:
    if interfaces:
        # Gloo opens every interface in its variable, and fails if one of them is missing.
        _add(env, "GLOO_SOCKET_IFNAME", value=interfaces.partition(",")[0])
        _add(env, "NCCL_SOCKET_IFNAME", value=interfaces)


def _is_port(written: str) -> bool:
    return written.isdecimal() and len(written) <= 5 and 0 < int(written) <= LARGEST_PORT


def _value(env: Env, name: str) -> str:
    """Return a variable's value; the last one of a name counts, as in a container."""
    return next((text(one.get("value")) for one in reversed(env) if one.get("name") == name), "")


def _replace(env: Env, name: str, value: str) -> None:
    """Set a variable, in place of earlier ones of the name."""
    env[:] = [one for one in env if one.get("name") != name]
    env.append({"name": name, "value": value})


def _add(env: Env, name: str, **source: Any) -> None:
    """Add a variable, unless it is set already: the user knows better."""
    if not any(one.get("name") == name for one in env):
        env.append({"name": name, **source})


def _set(holder: Raw, key: str, value: object, *, at: Sequence[str] = ("spec",)) -> Operation:
    return write(holder, key, pointer(*at, key), value)

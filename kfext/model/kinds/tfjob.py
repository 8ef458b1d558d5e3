"""TFJob: every replica listens on a port, and reads the addresses of all others in TF_CONFIG."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfext.model.kinds.job_kind import (
    WORKER,
    Env,
    HostedPod,
    JobKind,
    Raw,
    Rendezvous,
    Scaling,
    value_in,
    with_value,
)
from kfext.model.tolerant import index_in, json_object, mapping, sequence, text

if TYPE_CHECKING:
    from kfext.model.job import TrainingJob
    from kfext.model.replica_group import ReplicaGroup

_CONFIG = "TF_CONFIG"
_SINGLE_TYPES = {"chief": 0, "master": 1, "evaluator": 2}
"""The offset of the port of each replica type that has a single replica."""
_EDITS = (
    (f"{_CONFIG} has a port for each replica", "all replicas listen, and several may share a node"),
)


class TFJob(JobKind):
    """A TFJob, elastic if it has parameter servers and dynamic workers."""

    name = "TFJob"
    plural = "tfjobs"
    replica_specs = "tfReplicaSpecs"
    types = ("Chief", "Master", "PS", WORKER, "Evaluator")
    training_types = ("Chief", "Master", WORKER)
    rank_zero = training_types
    container = "tensorflow"
    port = "tfjob-port"
    port_number = 2222
    restart = "Never"
    one_network = True

    def scaling(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Scaling:
        """Return that a job can train with any number of workers.

        Pods read the number of workers from TF_CONFIG as they start. Dynamic workers join and leave
        without affecting the others.
        """
        types = mapping(spec.get(self.replica_specs))
        return Scaling(
            elastic=spec.get("enableDynamicWorker") is True
            and any(str(type_).lower() == "ps" for type_ in types),
            any_start=True,
            restarts_all=False,
            needs="PS and enableDynamicWorker",
        )

    def rendezvous(self, spec: Raw, groups: "Sequence[ReplicaGroup]", *, job: str) -> Rendezvous:
        """Return a rendezvous without limits: the pods find each other by TF_CONFIG."""
        return Rendezvous()

    def port_offset(self, job: "TrainingJob", type_: str, index: int) -> int | None:
        """Return the offset of a replica's port; None means that no replica connects to it."""
        servers = sum(group.replicas for group in job.groups if group.type == "PS")
        # The operator writes no cluster for a single replica.
        return offset_of(type_, index, servers=servers) if job.pods > 1 else None

    def edits_on_host(self, job: "TrainingJob") -> Sequence[tuple[str, str]]:
        """Return the edits on the pods of a job on the host network, each with its reason."""
        return _EDITS

    def listens_on(self, pod: HostedPod, env: Env) -> int | None:
        """Return the port that the pod listens on, or None."""
        config = TFConfig(value_in(env, _CONFIG))
        return config.port_of(pod.type, pod.index, base=pod.base)

    def edited_env(self, pod: HostedPod, env: Env) -> Env:
        """Return the variables with new addresses of all replicas in TF_CONFIG, full or sparse."""
        config = TFConfig(value_in(env, _CONFIG)).with_ports(pod.job, base=pod.base)
        return env if config is None else with_value(env, _CONFIG, config)


def offset_of(type_: str, index: int, *, servers: int) -> int | None:
    """Return the offset of a replica's port; None means that no replica connects to it.

    `type_` is in lower case. `servers`: the number of parameter servers of the job.
    """
    if type_ in _SINGLE_TYPES:
        return None if index else _SINGLE_TYPES[type_]
    if type_ not in {"ps", "worker"} or index < 0:
        return None
    return len(_SINGLE_TYPES) + (servers if type_ == "worker" else 0) + index


class TFConfig:
    """A TF_CONFIG; if it is damaged or has no cluster, it stays unchanged.

    The operator writes `{"cluster": {type: [address]}, "task": …}`. With dynamic workers (the
    sparse form) a worker sees itself, as `{index: address}`, and all servers; a server sees itself.
    """

    def __init__(self, written: str) -> None:
        self._config = json_object(written)
        self._cluster = mapping(self._config.get("cluster"))
        self._servers = len(sequence(self._cluster.get("ps")))

    def port_of(self, type_: str, index: int, *, base: int) -> int | None:
        """Return the port that a replica listens on, or None; `type_` in lower case."""
        offset = offset_of(type_, index, servers=self._servers) if self._cluster else None
        return None if offset is None else base + offset

    def with_ports(self, job: str, *, base: int) -> str | None:
        """Return TF_CONFIG with each replica at its own port; None means that it has no cluster."""
        if not self._cluster:
            return None

        def new_address(type_: str, address: object) -> str:
            host = text(address).rpartition(":")[0]
            # In the sparse form a server sees only itself, so the list position is not the index.
            index = index_in(host.partition(".")[0].removeprefix(f"{job}-{type_}-"))
            port = None if index is None else self.port_of(type_, index, base=base)
            return text(address) if port is None else f"{host}:{port}"

        cluster: dict[str, Any] = {
            type_: {key: new_address(type_, value) for key, value in addresses.items()}
            if isinstance(addresses, Mapping)
            else [new_address(type_, address) for address in sequence(addresses)]
            for type_, addresses in self._cluster.items()
        }
        return json.dumps({**self._config, "cluster": cluster}, separators=(",", ":"))

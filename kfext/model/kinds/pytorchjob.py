"""PyTorchJob: the ranks meet at the master, or at a worker with torchrun's own rendezvous."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfext.model.kinds.job_kind import (
    WORKER,
    ElasticSpec,
    Env,
    HostedPod,
    JobKind,
    Raw,
    Rendezvous,
    Scaling,
    value_in,
    with_default,
    with_value,
)
from kfext.model.kinds.torchrun import Agents, agents_of, why_not_torchrun
from kfext.model.podspec import container_named
from kfext.model.tolerant import mapping, sequence, text

if TYPE_CHECKING:
    from kfext.model.job import TrainingJob
    from kfext.model.replica_group import ReplicaGroup

MAX_RESTARTS = 100
"""Each worker that leaves costs torchrun a restart; its default is 0 restarts."""
LAST_CALL_SECONDS = 5
"""The seconds that torchrun waits for more agents after the fewest have joined. The default of 30 s
would lengthen the pause at each change of size."""
DYNAMIC = frozenset({"c10d", "etcd-v2"})
"""The backends that use torch's dynamic rendezvous."""
_MASTER = "Master"
_POLICY = "elasticPolicy"
_NODE_NAME = {"fieldRef": {"fieldPath": "spec.nodeName"}}
_POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
_WAITER = {
    "name": "init-pytorch",
    "resources": {
        "limits": {"cpu": "100m", "memory": "20Mi"},
        "requests": {"cpu": "50m", "memory": "10Mi"},
    },
}
"""The init container in which workers wait for the master. Source: training-operator
pkg/controller.v1/pytorch/initcontainer.go."""
_EDITS = (
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
_ALIKE = (
    "torchrun would confuse two agents: it distinguishes them by host name and process number, "
    "which are the same in two pods on one node"
)
"""torchrun's rendezvous identifies an agent by host name, process id and a counter (torch's
_NodeDesc). On the host network, pods on one node have the same host name, and agents are process 1.
"""


class PyTorchJob(JobKind):
    """A PyTorchJob; it is elastic if it has an elasticPolicy and only workers."""

    name = "PyTorchJob"
    plural = "pytorchjobs"
    replica_specs = "pytorchReplicaSpecs"
    types = (_MASTER, WORKER)
    training_types = types
    rank_zero = types
    container = "pytorch"
    port = "pytorchjob-port"
    port_number = 23456
    restart = "OnFailure"
    port_in_templates = True
    port_path = (_POLICY, "rdzvPort")
    across_nodes = (
        "Gloo needs node names that do not resolve to loopback on the node itself, or "
        "network.interfaces in a TrainingPolicy"
    )
    buffers = False
    yields_gpu = True

    def as_created(self, type_: str, pod_spec: Raw, *, specs: Raw) -> Raw:
        """Return the pod spec with the port and, for a worker, with the init container."""
        created = super().as_created(type_, pod_spec, specs=specs)
        if type_ != WORKER or not _has_type(specs, _MASTER):
            return created
        return {**created, "initContainers": [*sequence(created.get("initContainers")), _WAITER]}

    def scaling(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Scaling:
        """Return the sizes that torchrun accepts, by the elasticPolicy and the command.

        Every change restarts all processes, even if workers are only added.
        """
        policy = mapping(spec.get(_POLICY))
        elastic = _has_policy(spec) and not self._has_master(spec)
        result = self._agents(spec, groups) if elastic else Agents()
        agents, one_size = (Agents(), result) if isinstance(result, str) else (result, "")
        most = _count(policy.get("maxReplicas")) or 0
        most = min(most, agents.most or most)
        restarts = agents.restarts
        if restarts is None:
            # The operator sets no default, and torchrun's default is 0.
            restarts = _count(policy.get("maxRestarts")) or 0
        elastic = elastic and not one_size
        why_fixed = _why_fixed(groups, one_size, elastic=elastic, most=most, restarts=restarts)
        return Scaling(
            elastic=elastic,
            any_start=elastic,
            fixed=next(why_fixed, ""),
            fewest=max(_count(policy.get("minReplicas")) or 1, agents.fewest),
            most=most,
            autoscaled=bool(sequence(policy.get("metrics"))),
        )

    def rendezvous(self, spec: Raw, groups: "Sequence[ReplicaGroup]", *, job: str) -> Rendezvous:
        """Return where the ranks meet: at a worker with c10d, the operator's default."""
        policy = mapping(spec.get(_POLICY))
        host = text(policy.get("rdzvHost")).partition(".")[0]
        backend = text(policy.get("rdzvBackend")) or "c10d"
        elastic = _has_policy(spec)
        dynamic = elastic and backend in DYNAMIC
        meets = elastic or self._has_master(spec)
        return Rendezvous(
            dynamic=dynamic,
            at_worker=elastic and host in {"", f"{job}-worker-0"} and backend == "c10d",
            obstacle=next(_obstacles_to_meet(groups, dynamic=dynamic, meets=meets), ""),
            alike=_ALIKE if dynamic else "",
        )

    def lacks_elasticity(self, spec: Raw) -> bool:
        """Return whether the job has no elasticPolicy."""
        return spec.get(_POLICY) is None

    def elastic_spec(
        self, job: "TrainingJob", spec: Raw, *, least: int, most: int
    ) -> ElasticSpec | str:
        """Return the spec with an elasticPolicy and only Workers, or why the job stays fixed.

        torchrun's agents then meet by its own rendezvous (c10d) at the first worker, so workers can
        join and leave. With a Master the operator would fix the ranks. A Master with the template
        of the Workers trains as they do, so it becomes a Worker.
        """
        specs = mapping(spec.get(self.replica_specs))
        if why := next(filter(None, self._obstacles(job, spec, least=least, most=most)), ""):
            return why
        policy = _elastic_policy(least, most)
        changes: dict[str, Any] = {_POLICY: policy}
        folded = _MASTER in specs
        if folded and WORKER in specs:
            changes[self.replica_specs] = {_MASTER: None, WORKER: {"replicas": job.pods}}
        worker = {**mapping(specs.get(WORKER, specs.get(_MASTER))), "replicas": job.pods}
        workers = {key: group for key, group in specs.items() if key != _MASTER} | {WORKER: worker}
        return ElasticSpec(
            spec={**spec, _POLICY: policy, self.replica_specs: workers},
            renamed=None if WORKER in specs else (_MASTER, WORKER),
            changes=changes,
            folded=_MASTER if folded else "",
            meets_by="torchrun's own rendezvous",
        )

    def port_offset(self, job: "TrainingJob", type_: str, index: int) -> int | None:
        """Return 0 where the ranks meet, else None: PyTorch's connections need no other port.

        Only the first of torchrun's agents listens, but all declare its port and so share no node.
        """
        if job.rendezvous.dynamic:
            return 0 if type_ == WORKER.lower() else None
        return 0 if (type_, index) == (_MASTER.lower(), 0) else None

    def edits_on_host(self, job: "TrainingJob") -> Sequence[tuple[str, str]]:
        """Return the edits on the pods of a job on the host network, each with its reason."""
        return (*_EDITS, *(_AGENT_EDITS if job.rendezvous.dynamic else ()))

    def listens_on(self, pod: HostedPod, env: Env) -> int | None:
        """Return the job's port for a master and for torchrun's agents, else None.

        A master listens on it. So does one of the agents, and two agents must not share a node.
        """
        is_master = (pod.type, pod.index) == (_MASTER.lower(), 0)
        is_agent = value_in(env, "PET_RDZV_BACKEND") in DYNAMIC
        return pod.base if is_master or is_agent else None

    def edited_env(self, pod: HostedPod, env: Env) -> Env:
        """Return the variables with the rendezvous of the ranks and the names of the nodes.

        The operator derives the ports from the templates, which a person may edit.
        """
        if value_in(env, "MASTER_ADDR"):
            for name in ("MASTER_PORT", "PET_MASTER_PORT"):
                env = with_value(env, name, str(pod.base))
        # By default an agent advertises its node's name, which other nodes may not resolve.
        env = with_default(env, "PET_LOCAL_ADDR", valueFrom=_POD_IP)
        env = with_default(env, "NCCL_HOSTID", valueFrom=_NODE_NAME)
        host = value_in(env, "PET_RDZV_ENDPOINT").rpartition(":")[0]
        meeting = host.partition(".")[0]
        if not meeting.startswith(f"{pod.job}-") or value_in(env, "PET_RDZV_BACKEND") != "c10d":
            return env
        env = with_value(env, "PET_RDZV_ENDPOINT", f"{host}:{pod.base}")
        # torchrun finds the host of the store by its host name, which all pods on a node share.
        is_host = f"is_host={int(meeting == pod.name)}"
        conf = value_in(env, "PET_RDZV_CONF")
        if "is_host=" in conf:
            return env
        return with_value(env, "PET_RDZV_CONF", f"{conf},{is_host}" if conf else is_host)

    def _has_master(self, spec: Raw) -> bool:
        return _has_type(mapping(spec.get(self.replica_specs)), _MASTER)

    def _agents(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Agents | str:
        """Return the agents that the workers' command starts, or why their number is fixed."""
        keys = (group.key for group in groups if group.type == WORKER and not group.excess)
        return agents_of(mapping(self._trainer(spec, next(keys, ""))))

    def _trainer(self, spec: Raw, key: str) -> Raw | None:
        """Return the training container of a replica type, or None."""
        specs = mapping(spec.get(self.replica_specs))
        template = mapping(mapping(specs.get(key)).get("template"))
        named = container_named(mapping(template.get("spec")), self.container)
        return None if named is None else named[1]

    def _obstacles(self, job: "TrainingJob", spec: Raw, *, least: int, most: int) -> Iterator[str]:
        """Yield why a job stays fixed; the command line, which is slowest to read, comes last."""
        policy = mapping(spec.get("runPolicy"))
        specs = mapping(spec.get(self.replica_specs))
        yield job.excess
        if not least <= job.pods <= most:
            yield f"it has {job.pods} training pods, outside of {least}-{most}"
        if policy.get("cleanPodPolicy") not in (None, "", "None"):
            yield "with its cleanPodPolicy, the first worker that succeeds ends the others"
        if policy.get("backoffLimit") == 0:
            yield "with a backoffLimit of 0, a worker that leaves fails the job"
        for group in job.groups:
            yield from _obstacles_in(group, mapping(specs.get(group.key)))
        if {_MASTER, WORKER} <= specs.keys():
            yield from self._differences(mapping(specs[_MASTER]), mapping(specs[WORKER]))
        trainer = self._trainer(spec, job.groups[0].key)
        yield f"no container is named {self.container}" if trainer is None else ""
        yield why_not_torchrun(mapping(trainer))

    def _differences(self, master: Raw, workers: Raw) -> Iterator[str]:
        """Yield the differences between the Master and the Workers of a job."""
        if master.get("template") != workers.get("template"):
            yield "its Master and its Workers have different templates"
        restarts = {
            group_spec.get("restartPolicy") or self.restart for group_spec in (master, workers)
        }
        if len(restarts) > 1:
            yield "its Master and its Workers have different restart policies"


def _why_fixed(
    groups: "Sequence[ReplicaGroup]", one_size: str, *, elastic: bool, most: int, restarts: int
) -> Iterator[str]:
    """Yield the reasons why only the present number of workers can train."""
    if any(group.type == _MASTER for group in groups):
        yield (
            "its Master fixes the ranks of its workers; a PyTorchJob can be scaled if it has an "
            "elasticPolicy and only workers"
        )
    if one_size:
        yield one_size
    if not elastic:
        yield "its workers learn their number only when they start: set an elasticPolicy"
    if not most:
        yield (
            "its elasticPolicy has no maxReplicas, so torchrun accepts no other number of workers: "
            "set minReplicas and maxReplicas"
        )
    if not restarts:
        yield (
            "torchrun may not restart its workers, as it must when a worker leaves: set "
            "elasticPolicy.maxRestarts, e.g. to 100"
        )


def _obstacles_to_meet(
    groups: "Sequence[ReplicaGroup]", *, dynamic: bool, meets: bool
) -> Iterator[str]:
    """Yield the reasons why the pods of a job cannot meet on the host network."""
    if dynamic and any(group.type == _MASTER for group in groups):
        yield "it has both a Master and an elasticPolicy, so all of its pods are torchrun agents"
    if not meets and sum(group.replicas for group in groups) > 1:
        yield (
            "it has neither a Master nor an elasticPolicy, so kfext cannot tell which port its "
            "workers use"
        )


def _obstacles_in(group: "ReplicaGroup", spec: Raw) -> Iterator[str]:
    """Yield the reasons why a replica type keeps its job fixed."""
    if group.key != group.type:
        yield f"its replica type {group.type} has another spelling"
    if spec.get("replicas") not in (None, group.replicas):
        yield f"the number of its replicas of type {group.type} is malformed"
    if group.fails:
        yield f"with the restartPolicy of its {group.type}, a worker that leaves fails the job"
    if group.networking.own_host:
        yield f"the {group.type} template itself sets the host network or a host port"


def _elastic_policy(least: int, most: int) -> dict[str, Any]:
    return {
        "rdzvBackend": "c10d",
        "minReplicas": least,
        "maxReplicas": most,
        "maxRestarts": MAX_RESTARTS,
        "rdzvConf": [{"key": "last_call_timeout", "value": str(LAST_CALL_SECONDS)}],
    }


def _has_policy(spec: Raw) -> bool:
    return isinstance(spec.get(_POLICY), Mapping)


def _has_type(specs: Raw, type_: str) -> bool:
    """Return whether a job has a replica type, in any spelling."""
    return any(str(key).lower() == type_.lower() for key in specs)


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None

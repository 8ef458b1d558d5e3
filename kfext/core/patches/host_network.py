"""Edits of a job's pods, so that they find each other on the network of their nodes.

For some kinds of job, the operator derives addresses and Services from a port in the templates,
which the job's patch sets. The pod webhook makes the other edits. It reads only the pod and the
base of the job's ports, so that all pods of the job have the same addresses. It makes all edits of
a pod or none.
"""

from collections.abc import Mapping, Sequence

from kfext import names
from kfext.core.patches.json_patch import Operation, pointer, write
from kfext.model.job import TrainingJob, template_of
from kfext.model.kinds.job_kind import Env, HostedPod, JobKind, Raw, with_default
from kfext.model.networking import LARGEST_PORT, TCP
from kfext.model.pod import replica_of
from kfext.model.podspec import container_named
from kfext.model.tolerant import mapping, member, sequence, strings, text

_EDITS = (
    ("hostNetwork is true", "pods are to communicate without the overlay"),
    ("dnsPolicy is ClusterFirstWithHostNet", "names of Services do not resolve otherwise"),
    (
        "the operator's port is declared only where it has to be",
        "kube-scheduler puts only one pod that declares it on a node",
    ),
)


def edits_of(job: TrainingJob) -> Sequence[tuple[str, str]]:
    """Return, in words, the edits of the pods of a job on the host network, with their reasons."""
    return (*_EDITS, *job.kind.edits_on_host(job))


def host_network(kind: JobKind, metadata: Raw, spec: Raw) -> list[Operation]:
    """Return the operations that move a pod to its node's network.

    There are none unless the pod's annotations have the base of the job's ports.
    """
    annotations = strings(metadata.get("annotations"))
    base = annotations.get(names.PORT_BASE, "")
    containers = sequence(spec.get("containers"))
    if not _is_port(base) or spec.get("hostNetwork") is True:
        return []
    if not all(isinstance(container, Mapping) for container in containers):
        return []  # the API server will refuse it
    interfaces = annotations.get(names.INTERFACES, "")
    pod = _hosted(kind, metadata, base=int(base))
    operations = [_set(spec, "hostNetwork", True)]
    if text(spec.get("dnsPolicy")) in {"", "ClusterFirst"}:
        # With ClusterFirst alone a pod on the host network would use the DNS server of its node.
        operations.append(_set(spec, "dnsPolicy", "ClusterFirstWithHostNet"))
    for number, container in enumerate(containers):
        path = ("spec", "containers", str(number))
        env = [dict(mapping(variable)) for variable in sequence(container.get("env"))]
        if container.get("name") == kind.container:
            operations += _ports(container, kind.listens_on(pod, env), kind=kind, at=path)
        env = _with_interfaces(kind.edited_env(pod, env), interfaces)
        if env != sequence(container.get("env")):
            operations.append(_set(container, "env", env, at=path))
    return operations


def _hosted(kind: JobKind, metadata: Raw, *, base: int) -> HostedPod:
    labels = strings(metadata.get("labels"))
    replica = replica_of(labels, kind)
    return HostedPod(
        name=text(metadata.get("name")),
        job=labels.get(kind.job_label, ""),
        type=replica.type if replica else "",
        index=replica.index if replica else -1,
        base=base,
    )


def _ports(
    container: Raw, port: int | None, *, kind: JobKind, at: Sequence[str]
) -> list[Operation]:
    """Return the operations that set the operator's port to `port`, or remove it.

    On the host network a declared port is a port of the node, and kube-scheduler binds only one pod
    that declares the port to a node.
    """
    declared = [mapping(other) for other in sequence(container.get("ports"))]
    others = [dict(other) for other in declared if not kind.is_own_port(other)]
    named = {"name": kind.port} if kind.port else {}
    operator_port = {**named, "containerPort": port, "protocol": TCP}
    wanted = [*others, operator_port] if port else others
    if wanted == declared:
        return []
    if not wanted:
        return [{"op": "remove", "path": pointer(*at, "ports")}]
    return [_set(container, "ports", wanted, at=at)]


def _with_interfaces(env: Env, interfaces: str) -> Env:
    if not interfaces:
        return env
    # Gloo opens every interface in its variable, and fails if any is missing.
    env = with_default(env, "GLOO_SOCKET_IFNAME", value=interfaces.partition(",")[0])
    return with_default(env, "NCCL_SOCKET_IFNAME", value=interfaces)


def _is_port(written: str) -> bool:
    return written.isdecimal() and len(written) <= 5 and 0 < int(written) <= LARGEST_PORT


def _set(parent: Raw, key: str, value: object, *, at: Sequence[str] = ("spec",)) -> Operation:
    return write(parent, key, pointer(*at, key), value)


def port_operations(raw: Raw, job: TrainingJob, *, base: int) -> list[Operation]:
    """Return the operations that set the rendezvous port of a job to `base`."""
    if not job.kind.port_in_templates:
        return []
    spec = mapping(raw.get("spec"))
    operations = []
    for group in job.groups:
        pod = mapping(template_of(job, raw, group).get("spec"))
        if trainer := container_named(pod, job.kind.container):
            number, container = trainer
            pod_path = pointer("spec", job.kind.replica_specs, group.key, "template", "spec")
            pod_path += pointer("containers", str(number))
            operations += _template_port(container, job, port=base, at=pod_path)
    if job.rendezvous.at_worker and member(spec, job.kind.port_path) is not None:
        path = pointer("spec", *job.kind.port_path)
        operations.append({"op": "replace", "path": path, "value": base})
    return operations


def _template_port(container: Raw, job: TrainingJob, *, port: int, at: str) -> list[Operation]:
    ports = sequence(container.get("ports"))
    # Only the position identifies the container, so test its name.
    name_test: Operation = {"op": "test", "path": f"{at}/name", "value": job.kind.container}
    wanted = {"name": job.kind.port, "containerPort": port, "protocol": "TCP"}
    if not ports:
        return [name_test, {"op": "add", "path": f"{at}/ports", "value": [wanted]}]
    for number, declared in enumerate(map(mapping, ports)):
        if declared.get("name") == job.kind.port:
            path = f"{at}/ports/{number}"
            return [
                name_test,
                {"op": "test", "path": f"{path}/name", "value": job.kind.port},
                {"op": "replace", "path": f"{path}/containerPort", "value": port},
            ]
    return [name_test, {"op": "add", "path": f"{at}/ports/-", "value": wanted}]

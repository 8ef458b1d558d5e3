"""The part of a job's patch that sets the ports of the host network for the training-operator.

For some kinds the operator derives the addresses and the Services from its own port in the
templates. The addresses of other kinds are rewritten pod by pod (core.patches.host_network).
"""

from collections.abc import Mapping
from typing import Any

from kfext.core.patches.json_patch import Operation, pointer
from kfext.model.job import TrainingJob, template_of
from kfext.model.podspec import container_named
from kfext.model.tolerant import mapping, member, sequence

Raw = Mapping[str, Any]


def port_operations(raw: Raw, job: TrainingJob, *, base: int) -> list[Operation]:
    """Return the operations that make the replicas of a job meet at its port `base`."""
    if not job.kind.port_in_templates:
        return []
    spec = mapping(raw.get("spec"))
    operations = []
    for group in job.groups:
        pod = mapping(template_of(job, raw, group).get("spec"))
        if trainer := container_named(pod, job.kind.container):
            number, container = trainer
            at = pointer("spec", job.kind.replica_specs, group.key, "template", "spec")
            at += pointer("containers", str(number))
            operations += _port(container, job, port=base, at=at)
    if job.rendezvous.at_worker and member(spec, job.kind.port_path) is not None:
        path = pointer("spec", *job.kind.port_path)
        operations.append({"op": "replace", "path": path, "value": base})
    return operations


def _port(container: Raw, job: TrainingJob, *, port: int, at: str) -> list[Operation]:
    """Return the operations that set the operator's port of a container."""
    ports = sequence(container.get("ports"))
    # Only the position identifies the container, so test its name.
    same: Operation = {"op": "test", "path": f"{at}/name", "value": job.kind.container}
    wanted = {"name": job.kind.port, "containerPort": port, "protocol": "TCP"}
    if not ports:
        return [same, {"op": "add", "path": f"{at}/ports", "value": [wanted]}]
    for number, declared in enumerate(map(mapping, ports)):
        if declared.get("name") == job.kind.port:
            path = f"{at}/ports/{number}"
            return [
                same,
                {"op": "test", "path": f"{path}/name", "value": job.kind.port},
                {"op": "replace", "path": f"{path}/containerPort", "value": port},
            ]
    return [same, {"op": "add", "path": f"{at}/ports/-", "value": wanted}]

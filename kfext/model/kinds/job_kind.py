"""The kinds of training jobs and the differences between their APIs."""

from dataclasses import dataclass

WORKER = "Worker"
"""The replica type, of both kinds, of which the number may change."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of training job and how its API differs from that of the other kind.

    `name`: the kind, as in an object's `kind`.
    `plural`: the name of the resource in URLs.
    `replica_specs`: the field of the spec that holds the replica types.
    `container`: the name of the training container in each pod.
    `port`: the name of that container's port on which replicas find each other.
    `port_number`: the number of that port where a template does not declare it.
    `types`: the replica types in rank order; the others connect to the first.
    `restart`: the restartPolicy of a replica type that states none.
    """

    name: str
    plural: str
    replica_specs: str
    container: str
    port: str
    port_number: int
    types: tuple[str, ...]
    restart: str


PYTORCH = Kind(
    name="PyTorchJob",
    plural="pytorchjobs",
    replica_specs="pytorchReplicaSpecs",
    container="pytorch",
    port="pytorchjob-port",
    port_number=23456,
    types=("Master", "Worker"),
    restart="OnFailure",
)
TENSORFLOW = Kind(
    name="TFJob",
    plural="tfjobs",
    replica_specs="tfReplicaSpecs",
    container="tensorflow",
    port="tfjob-port",
    port_number=2222,
    types=("Chief", "Master", "PS", "Worker", "Evaluator"),
    restart="Never",
)
KINDS = {kind.name: kind for kind in (PYTORCH, TENSORFLOW)}

"""The kinds of training jobs, and where the API of one differs from the other's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of training job and where its API differs from the other's."""

    name: str
    plural: str
    replica_specs: str
    container: str
    port: str
    """Name of the port, of that container, on which replicas find each other."""
    types: tuple[str, ...]
    """Replica types in rank order: the first is where the others connect to."""


PYTORCH = Kind(
    name="PyTorchJob",
    plural="pytorchjobs",
    replica_specs="pytorchReplicaSpecs",
    container="pytorch",
    port="pytorchjob-port",
    types=("Master", "Worker"),
)
TENSORFLOW = Kind(
    name="TFJob",
    plural="tfjobs",
    replica_specs="tfReplicaSpecs",
    container="tensorflow",
    port="tfjob-port",
    types=("Chief", "Master", "PS", "Worker", "Evaluator"),
)
KINDS = {kind.name: kind for kind in (PYTORCH, TENSORFLOW)}

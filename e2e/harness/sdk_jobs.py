"""Real training jobs as Kubeflow SDK objects: CPU requests = limits, one thread, fixed seeds.

So compute is equal in every placement, and only placement and network differ.
"""

from kubeflow.training import (
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    KubeflowOrgV1TFJob,
    KubeflowOrgV1TFJobSpec,
)
from kubernetes import client

from e2e.testbed.images import TENSORFLOW_IMAGE, TRAINING_IMAGE

_GRACE_SECONDS = 2
_MEMORY = "700Mi"


def pytorch_job(
    name: str,
    *,
    workers: int = 1,
    cpu: str = "200m",
    memory: str = _MEMORY,
    arguments: tuple[str, ...] = (),
) -> KubeflowOrgV1PyTorchJob:
    """Return a DDP training job of one master and `workers` workers."""
    command = ["python3", "/jobs/train_ddp.py", *arguments]
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            pytorch_replica_specs={
                kind: _replicas(
                    count,
                    container="pytorch",
                    image=TRAINING_IMAGE,
                    command=command,
                    limits={"cpu": cpu, "memory": memory},
                )
                for kind, count in (("Master", 1), ("Worker", workers))
            },
        ),
    )


def tf_job(
    name: str, *, workers: int = 1, cpu: str = "150m", arguments: tuple[str, ...] = ()
) -> KubeflowOrgV1TFJob:
    """Return a training job of one chief, one parameter server and `workers` workers."""
    command = ["python3", "/jobs/train_tf.py", *arguments]
    return KubeflowOrgV1TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1TFJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="Running"),
            tf_replica_specs={
                kind: _replicas(
                    count,
                    container="tensorflow",
                    image=TENSORFLOW_IMAGE,
                    command=command,
                    limits={"cpu": cpu, "memory": _MEMORY},
                )
                for kind, count in (("Chief", 1), ("PS", 1), ("Worker", workers))
            },
        ),
    )


def _replicas(
    count: int, *, container: str, image: str, command: list[str], limits: dict[str, str]
) -> KubeflowOrgV1ReplicaSpec:
    return KubeflowOrgV1ReplicaSpec(
        replicas=count,
        restart_policy="OnFailure",
        template=client.V1PodTemplateSpec(
            spec=client.V1PodSpec(
                # A parameter server never ends by itself, and has nothing to save.
                termination_grace_period_seconds=_GRACE_SECONDS,
                containers=[
                    client.V1Container(
                        name=container,
                        image=image,
                        image_pull_policy="IfNotPresent",
                        command=command,
                        resources=client.V1ResourceRequirements(requests=limits, limits=limits),
                    )
                ],
            )
        ),
    )

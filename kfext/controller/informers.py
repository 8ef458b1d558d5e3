"""The collections that the controller follows, by name, and where their changes go."""

from collections.abc import Mapping
from typing import Any

from kfext.controller.training_plan import decode_training_plan
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.kube import paths, wire
from kfext.kube.client import Client
from kfext.kube.informer import Informer
from kfext.model.namespace import Namespace
from kfext.state.planner import Planner


def informers(
    client: Client, *, planner: Planner, plan_writer: TrainingPlanWriter
) -> Mapping[str, Informer[Any]]:
    """Return the informers, not yet running; the kinds that people write come through kopf."""
    cluster, queue, settings = planner.cluster, planner.queue, planner.settings

    def observe_namespace(old: Namespace | None, new: Namespace | None) -> None:
        settings.observe_namespace(old, new)
        if new is not None:
            cluster.mark_queue(new.name)  # its settings may be others now

    followed = {
        "nodes": (paths.nodes(), wire.decode_node, cluster.observe_node),
        "pods": (paths.pods(), wire.decode_pod, cluster.observe_pod),
        "namespaces": (paths.namespaces(), wire.decode_namespace, observe_namespace),
        "priorityclasses": (
            paths.priority_classes(),
            wire.decode_priority_class,
            queue.observe_class,
        ),
        "resourcequotas": (paths.resource_quotas(), wire.decode_quota, queue.quotas.observe_quota),
        "limitranges": (
            paths.limit_ranges(),
            wire.decode_limit_range,
            queue.quotas.observe_limit_range,
        ),
        "networkpolicies": (
            paths.network_policies(),
            wire.decode_network_policy,
            settings.observe_network_policy,
        ),
        "persistentvolumeclaims": (
            paths.volume_claims(),
            wire.decode_volume_claim,
            cluster.volumes.observe_claim,
        ),
        "persistentvolumes": (paths.volumes(), wire.decode_volume, cluster.volumes.observe_volume),
        "storageclasses": (
            paths.storage_classes(),
            wire.decode_storage_class,
            cluster.volumes.observe_class,
        ),
        "sharedgpus": (paths.shared_gpus(), wire.decode_shared_gpu, cluster.observe_card),
        "trainingplans": (paths.plans(), decode_training_plan, plan_writer.observe),
    }
    made: dict[str, Informer[Any]] = {}
    for name, (path, decode, on_change) in followed.items():
        take_in: Any = on_change
        made[name] = Informer(client, path, decode=decode, on_change=take_in)
    return made

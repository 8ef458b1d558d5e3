"""Read the whole cluster once, for commands that decide as the controller would."""

from typing import Any

from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.autoscaler import has_autoscaler
from kfext.kube.client import Client
from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import parse_namespace
from kfext.model.network_policy import parse_network_policy
from kfext.model.node import parse_node
from kfext.model.pod import parse_pod
from kfext.model.policy import parse_policy
from kfext.model.priority import PriorityClass, parse_priority_class
from kfext.model.quota import parse_quota
from kfext.model.shared_gpu import parse_shared_gpu
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping, text
from kfext.model.volume import parse_storage_class, parse_volume, parse_volume_claim

_NEEDED = {
    **{kind.plural: paths.jobs(kind.plural) for kind in KINDS.values()},
    "limitranges": paths.limit_ranges(),
    "namespaces": paths.namespaces(),
    "networkpolicies": paths.network_policies(),
    "nodes": paths.nodes(),
    "persistentvolumeclaims": paths.volume_claims(),
    "persistentvolumes": paths.volumes(),
    "pods": paths.pods(),
    "priorityclasses": paths.priority_classes(),
    "resourcequotas": paths.resource_quotas(),
    "sharedgpus": paths.shared_gpus(),
    "storageclasses": paths.storage_classes(),
    "trainingpolicies": paths.policies(),
}


async def read_snapshot(client: Client) -> Snapshot:
    """Return the cluster as it stands. Raises UserError naming all missing rights, ApiError."""
    listed: dict[str, list[dict[str, Any]]] = {}
    forbidden = []
    for what, path in _NEEDED.items():
        try:
            listed[what] = await client.list_all(path)
        except Forbidden:
            forbidden.append(what)
        except NotFound as error:
            raise UserError(f"the cluster serves no {what}: is kfext installed?") from error
    if forbidden:
        raise UserError(
            f"to plan, you need the right to list in the whole cluster: {', '.join(forbidden)}; "
            f"ask whoever gives out rights, or submit the job and see `kubectl kfext explain`"
        )
    jobs: list[TrainingJob] = []
    for kind in KINDS.values():
        parsed = (parse_job({"kind": kind.name, **raw}) for raw in listed[kind.plural])
        jobs += [job for job in parsed if job is not None]
    return Snapshot(
        nodes=tuple(map(parse_node, listed["nodes"])),
        pods=tuple(map(parse_pod, listed["pods"])),
        jobs=tuple(jobs),
        policies=tuple(map(parse_policy, listed["trainingpolicies"])),
        namespaces={one.name: one for one in map(parse_namespace, listed["namespaces"])},
        classes=_by_name(listed["priorityclasses"]),
        cards=tuple(filter(None, map(parse_shared_gpu, listed["sharedgpus"]))),
        quotas=tuple(map(parse_quota, listed["resourcequotas"])),
        autoscaler=await has_autoscaler(client),
        limit_ranges=frozenset(
            text(mapping(one.get("metadata")).get("namespace")) for one in listed["limitranges"]
        ),
        network_policies=tuple(map(parse_network_policy, listed["networkpolicies"])),
        volume_claims=tuple(map(parse_volume_claim, listed["persistentvolumeclaims"])),
        volumes=tuple(map(parse_volume, listed["persistentvolumes"])),
        storage_classes=tuple(map(parse_storage_class, listed["storageclasses"])),
    )


async def read_classes(client: Client) -> dict[str, PriorityClass]:
    """Return the priority classes by name. Raises ApiError."""
    return _by_name(await client.list_all(paths.priority_classes()))


def _by_name(listed: list[dict[str, Any]]) -> dict[str, PriorityClass]:
    return {one.name: one for one in map(parse_priority_class, listed)}

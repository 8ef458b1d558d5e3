"""Read the whole cluster once, for commands that decide as the controller would."""

from typing import Any

from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.job import KINDS, TrainingJob, parse_job
from kfext.model.namespace import parse_namespace
from kfext.model.node import parse_node
from kfext.model.pod import parse_pod
from kfext.model.policy import parse_policy
from kfext.model.priority import PriorityClass, parse_priority_class
from kfext.model.quota import parse_quota
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping, text


async def read_snapshot(client: Client) -> Snapshot:
    """Return the cluster as it stands. Raises UserError for a right that is missing, ApiError."""
    jobs: list[TrainingJob] = []
    for kind in KINDS.values():
        listed = await _needed(client, kind.plural, paths.jobs(kind.plural))
        parsed = (parse_job({"kind": kind.name, **raw}) for raw in listed)
        jobs += [job for job in parsed if job is not None]
    ranges = await _needed(client, "limitranges", paths.limit_ranges())
    return Snapshot(
        nodes=tuple(map(parse_node, await _needed(client, "nodes", paths.nodes()))),
        pods=tuple(map(parse_pod, await _needed(client, "pods", paths.pods()))),
        jobs=tuple(jobs),
        policies=tuple(
            map(parse_policy, await _needed(client, "trainingpolicies", paths.policies()))
        ),
        namespaces={
            found.name: found
            for found in map(
                parse_namespace, await _needed(client, "namespaces", paths.namespaces())
            )
        },
        classes=await read_classes(client),
        quotas=tuple(
            map(parse_quota, await _needed(client, "resourcequotas", paths.resource_quotas()))
        ),
        limit_ranges=frozenset(
            text(mapping(one.get("metadata")).get("namespace")) for one in ranges
        ),
    )


async def read_classes(client: Client) -> dict[str, PriorityClass]:
    """Return the priority classes by name. Raises UserError, ApiError."""
    listed = await _needed(client, "priorityclasses", paths.priority_classes())
    return {one.name: one for one in map(parse_priority_class, listed)}


async def _needed(client: Client, what: str, path: str) -> list[dict[str, Any]]:
    try:
        return await client.list_all(path)
    except Forbidden as error:
        raise UserError(
            f"to plan, you need the right to list {what} in the whole cluster; ask whoever gives "
            f"out rights, or submit the job and see `kubectl kfext explain`"
        ) from error
    except NotFound as error:
        raise UserError(f"the cluster serves no {what}: is kfext installed?") from error

"""Discovery of the kinds of training jobs that a cluster serves, and of its autoscaler."""

from collections.abc import Collection, Mapping
from typing import Any

from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, member, sequence, text
from kfext.names import NEW_NODES_NAMESPACE, PLACEHOLDER_TEMPLATE

_STATUS = paths.config_maps("kube-system", "cluster-autoscaler-status")
"""The ConfigMap that the Kubernetes cluster-autoscaler writes while it runs."""
_KARPENTER = "/apis/karpenter.sh"


async def served_kinds(client: Client) -> tuple[JobKind, ...]:
    """Return the kinds of training jobs that have a CRD in the cluster. Raises ApiError.

    The objects that the operator renders from the jobs must have a CRD too.
    """
    wanted = {(kind.group, kind.version) for kind in KINDS.values()}
    served = {api: await _resources(client, *api) for api in sorted(wanted)}
    kinds = [kind for kind in KINDS.values() if kind.plural in served[kind.group, kind.version]]
    for resource in {kind.rendered for kind in kinds if kind.rendered}:
        if resource.plural not in await _resources(client, resource.group, resource.version):
            kinds = [kind for kind in kinds if kind.rendered != resource]
    return tuple(kinds)


async def _resources(client: Client, group: str, version: str) -> set[str]:
    """Return the names of the resources of an API version; none if the API server lacks it."""
    try:
        answer = await client.get(f"/apis/{group}/{version}")
    except NotFound:
        return set()
    return {text(mapping(resource).get("name")) for resource in sequence(answer.get("resources"))}


async def outdated_kinds(client: Client, kinds: Collection[JobKind]) -> tuple[JobKind, ...]:
    """Return the kinds with a CRD that lacks the field through which kfext changes templates.

    Raises ApiError.
    """
    outdated = []
    for kind in kinds:
        if kind.rendered:
            schemas = await client.get(f"/openapi/v3/apis/{kind.group}/{kind.version}")
            if kind.replica_specs not in _fields_of_spec(schemas, kind):
                outdated.append(kind)
    return tuple(outdated)


def _fields_of_spec(schemas: Mapping[str, Any], kind: JobKind) -> Mapping[str, Any]:
    """Return the fields of the spec of a kind from the schemas (OpenAPI v3) of its API version."""
    for schema in mapping(member(schemas, ("components", "schemas"))).values():
        gvks = sequence(mapping(schema).get("x-kubernetes-group-version-kind"))
        if any(mapping(item).get("kind") == kind.name for item in gvks):
            return mapping(member(schema, ("properties", "spec", "properties")))
    return {}


def why_unserved(kinds: Collection[JobKind]) -> str:
    """Return a message that the cluster serves none of these kinds; it names their operators."""
    plurals = " or ".join(kind.plural for kind in kinds)
    operators = " or ".join(dict.fromkeys(kind.provider for kind in kinds))
    return f"the cluster serves no {plurals}; install {operators}"


async def has_autoscaler(client: Client) -> bool:
    """Return whether cluster-autoscaler or Karpenter is installed and visible to kfext.

    An autoscaler may add nodes when it sees a job that cannot fit. Raises ApiError if a request
    fails for any other reason.
    """
    return await _exists(client, _STATUS) or await _exists(client, _KARPENTER)


async def placeholder_template(client: Client) -> Mapping[str, Any]:
    """Return the template of placeholders; empty if the component new-nodes is not installed.

    Raises ApiError for other failures.
    """
    try:
        path = paths.pod_templates(NEW_NODES_NAMESPACE, PLACEHOLDER_TEMPLATE)
        return mapping((await client.get(path)).get("template"))
    except (NotFound, Forbidden):
        return {}


async def _exists(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except (NotFound, Forbidden):
        return False
    return True

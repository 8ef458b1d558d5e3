"""The options that select a command's cluster and namespace, and its reads of objects there."""

import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import NoAccess, namespace_of
from kfext.kube.discovery import has_autoscaler, placeholder_template, served_kinds, why_unserved
from kfext.kube.records import USAGE, read_record
from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import parse_namespace
from kfext.model.network_policy import parse_network_policy
from kfext.model.node import parse_node
from kfext.model.plan import plan_of
from kfext.model.pod import Pod, parse_pod
from kfext.model.policy import parse_policy
from kfext.model.priority import PriorityClass, parse_priority_class
from kfext.model.quota import parse_quota
from kfext.model.rendered import Rendered, as_rendered, parse_rendered, rendered_key, with_job_uid
from kfext.model.shared_gpu import parse_shared_gpu
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping, text
from kfext.model.volume import parse_storage_class, parse_volume, parse_volume_claim

Raw = dict[str, Any]
_DEFAULT = "default"
_SNAPSHOT_PATHS = {
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
"""The collections that placement depends on, except jobs: plural name -> path."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options for the cluster and the namespace; unset options default to the kubeconfig."""

    namespace: str | None
    context: str | None
    kubeconfig: Path | None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Yield a client. Raises NoAccess."""
        async with await Client.connect(self.kubeconfig, context=self.context) as client:
            yield client

    def in_namespace(self) -> str:
        """Return the namespace of the option, else of the context, else `default`."""
        if self.namespace:
            return self.namespace
        with suppress(NoAccess):  # inside a pod; otherwise `connect` raises it
            return namespace_of(self.kubeconfig, context=self.context) or _DEFAULT
        return _DEFAULT


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add -n, --context and --kubeconfig, which the command receives as `cluster`."""

    @click.option("-n", "--namespace", help="Default: the context's.")
    @click.option("--context", help="Default: the kubeconfig's current context.")
    @click.option("--kubeconfig", type=click.Path(path_type=Path), help="As for kubectl.")
    @functools.wraps(command)
    def with_cluster(
        *, namespace: str | None, context: str | None, kubeconfig: Path | None, **options: Any
    ) -> None:
        command(**options, cluster=ClusterOptions(namespace, context, kubeconfig))

    return with_cluster


kind_option = click.option(
    "--kind",
    type=click.Choice([kind.name for kind in KINDS.values()], case_sensitive=False),
    help="Default: all kinds.",
)
all_namespaces_option = click.option(
    "-A", "--all-namespaces", is_flag=True, help="In all namespaces."
)


async def pods_of(client: Client, job: TrainingJob) -> list[Pod]:
    """Return the pods of a job, matched by name if the caller may not list rendered objects."""
    selector = f"{job.kind.job_label}={job.name}"
    listed = await client.list_all(paths.pods(job.namespace), labelSelector=selector)
    rendered = {item.uid: item for item in await _rendered(client, [job.kind], job.namespace)}
    owners = {uid: job.uid for uid, item in rendered.items() if item.belongs_to(job)}
    by_name = None if owners or not job.kind.rendered else job.uid
    owned = (pod for pod in map(parse_pod, listed) if pod.owner_uid)
    pods = (with_job_uid(pod, owners.get(pod.owner_uid, by_name)) for pod in owned)
    return [pod for pod in pods if pod.owner_uid == job.uid]


async def jobs_on(client: Client, node: str) -> list[TrainingJob]:
    """Return the jobs that kfext has placed or stopped and that have unfinished pods on a node.

    Raises UserError if the caller may not list jobs, ApiError.
    """
    listed = await client.list_all(paths.pods(), fieldSelector=f"spec.nodeName={node}")
    owners = {pod.owner_uid for pod in map(parse_pod, listed) if not pod.finished} - {""}
    if not owners:
        return []
    rendered = await _rendered(client, await kinds_in(client), "")
    owners |= {item.job_uid for item in rendered if item.uid in owners}
    jobs = [job for job, _ in await all_jobs(client, namespace="", kind=None)]
    return [
        job for job in jobs if job.uid in owners and (plan_of(job) or job.held) and not job.released
    ]


async def _rendered(client: Client, kinds: Sequence[JobKind], namespace: str) -> list[Rendered]:
    """Return the objects that operators have rendered from jobs. Raises ApiError."""
    items: list[Rendered | None] = []
    for kind in kinds:
        if kind.rendered:
            path = paths.rendered(kind.rendered, namespace)
            with suppress(Forbidden):  # the templates then stay unknown
                items += map(parse_rendered, await client.list_all(path))
    return [item for item in items if item is not None]


def _join(jobs: Iterable[TrainingJob], rendered: Iterable[Rendered]) -> list[TrainingJob]:
    """Return jobs with the templates that were rendered from them."""
    by_key = {item.key: item for item in rendered}
    pairs = ((job, by_key.get(rendered_key(job))) for job in jobs)
    return [as_rendered(job, item) if item else job for job, item in pairs]


async def find_job(
    client: Client, *, name: str, namespace: str, kind: str | None
) -> tuple[TrainingJob, Raw]:
    """Return the job with a name, parsed and raw. Raises UserError unless exactly one exists."""
    jobs, candidates = [], await kinds_in(client, kind)
    for candidate in candidates:
        try:
            jobs.append(await client.get(paths.jobs(candidate, namespace, name)))
        except NotFound:
            continue
    if not jobs:
        kinds = " or ".join(candidate.name for candidate in candidates)
        raise UserError(f"there is no {kinds} {name!r} in namespace {namespace!r}")
    if len(jobs) > 1:
        kinds = " and ".join(text(raw.get("kind")) for raw in jobs)
        raise UserError(f"there are jobs {name!r} of several kinds ({kinds}): choose with --kind")
    return await _with_templates(client, jobs[0]), jobs[0]


async def _with_templates(client: Client, raw: Raw) -> TrainingJob:
    """Return a job with the templates that were rendered from it. Raises ApiError."""
    job = _parse(raw)
    (joined,) = _join([job], await _rendered(client, [job.kind], job.namespace))
    return joined


async def read_again(client: Client, job: TrainingJob) -> tuple[TrainingJob, Raw]:
    """Read a job again and return it, parsed and raw. Raises NotFound, ApiError."""
    raw = await client.get(paths.jobs(job.kind, job.namespace, job.name))
    return await _with_templates(client, raw), raw


async def all_jobs(
    client: Client, *, namespace: str, kind: str | None
) -> list[tuple[TrainingJob, Raw]]:
    """Return all jobs, parsed and raw; an empty `namespace` stands for the whole cluster.

    Raises UserError if the caller may not list them, ApiError.
    """
    jobs: list[tuple[TrainingJob, Raw]] = []
    for candidate in await kinds_in(client, kind):
        path, parsed = paths.jobs(candidate, namespace), []
        for raw in await _all(client, path, plural=candidate.plural, namespace=namespace):
            # Items of a list do not repeat their kind.
            raw["kind"] = candidate.name
            parsed.append((_parse(raw), raw))
        joined = _join((job for job, _ in parsed), await _rendered(client, [candidate], namespace))
        jobs += zip(joined, (raw for _, raw in parsed), strict=True)
    return jobs


async def all_plans(client: Client, *, namespace: str, **query: str) -> list[Raw]:
    """Return the TrainingPlans; an empty `namespace` stands for the whole cluster.

    Raises UserError if the caller may not list them, ApiError.
    """
    path = paths.plans(namespace)
    return await _all(client, path, plural="trainingplans", namespace=namespace, **query)


async def _all(
    client: Client, path: str, *, plural: str, namespace: str, **query: str
) -> list[Raw]:
    try:
        return await client.list_all(path, **query)
    except Forbidden as error:
        where = f"in namespace {namespace!r}" if namespace else "in the whole cluster"
        raise UserError(
            f"you may not list {plural} {where}; use -n with a namespace where you may"
        ) from error


async def read_snapshot(client: Client, kinds: Sequence[JobKind]) -> Snapshot:
    """Return a snapshot of the cluster, with its jobs of these kinds.

    Raises UserError that lists all missing permissions, ApiError.
    """
    listed: dict[str, list[Raw]] = {}
    forbidden = []
    job_paths = {kind.plural: paths.jobs(kind) for kind in kinds}
    rendered_paths = {k.rendered.plural: paths.rendered(k.rendered) for k in kinds if k.rendered}
    for resource, path in (job_paths | rendered_paths | _SNAPSHOT_PATHS).items():
        try:
            listed[resource] = await client.list_all(path)
        except Forbidden:
            forbidden.append(resource)
        except NotFound as error:
            raise UserError(f"the cluster serves no {resource}: is kfext installed?") from error
    if forbidden:
        raise UserError(
            f"to plan, you need the right to list in the whole cluster: {', '.join(forbidden)}; "
            "ask an administrator, or submit the job and run `kubectl kfext explain`"
        )
    jobs: list[TrainingJob] = []
    for kind in kinds:
        parsed = (parse_job({"kind": kind.name, **raw}) for raw in listed[kind.plural])
        jobs += [job for job in parsed if job is not None]
    usage = ""
    with suppress(Forbidden):  # without the record, usage starts from the running jobs
        usage = await read_record(client, USAGE)
    items = (parse_rendered(raw) for plural in rendered_paths for raw in listed[plural])
    rendered = [item for item in items if item]
    owners = {item.uid: item.job_uid for item in rendered}
    pods = map(parse_pod, listed["pods"])
    return Snapshot(
        nodes=tuple(map(parse_node, listed["nodes"])),
        pods=tuple(with_job_uid(pod, owners.get(pod.owner_uid)) for pod in pods),
        jobs=tuple(_join(jobs, rendered)),
        policies=tuple(map(parse_policy, listed["trainingpolicies"])),
        namespaces={item.name: item for item in map(parse_namespace, listed["namespaces"])},
        classes=_by_name(listed["priorityclasses"]),
        cards=tuple(filter(None, map(parse_shared_gpu, listed["sharedgpus"]))),
        quotas=tuple(map(parse_quota, listed["resourcequotas"])),
        autoscaler=(autoscaler := await has_autoscaler(client)),
        can_ask=autoscaler and bool(await placeholder_template(client)),
        limit_ranges=frozenset(
            text(mapping(raw.get("metadata")).get("namespace")) for raw in listed["limitranges"]
        ),
        network_policies=tuple(map(parse_network_policy, listed["networkpolicies"])),
        volume_claims=tuple(map(parse_volume_claim, listed["persistentvolumeclaims"])),
        volumes=tuple(map(parse_volume, listed["persistentvolumes"])),
        storage_classes=tuple(map(parse_storage_class, listed["storageclasses"])),
        usage=usage,
    )


async def read_classes(client: Client) -> dict[str, PriorityClass]:
    """Return the priority classes by name. Raises ApiError."""
    return _by_name(await client.list_all(paths.priority_classes()))


def _by_name(listed: list[Raw]) -> dict[str, PriorityClass]:
    return {item.name: item for item in map(parse_priority_class, listed)}


async def kinds_in(client: Client, name: str | None = None) -> Sequence[JobKind]:
    """Return the served kinds that a --kind option selects; without the option, all served kinds.

    Raises UserError if the cluster serves no chosen kind, ApiError.
    """
    chosen = [kind for kind in KINDS.values() if name is None or kind.name.lower() == name.lower()]
    served = await served_kinds(client)
    if kinds := [kind for kind in chosen if kind in served]:
        return kinds
    raise UserError(why_unserved(chosen))


def _parse(raw: Raw) -> TrainingJob:
    job = parse_job(raw)
    if job is None:
        raise UserError(f"the API server returned a {raw.get('kind')!r} instead of a job")
    return job

"""Find the cluster and the namespace of a command, as kubectl does."""

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kfext.errors import Forbidden, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.connection import NoAccess, namespace_of
from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds import KINDS, Kind
from kfext.model.pod import Pod, parse_pod
from kfext.names import JOB_NAME

Raw = dict[str, Any]
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that select a cluster and a namespace; None leaves it to the kubeconfig."""

    namespace: str | None
    context: str | None
    kubeconfig: Path | None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Yield a client. Raises NoAccess."""
        async with await Client.connect(self.kubeconfig, context=self.context) as client:
            yield client

    def in_namespace(self) -> str:
        """Return the namespace to look in: that of the option, of the context, or `default`."""
        if self.namespace:
            return self.namespace
        with suppress(NoAccess):  # inside a pod; else `connect` raises it
            return namespace_of(self.kubeconfig, context=self.context) or _DEFAULT
        return _DEFAULT


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add -n, --context and --kubeconfig, which the command receives as `cluster`."""

    @click.option("-n", "--namespace", help="Default: that of the context.")
    @click.option("--context", help="Of the kubeconfig; default: its current one.")
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
    help="Default: either.",
)
all_namespaces_option = click.option(
    "-A", "--all-namespaces", is_flag=True, help="In the whole cluster."
)


async def pods_of(client: Client, job: TrainingJob) -> list[Pod]:
    """Return the pods that a job controls."""
    selector = f"{JOB_NAME}={job.name}"
    listed = await client.list_all(paths.pods(job.namespace), labelSelector=selector)
    return [pod for raw in listed if (pod := parse_pod(raw)).owner_uid == job.uid]


async def find_job(
    client: Client, *, name: str, namespace: str, kind: str | None
) -> tuple[TrainingJob, Raw]:
    """Return the job with this name. Raises UserError if there is none, or one of each kind."""
    found = []
    for candidate in kinds(kind):
        try:
            found.append(await client.get(paths.jobs(candidate.plural, namespace, name)))
        except NotFound:
            continue
    if not found:
        words = " or ".join(candidate.name for candidate in kinds(kind))
        raise UserError(f"there is no {words} {name!r} in namespace {namespace!r}")
    if len(found) > 1:
        raise UserError(f"there is a PyTorchJob and a TFJob {name!r}: choose one with --kind")
    return _parsed(found[0]), found[0]


async def read_again(client: Client, job: TrainingJob) -> tuple[TrainingJob, Raw]:
    """Return a job as it is now. Raises NotFound, ApiError."""
    raw = await client.get(paths.jobs(job.kind.plural, job.namespace, job.name))
    return _parsed(raw), raw


async def all_jobs(
    client: Client, *, namespace: str, kind: str | None
) -> list[tuple[TrainingJob, Raw]]:
    """Return all jobs of a namespace, or of the cluster for an empty one.

    Raises UserError if we may not see them, ApiError.
    """
    found = []
    for candidate in kinds(kind):
        path = paths.jobs(candidate.plural, namespace)
        for raw in await _all(client, path, what=candidate.plural, namespace=namespace):
            # Items of a list do not repeat their kind.
            raw["kind"] = candidate.name
            found.append((_parsed(raw), raw))
    return found


async def all_plans(client: Client, *, namespace: str, **query: str) -> list[Raw]:
    """Return the TrainingPlans of a namespace, or of the cluster for an empty one.

    Raises UserError if we may not see them, ApiError.
    """
    path = paths.plans(namespace)
    return await _all(client, path, what="trainingplans", namespace=namespace, **query)


async def _all(client: Client, path: str, *, what: str, namespace: str, **query: str) -> list[Raw]:
    try:
        return await client.list_all(path, **query)
    except Forbidden as error:
        where = f"in namespace {namespace!r}" if namespace else "in the whole cluster"
        raise UserError(
            f"you may not list {what} {where}; use -n and a namespace where you may"
        ) from error


def kinds(word: str | None) -> Sequence[Kind]:
    """Return the kinds that a --kind option selects; all kinds without one."""
    return [kind for kind in KINDS.values() if word is None or kind.name.lower() == word.lower()]


def _parsed(raw: Raw) -> TrainingJob:
    job = parse_job(raw)
    if job is None:
        raise UserError(f"the API server returned a {raw.get('kind')!r} instead of a job")
    return job

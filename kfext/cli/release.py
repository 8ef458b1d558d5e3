"""`kubectl kfext release`: return jobs to plain Kubernetes, even if no controller runs."""

import asyncio
from collections.abc import AsyncIterator

import click

from kfext.cli.cluster import (
    ClusterOptions,
    Raw,
    all_jobs,
    cluster_options,
    find_job,
    kind_option,
    pods_of,
    read_again,
)
from kfext.core.patches.job import user_release_patch
from kfext.core.patches.json_patch import Unpatchable
from kfext.core.patches.pod import ungate
from kfext.errors import ApiError, Conflict, Invalid, NotFound, UserError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.gpu import has_slot_units
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod

_ATTEMPTS = 5


@click.command()
@click.argument("job", required=False)
@click.option("--all", "everything", is_flag=True, help="Release all held and gated jobs.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --all: in all namespaces.")
@kind_option
@cluster_options
def release(
    *,
    job: str | None,
    everything: bool,
    all_namespaces: bool,
    kind: str | None,
    cluster: ClusterOptions,
) -> None:
    """Return JOB to plain Kubernetes for good. Works without the controller."""
    if bool(job) == everything:
        raise click.UsageError("specify either the name of a job or --all")
    if all_namespaces and not everything:
        raise click.UsageError("--all-namespaces requires --all")

    async def show() -> None:
        lines = release_jobs(job, kind=kind, all_namespaces=all_namespaces, cluster=cluster)
        async for line in lines:
            click.echo(line)

    asyncio.run(show())


async def release_jobs(
    name: str | None, *, kind: str | None, all_namespaces: bool, cluster: ClusterOptions
) -> AsyncIterator[str]:
    """Release a job, or all jobs that wait for kfext if `name` is None; yield a line for each.

    Raises UserError, ApiError, NoAccess; for several jobs only after all were tried, unless the API
    server is unreachable.
    """
    async with cluster.connect() as client:
        namespace = "" if all_namespaces else cluster.in_namespace()
        if name is not None:
            job, raw = await find_job(client, name=name, namespace=namespace, kind=kind)
            yield await _release(client, job, raw)
            return
        any_waits, failed = False, []
        for job, raw in await all_jobs(client, namespace=namespace, kind=kind):
            try:
                if await _waits(client, job):
                    any_waits = True
                    yield await _release(client, job, raw, all_that_wait=True)
            except NotFound:
                yield f"{job.title}: gone meanwhile"
            except (ApiError, UserError, Unpatchable) as error:
                failed.append(f"{job.title}: {error}")
                if isinstance(error, ApiError) and not error.status:
                    failed.append("the API server is unreachable: no other job was tried")
                    break
        if failed:
            raise UserError(f"not all jobs were released: {'; '.join(failed)}")
        if not any_waits:
            yield "no job waits for kfext"


async def _waits(client: Client, job: TrainingJob) -> bool:
    """Return whether kfext holds a job or gates any of its pods."""
    if job.finished:
        return False
    return (job.held and job.suspend) or bool(await _gated(client, job))


async def _release(
    client: Client, job: TrainingJob, raw: Raw, *, all_that_wait: bool = False
) -> str:
    """Release a job; return the outcome.

    `all_that_wait`: whether all waiting jobs are released: then it is left alone once it starts.
    """
    title = job.title
    if job.finished:
        return f"{title}: already finished, nothing to release"
    done = []
    if not job.released or (job.held and job.suspend):
        released = await _mark_released(client, job, raw, all_that_wait=all_that_wait)
        if not released:
            return f"{title}: started meanwhile"
        done.append(released)
    # The job is released first, so that pods created meanwhile are not gated.
    try:
        done += await _ungate_pods(client, job)
    except ApiError as error:
        if not done:
            raise
        raise UserError(f"{', '.join(done)}, but not all pods were ungated: {error}") from error
    return f"{title}: {', '.join(done) or 'already released, nothing to do'}"


async def _mark_released(client: Client, job: TrainingJob, raw: Raw, *, all_that_wait: bool) -> str:
    """Mark a job as released; return the outcome, empty for a job that no longer waits."""
    refusal = ""
    for _ in range(_ATTEMPTS):
        try:
            await client.json_patch(
                paths.jobs(job.kind, job.namespace, job.name), user_release_patch(raw, job)
            )
        except (Invalid, Conflict) as error:  # the job has changed, or a policy refuses the patch
            refusal = error.message
            job, raw = await read_again(client, job)
            if all_that_wait and not await _waits(client, job):
                return ""
        else:
            if job.started_by:
                return f"marked as released; {job.started_by} decides when it starts"
            resumed = job.suspend and job.held
            return "unsuspended and marked as released" if resumed else "marked as released"
    raise UserError(f"the patch of job {job.name!r} was refused {_ATTEMPTS} times: {refusal}")


async def _ungate_pods(client: Client, job: TrainingJob) -> list[str]:
    """Remove the gates of a job's pods; return how many pods were changed, as phrases.

    Pods with GPU shares are deleted, and the operator creates them again with whole GPUs.
    """
    ungated = deleted = 0
    refused: ApiError | None = None
    for _ in range(_ATTEMPTS):
        refused = None
        for pod in await _gated(client, job):
            path = paths.pods(pod.namespace, pod.name)
            try:
                if pod.has_slot and has_slot_units(pod.requests):
                    await client.delete(path, uid=pod.uid)
                    deleted += 1
                else:
                    await client.json_patch(path, ungate(pod))
                    ungated += 1
            except NotFound:
                continue
            except (Invalid, Conflict) as error:  # its gates have changed, or a policy refuses it
                refused = error
        if refused is None:
            break
    if refused is not None:
        raise refused
    counts = {"pods ungated": ungated, "pods with GPU shares deleted": deleted}
    return [f"{change}: {count}" for change, count in counts.items() if count]


async def _gated(client: Client, job: TrainingJob) -> list[Pod]:
    return [pod for pod in await pods_of(client, job) if pod.gated]

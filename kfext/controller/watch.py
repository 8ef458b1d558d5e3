"""Watch: kopf for jobs and policies, informers for all else, and a sweep for missed deletions.

All handlers are `on.event`: kopf's other handlers would write annotations and finalizers on jobs.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import aiohttp
import kopf

from kfext.controller.metrics import guard
from kfext.controller.progress_reader import ProgressReader
from kfext.controller.training_plan import WrittenTrainingPlan, decode_training_plan
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.kube import paths, wire
from kfext.kube.client import Client
from kfext.kube.connection import Access
from kfext.kube.informer import Backoff, Informer
from kfext.model.kinds.job_kind import JobKind
from kfext.model.namespace import Namespace
from kfext.model.policy import parse_policy
from kfext.model.tolerant import mapping, text
from kfext.names import API_GROUP, API_VERSION
from kfext.state.planner.planner import Planner

Raw = Mapping[str, Any]
_LOGIN_SECONDS = 60.0
"""A login sooner than this after the last login means that the last login did not help."""


class _NoDiffs(kopf.DiffBaseStorage):
    """Stores nothing: no handler here needs kopf's diffs.

    kopf would copy each object twice to compare it with its next version.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _EndlessPauses:
    """Endless pauses between the attempts of a request, so that a standby outlives any outage.

    kopf ends the process when it has no pause left.
    """

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff(first=1.0)
        while True:
            yield backoff.next()


def registry(
    *,
    planner: Planner,
    plan_writer: TrainingPlanWriter,
    progress_reader: ProgressReader,
    login: Any,
    kinds: Collection[JobKind],
) -> kopf.OperatorRegistry:
    """Return kopf's handlers; each writes one object into the planner's copy of the cluster.

    `kinds`: the kinds of jobs that the cluster serves.
    """
    # kopf logs every event that a handler has seen.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    handlers = kopf.OperatorRegistry()
    cluster, settings = planner.cluster, planner.settings

    async def on_job(event: Any, **_: Any) -> None:
        raw = cast(Raw, event["object"])
        uid = text(mapping(raw.get("metadata")).get("uid"))
        if event["type"] == "DELETED":
            cluster.forget_job(uid)
            plan_writer.forget(uid)
        else:
            cluster.observe_job(raw)
            progress_reader.observe_job(uid, raw)
            # kopf holds an event for seconds after its handler, and a spec can take 40 MB.
            event["object"].pop("spec", None)

    async def on_policy(event: Any, **_: Any) -> None:
        policy = parse_policy(cast(Raw, event["object"]))
        if event["type"] == "DELETED":
            settings.forget_policy(policy.name)
        else:
            settings.observe_policy(policy)
        cluster.mark_queue()

    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers)(on_job)
    kopf.on.event(API_GROUP, API_VERSION, "trainingpolicies", registry=handlers)(on_policy)
    kopf.on.login(registry=handlers)(login)
    return handlers


def operator_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: no peering, scanning or events; every request has a time limit."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoDiffs()
    # kopf decodes a whole page at once, and an object of 1.5 MiB can take 40 MB then.
    settings.watching.chunk_size = 5
    settings.watching.inactivity_timeout = 70  # the API server sends a bookmark each minute
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 15
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _EndlessPauses()
    settings.process.ultimate_exiting_timeout = 30
    return settings


def login_with(access: Access) -> Any:
    """Return a kopf login handler that uses the same access as kfext's own client.

    kopf logs in again and repeats its request at once, however often the API server refuses.
    """
    backoff, last = Backoff(), -math.inf

    async def authorize(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await access.token.header())
        response = await send(request)
        if response.status == 401:
            access.token.expire()
        return response

    async def login(**_: Any) -> kopf.AiohttpSession:
        nonlocal last
        if time.monotonic() - last < _LOGIN_SECONDS:
            await asyncio.sleep(backoff.next())
        else:
            backoff.reset()
        last = time.monotonic()
        tls = access.tls if access.tls is not None else True
        return kopf.AiohttpSession(
            server=access.server,
            aiohttp_session=aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=0), middlewares=(authorize,)
            ),
        )

    return login


ObservePlan = Callable[[WrittenTrainingPlan | None, WrittenTrainingPlan | None], None]


def informers(
    client: Client, *, planner: Planner, observe_plan: ObservePlan, kinds: Collection[JobKind]
) -> Mapping[str, Informer[Any]]:
    """Return the informers, not yet running, of all kinds but jobs and policies.

    `kinds`: the kinds of jobs that the cluster serves; rendered objects are watched too.
    """
    cluster, queue, settings = planner.cluster, planner.queue, planner.settings

    def observe_namespace(old: Namespace | None, new: Namespace | None) -> None:
        settings.observe_namespace(old, new)
        if new is not None:
            cluster.mark_queue(new.name)  # its settings may have changed

    watched: dict[str, tuple[str, Any, Any]] = {
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
        "trainingplans": (paths.plans(), decode_training_plan, observe_plan),
    }
    for resource in filter(None, (kind.rendered for kind in kinds)):
        path, observe = paths.rendered(resource), cluster.observe_rendered
        watched[resource.plural] = (path, wire.decode_rendered, observe)
    return {
        name: Informer(client, path, decode=decode, on_change=on_change)
        for name, (path, decode, on_change) in watched.items()
    }


async def read_all(client: Client, planner: Planner, kinds: Collection[JobKind]) -> None:
    """Read all policies and jobs, because kopf does not report the end of its first list.

    Raises ApiError.
    """
    for raw in await client.list_all(paths.policies()):
        with guard("read a policy", **_identity(raw)):
            planner.settings.observe_policy(parse_policy(raw))
    for kind in kinds:
        async for raw in client.objects(paths.jobs(kind)):
            with guard("read a job", **_identity(raw)):
                planner.cluster.observe_job({"kind": kind.name, **raw})


async def forget_deleted(
    client: Client, planner: Planner, plan_writer: TrainingPlanWriter, *, kinds: Collection[JobKind]
) -> None:
    """Forget the jobs and policies that were deleted before kopf listed them anew.

    Raises ApiError, and then forgets nothing. The known jobs are recorded before the request, so
    that a job created meanwhile stays.
    """
    jobs, policies = set(planner.cluster.jobs), set(planner.settings.policies)
    present: set[str] = set()
    for kind in kinds:
        present |= await client.uids(paths.jobs(kind))
    defined = {parse_policy(raw).name for raw in await client.list_all(paths.policies())}
    for uid in jobs - present:
        planner.cluster.forget_job(uid)
        plan_writer.forget(uid)
    for name in policies - defined:
        planner.settings.forget_policy(name)
    if policies - defined:
        planner.cluster.mark_queue()


def _identity(raw: Raw) -> dict[str, object]:
    metadata = mapping(raw.get("metadata"))
    return {"name": metadata.get("name"), "namespace": metadata.get("namespace")}

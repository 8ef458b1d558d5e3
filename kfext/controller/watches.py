"""kopf, for the kinds that people write: jobs and policies. Handlers take in; none decides.

All are `on.event` handlers: others would write annotations and finalizers on users' jobs.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import aiohttp
import kopf

from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.kube.connection import Access
from kfext.kube.informer import Backoff
from kfext.model.kinds import KINDS
from kfext.model.policy import parse_policy
from kfext.model.tolerant import mapping, text
from kfext.names import API_GROUP, API_VERSION, TRAINING_GROUP, TRAINING_VERSION
from kfext.state.planner import Planner

Raw = Mapping[str, Any]
_LOGIN_SECONDS = 60.0
"""A login after a shorter time follows one that did not help."""


class _NoDiffs(kopf.DiffBaseStorage):
    """Remembers nothing of an object: no handler here needs kopf's diffs.

    kopf would copy each object twice to compare it with the next version.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """Keep nothing."""


class _EndlessPauses:
    """The pauses between tries of one request, without an end: a standby outlives any outage.

    After a few kopf would end the whole process.
    """

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff(first=1.0)
        while True:
            yield backoff.next()


def registry(
    *, planner: Planner, plan_writer: TrainingPlanWriter, login: Any
) -> kopf.OperatorRegistry:
    """Return kopf's handlers: each brings one object into the mirror."""
    # kopf logs every event that a handler has taken in.
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
            # kopf holds an event for seconds after its handler, and a spec can take 40 MB.
            event["object"].pop("spec", None)

    async def on_policy(event: Any, **_: Any) -> None:
        policy = parse_policy(cast(Raw, event["object"]))
        if event["type"] == "DELETED":
            settings.forget_policy(policy.name)
        else:
            settings.observe_policy(policy)
        cluster.mark_queue()

    for kind in KINDS.values():
        kopf.on.event(TRAINING_GROUP, TRAINING_VERSION, kind.plural, registry=handlers)(on_job)
    kopf.on.event(API_GROUP, API_VERSION, "trainingpolicies", registry=handlers)(on_policy)
    kopf.on.login(registry=handlers)(login)
    return handlers


def operator_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: no peering, scanning or events, and a time limit on each request."""
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
    """Return a kopf login handler that uses the same access as our own client.

    kopf logs in again and repeats its request at once, however often that is refused.
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

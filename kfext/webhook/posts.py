"""The endpoint at which the programs of jobs post their progress: POST of Kubeflow Trainer's JSON.

A post comes from the pod that its token is bound to. The posts of a job, from the likeliest rank 0
only, are buffered for half a minute and then written into its TrainingPlan, where the leading
controller reads them. So a job costs one write in WRITE_SECONDS. A replica writes at most
MAX_WRITES a second, and namespaces take turns. A replica that stops writes its remaining posts.

The port is not authenticated, so tokens to review, pods and bodies are bounded.
"""

import asyncio
import hashlib
import math
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Annotated, Any

import msgspec
import structlog
from aiohttp import web

from kfext.core.admission.posting import AUDIENCE, post_path
from kfext.core.progress.posted import PodPosts, Posted, encode_posted
from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.job import plan_name
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, sequence, text
from kfext.webhook.review import Bodies

_log = structlog.get_logger(__name__)

WRITE_SECONDS = 30.0
"""Seconds between two writes of the posts of a job; the end of the training is written at
once. After as long a silence a different pod may post for the job."""
MAX_WRITES = 20
"""The most writes per second; the posts that have waited longest are written first."""
_TURN_SECONDS, _LAST_SECONDS = 0.5, 10.0
"""The time between two turns, and the longest time for the last posts when the process stops."""
_MAX_POSTS = 30
"""The most posts of a job in a minute: Transformers posts every 5 s at most."""
_MAX_JOBS = 2000
_LIMIT, _MAX_BYTES = 64 * 2**10, 4 * 2**20
"""The most bytes of a body, as in Kubeflow Trainer, and of all bodies that are being received."""
_KNOWN_SECONDS, _MAX_TOKENS = 300.0, 10_000
"""A token is not reviewed again for this time, and may outlive its pod; the most known tokens."""
_MAX_REVIEWS = 20
"""The most reviews per second of new tokens, and of the known tokens of each namespace."""
_REVIEW_SECONDS = 2.0
_ACCOUNT = "system:serviceaccount:"
_POD = "authentication.kubernetes.io/pod-"


class _Metric(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Status(msgspec.Struct, rename="camel"):
    progress_percentage: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    metrics: Annotated[list[_Metric], msgspec.Meta(max_length=256)] | None = None


class _Post(msgspec.Struct, rename="camel"):
    trainer_status: _Status | None = None


_decode = msgspec.json.Decoder(_Post).decode


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str

    def rank_in(self, kind: JobKind, namespace: str, job: str) -> tuple[int, int] | None:
        """Return its order among the pods that may be rank 0 of a job, by its name, or None."""
        for order, type_ in enumerate(map(str.lower, kind.rank_zero)):
            index = kind.index_in_name(self.name, job=job, type_=type_)
            if index is not None and self.namespace == namespace:
                return order, index
        return None


class _Window:
    """Admits at most `most` events in each window of `seconds`."""

    def __init__(self, most: int, *, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._began = -math.inf
        self._count = 0

    def admits(self, now: float) -> bool:
        if now - self._began >= self._seconds:
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= self._most


@dataclass(slots=True)
class _Source:
    """The pod that posts for a job. Times are monotonic.

    `rank`: its order among the pods that may be rank 0. `plan`: the path of the TrainingPlan.
    `posted_at`: when it last posted. `written_at`: when posts of the job were last written.
    `ended`: whether it has posted the end of the training.
    """

    pod: BoundPod
    rank: tuple[int, int]
    plan: str
    posts: PodPosts = field(default_factory=PodPosts)
    window: _Window = field(default_factory=lambda: _Window(_MAX_POSTS, seconds=60.0))
    posted_at: float = -math.inf
    written_at: float = -math.inf
    ended: bool = False


class _Refusal(Exception):  # noqa: N818 - an answer
    """A post is refused, with an HTTP status and a message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Posts:
    """Receives posts; `run` writes them. `count` is called with the HTTP status of each answer."""

    def __init__(
        self,
        client: Client,
        *,
        count: Callable[[int], None] = lambda status: None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._count = count
        self._wall = wall
        self._monotonic = monotonic
        self._bodies = Bodies(longest=_LIMIT, most=_MAX_BYTES)
        self._reviews = _Window(_MAX_REVIEWS, seconds=1.0)
        self._renewals = defaultdict[str, _Window](lambda: _Window(_MAX_REVIEWS, seconds=1.0))
        self._tokens: OrderedDict[bytes, tuple[float, BoundPod | None]] = OrderedDict()
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def add_routes(self, app: web.Application) -> None:
        """Serve the path of each kind of job."""
        for kind in KINDS.values():
            app.router.add_post(post_path(kind, "{namespace}", "{name}"), self._handler(kind))

    async def run(self) -> None:
        """Write the due posts until cancelled, and then the remaining posts."""
        try:
            while True:
                try:
                    await self.write()
                except Exception:
                    # The same process answers reviews, which must continue.
                    _log.exception("posts not written")
                await asyncio.sleep(_TURN_SECONDS)
        finally:
            remaining = _in_fair_order(self._sources.values())
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*map(self._write, remaining)), _LAST_SECONDS)

    async def write(self) -> None:
        """Write the posts of the jobs that have waited longest, as many as one turn may write."""
        now = self._monotonic()
        sources = self._sources.values()
        due = (source for source in sources if now - source.written_at >= WRITE_SECONDS)
        turn = _in_fair_order(due)[: int(MAX_WRITES * _TURN_SECONDS)]
        await asyncio.gather(*map(self._write, turn))

    async def _write(self, source: _Source) -> None:
        posts = source.posts.posts
        posted = Posted(source.pod.uid, tuple(posts))
        source.written_at = self._monotonic()
        try:
            body = {"status": {"posted": encode_posted(posted)}}
            await self._client.merge_patch(source.plan, body)
        except NotFound:
            pass  # the job is gone, or kfext does not handle it
        except ApiError as error:
            _log.warning("posts not written", plan=source.plan, error=str(error))
            if not error.final:
                return  # the last post may be the end of the training
        while posts and posts[0] in posted.posts:  # new posts have arrived meanwhile
            posts.popleft()

    def _handler(self, kind: JobKind) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            try:
                async with self._bodies.read_body(http) as body:
                    await self._receive(kind, http, body)
                    response = web.Response(body=body, content_type="application/json")
            except _Refusal as refusal:
                response = _error_response(refusal.status, str(refusal))
            except web.HTTPError as error:
                response = _error_response(HTTPStatus(error.status), error.text or "")
                response.force_close()
            self._count(response.status)
            return response

        return handle

    async def _receive(self, kind: JobKind, http: web.Request, body: bytes) -> None:
        """Register a post. Raises _Refusal."""
        namespace, job = http.match_info["namespace"], http.match_info["name"]
        pod = await self._pod_of(http.headers.get("Authorization", ""))
        rank = pod.rank_in(kind, namespace, job) if pod else None
        if pod is None or rank is None:
            raise _Refusal(HTTPStatus.FORBIDDEN, "the token is not bound to a pod of this job")
        plan = paths.plans(namespace, plan_name(kind, job), "status")
        source = self._register(_Source(pod, rank, plan))
        if source is None:
            return
        try:
            status = _decode(body).trainer_status
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"not a status: {error}") from error
        if status is None:
            return
        metrics = {metric.name: metric.value for metric in status.metrics or ()}
        source.posts.read_post(metrics, percentage=status.progress_percentage, at=self._wall())
        if status.progress_percentage == 100 and not source.ended:
            source.ended, source.written_at = True, -math.inf

    def _register(self, new: _Source) -> _Source | None:
        """Return the record of a posting pod; None means that a likelier pod posts for its job.

        Raises _Refusal if its job posts too often.
        """
        now = self._monotonic()
        source = self._sources.setdefault(new.plan, new)
        if source.pod != new.pod:
            if source.rank < new.rank and now - source.posted_at < WRITE_SECONDS:
                return None
            source.pod, source.rank = new.pod, new.rank
            source.posts, source.ended = new.posts, False
        self._sources.move_to_end(new.plan)
        if len(self._sources) > _MAX_JOBS:
            namespaces = {plan: each.pod.namespace for plan, each in self._sources.items()}
            ((most, _),) = Counter(namespaces.values()).most_common(1)
            del self._sources[next(plan for plan, name in namespaces.items() if name == most)]
        if not source.window.admits(now):
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"more than {_MAX_POSTS} posts in 60 s")
        source.posted_at = now
        return source

    async def _pod_of(self, header: str) -> BoundPod | None:
        """Return the pod that a token is bound to, or None for any other token. Raises _Refusal."""
        scheme, token, *more = *header.split(), "", ""
        if scheme.lower() != "bearer" or not token or any(more):
            return None  # the API server would read the first of several words as the token
        key, now = hashlib.sha256(token.encode()).digest(), self._monotonic()
        reviewed_at, pod = self._tokens.get(key, (-math.inf, None))
        if now - reviewed_at < _KNOWN_SECONDS:
            return pod
        # Foreign clients may exhaust the reviews of new tokens. The pods that already post do not
        # suffer from that, nor from the pods of a different namespace.
        reviews = self._reviews if pod is None else self._renewals[pod.namespace]
        if not reviews.admits(now):
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many tokens to review")
        body = {"spec": {"token": token, "audiences": [AUDIENCE]}}
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                review = await self._client.create(paths.token_reviews(), body)
        except (ApiError, TimeoutError) as error:
            _log.warning("token not reviewed", error=str(error) or "no answer in time")
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the token was not reviewed") from error
        pod = _bound_pod(mapping(review.get("status")))
        self._tokens[key] = now, pod
        self._tokens.move_to_end(key)
        if len(self._tokens) > _MAX_TOKENS:
            self._tokens.popitem(last=False)
        return pod


def _bound_pod(status: Mapping[str, Any]) -> BoundPod | None:
    """Return the pod of a reviewed token, or None. Never raises."""
    user = mapping(status.get("user"))
    namespace, _, account = text(user.get("username")).removeprefix(_ACCOUNT).partition(":")
    extra = mapping(user.get("extra"))
    name, uid = (text(next(iter(sequence(extra.get(_POD + key))), "")) for key in ("name", "uid"))
    known = status.get("authenticated") is True and AUDIENCE in sequence(status.get("audiences"))
    return BoundPod(namespace, name, uid) if known and account and name and uid else None


def _in_fair_order(sources: Iterable[_Source]) -> list[_Source]:
    """Return the sources with posts, the longest waiting first; namespaces take turns."""
    waiting = (source for source in sources if source.posts.posts)
    longest_first = sorted(waiting, key=lambda source: source.written_at)
    rounds: dict[str, Iterator[int]] = defaultdict(count)
    return sorted(longest_first, key=lambda source: next(rounds[source.pod.namespace]))


def _error_response(status: HTTPStatus, message: str) -> web.Response:
    """Return an error in the API server's form, a Status object."""
    answer = {
        "status": "Failure",
        "message": message,
        "reason": status.phrase.title().replace(" ", ""),
        "code": status.value,
    }
    return web.json_response(answer, status=status.value)

"""The endpoint at which the programs of jobs post their progress: POST of Kubeflow Trainer's JSON.

A post is of the pod that its token is bound to. The posts of a pod are kept for half a minute and
then written into the TrainingPlan of its job, where the leading controller reads them. So a post
costs no write and a job one write in WRITE_SECONDS, of at most MOST_WRITES a second of a replica.

The port is not authenticated, so tokens to review, pods and bodies are bounded.
"""

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
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
"""Seconds between two writes of the posts of a pod; the end of a training is written at once."""
MOST_WRITES = 20
"""The most writes a second; others wait, the longest waiting first."""
_TURN_SECONDS = 0.5
_MOST_POSTS = 30
"""The most posts of a pod in a minute: Transformers posts every 5 s at most."""
_MOST_PODS, _FORGET_SECONDS = 2000, 600.0
_LIMIT, _MOST_BYTES = 64 * 2**10, 4 * 2**20
"""The largest body, as in Kubeflow Trainer, and the most bytes of all bodies under way."""
_KNOWN_SECONDS, _MOST_TOKENS = 300.0, 10_000
"""How long a reviewed token is not reviewed again: it may outlive its pod by that."""
_MOST_REVIEWS = 20
"""The most new tokens that are reviewed in a second, and the most known tokens."""
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

    def is_of(self, kind: JobKind, namespace: str, job: str) -> bool:
        """Return whether its name says that it is a pod of a job, and may be rank 0."""
        may_be_first = map(str.lower, kind.rank_zero)
        return self.namespace == namespace and any(
            kind.names_pod(self.name, job=job, type_=type_) for type_ in may_be_first
        )


class _Window:
    """Admits at most so many events in each window of `seconds`."""

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
    """A pod that posts, and the path of its TrainingPlan.

    `posted_at`, `written_at`: when it last posted, and when its posts were last written.
    `ended`: whether it has posted the end of its training. Times are monotonic.
    """

    pod: BoundPod
    plan: str
    posts: PodPosts = field(default_factory=PodPosts)
    window: _Window = field(default_factory=lambda: _Window(_MOST_POSTS, seconds=60.0))
    posted_at: float = -math.inf
    written_at: float = -math.inf
    ended: bool = False


class _Refusal(Exception):  # noqa: N818 - an answer
    """Why a post is refused: an HTTP status and a message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Posts:
    """Takes posts; `run` writes them. `count` is called with the HTTP status of each answer."""

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
        self._bodies = Bodies(longest=_LIMIT, most=_MOST_BYTES)
        self._reviews = _Window(_MOST_REVIEWS, seconds=1.0)
        self._renewals = _Window(_MOST_REVIEWS, seconds=1.0)
        self._tokens: OrderedDict[bytes, tuple[float, BoundPod | None]] = OrderedDict()
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def add_routes(self, app: web.Application) -> None:
        """Serve the path of each kind of job."""
        for kind in KINDS.values():
            app.router.add_post(post_path(kind, "{namespace}", "{name}"), self._handler(kind))

    async def run(self) -> None:
        """Write what is due until cancelled."""
        while True:
            try:
                await self.write()
            except Exception:
                # The same process answers reviews, which must go on.
                _log.exception("posts not written")
            await asyncio.sleep(_TURN_SECONDS)

    async def write(self) -> None:
        """Write the posts of the pods that have waited longest, as many as one turn may write."""
        now = self._monotonic()
        for uid, source in list(self._sources.items()):
            if now - source.posted_at > _FORGET_SECONDS:
                del self._sources[uid]
        due = [
            source
            for source in self._sources.values()
            if source.posts.posts and now - source.written_at >= WRITE_SECONDS
        ]
        due.sort(key=lambda source: source.written_at)
        turn = due[: int(MOST_WRITES * _TURN_SECONDS)]
        await asyncio.gather(*(self._write(source, now) for source in turn))

    async def _write(self, source: _Source, now: float) -> None:
        posted = Posted(source.pod.uid, tuple(source.posts.posts))
        source.posts.posts.clear()
        source.written_at = now
        try:
            body = {"status": {"posted": encode_posted(posted)}}
            await self._client.merge_patch(source.plan, body)
        except NotFound:
            pass  # the job is gone, or kfext does not handle it
        except ApiError as error:
            _log.warning("posts not written", plan=source.plan, error=str(error))
            if not error.final:  # the last of them may be the end of a training
                newer = tuple(source.posts.posts)
                source.posts.posts.clear()
                source.posts.posts.extend((*posted.posts, *newer))

    def _handler(self, kind: JobKind) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            try:
                async with self._bodies.of(http) as body:
                    await self._take(kind, http, body)
                    response = web.Response(body=body, content_type="application/json")
            except _Refusal as refusal:
                response = _refused(refusal.status, str(refusal))
            except web.HTTPError as error:
                response = _refused(HTTPStatus(error.status), error.text or "")
                response.force_close()
            self._count(response.status)
            return response

        return handle

    async def _take(self, kind: JobKind, http: web.Request, body: bytes) -> None:
        """Register a post. Raises _Refusal."""
        namespace, job = http.match_info["namespace"], http.match_info["name"]
        pod = await self._pod_of(http.headers.get("Authorization", ""))
        if pod is None or not pod.is_of(kind, namespace, job):
            raise _Refusal(HTTPStatus.FORBIDDEN, "the token is not bound to a pod of this job")
        source = self._source(pod, paths.plans(namespace, plan_name(kind, job), "status"))
        try:
            status = _decode(body).trainer_status
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"not a status: {error}") from error
        if status is None:
            return
        metrics = {metric.name: metric.value for metric in status.metrics or ()}
        source.posts.take(metrics, percentage=status.progress_percentage, at=self._wall())
        if status.progress_percentage == 100 and not source.ended:
            source.ended, source.written_at = True, -math.inf

    def _source(self, pod: BoundPod, plan: str) -> _Source:
        """Return what is kept of a pod that posts now. Raises _Refusal if it posts too often."""
        now = self._monotonic()
        source = self._sources.setdefault(pod.uid, _Source(pod, plan))
        self._sources.move_to_end(pod.uid)
        if len(self._sources) > _MOST_PODS:
            self._sources.popitem(last=False)
        if not source.window.admits(now):
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"more than {_MOST_POSTS} posts in 60 s")
        source.posted_at = now
        return source

    async def _pod_of(self, header: str) -> BoundPod | None:
        """Return the pod that a token is bound to, None for any other. Raises _Refusal."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        key, now = hashlib.sha256(token.encode()).digest(), self._monotonic()
        reviewed_at, pod = self._tokens.get(key, (-math.inf, None))
        if now - reviewed_at < _KNOWN_SECONDS:
            return pod
        # Strangers may use up the reviews of new tokens, but pods that post already go on.
        reviews = self._reviews if pod is None else self._renewals
        if not reviews.admits(now):
            raise _Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many tokens to review")
        body = {"spec": {"token": token.strip(), "audiences": [AUDIENCE]}}
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                review = await self._client.create(paths.token_reviews(), body)
        except (ApiError, TimeoutError) as error:
            _log.warning("token not reviewed", error=str(error) or "no answer in time")
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the token was not reviewed") from error
        pod = _bound_pod(mapping(review.get("status")))
        self._tokens[key] = now, pod
        self._tokens.move_to_end(key)
        if len(self._tokens) > _MOST_TOKENS:
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


def _refused(status: HTTPStatus, message: str) -> web.Response:
    """Return an error as the API server writes it."""
    answer = {
        "status": "Failure",
        "message": message,
        "reason": status.phrase.title().replace(" ", ""),
        "code": status.value,
    }
    return web.json_response(answer, status=status.value)

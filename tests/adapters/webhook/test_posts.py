"""The endpoint at which the programs of jobs post their progress, over TLS."""

import asyncio
import os
import subprocess
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from kfext import names
from kfext.core.admission.posting import post_path
from kfext.core.progress.posted import decode_posted
from kfext.errors import ApiError, NotFound, Unavailable
from kfext.model.kinds.registered import KINDS
from kfext.webhook.posts import MOST_WRITES, WRITE_SECONDS, Posts
from tests.adapters.webhook.conftest import client_that_trusts, serving

PATH = post_path(KINDS["PyTorchJob"], "team", "train")
PLAN = "/apis/kfext.dev/v1alpha1/namespaces/team/trainingplans/pytorchjob-train/status"
NAME, UID = (f"authentication.kubernetes.io/pod-{key}" for key in ("name", "uid"))
AWAY = Unavailable(status=0, reason="Unavailable", message="no answer")
GONE = NotFound(status=404, reason="NotFound", message="gone")
ONE_TURN = int(MOST_WRITES / 2)


def account(
    pod: str = "train-master-0", *, namespace: str = "team", bound: bool = True
) -> dict[str, Any]:
    """The status of the review of a token that is bound to a pod."""
    extra = {NAME: [pod], UID: [f"uid-{pod}"]} if bound else {}
    user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
    return {"authenticated": True, "audiences": [names.DOMAIN], "user": user}


@dataclass
class Api:
    """An API server that reviews tokens and keeps what is written."""

    tokens: dict[str, dict[str, Any]] = field(default_factory=lambda: {"good": account()})
    reviews: list[Any] = field(default_factory=list)
    written: list[tuple[str, Any]] = field(default_factory=list)
    error: ApiError | None = None

    async def create(self, path: str, body: Any) -> Any:
        assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
        self.reviews.append(body["spec"])
        if self.error:
            raise self.error
        return {"status": self.tokens.get(body["spec"]["token"], {"authenticated": False})}

    async def merge_patch(self, path: str, body: Any) -> Any:
        self.written.append((path, body["status"]["posted"]))
        if self.error:
            raise self.error
        return {}


@dataclass
class Bed:
    """The endpoint, a client, and clocks that show `at`."""

    url: str
    authority: Path
    session: aiohttp.ClientSession
    api: Api
    posts: Posts
    statuses: list[int]
    at: list[float]

    async def post(
        self, body: Any = None, *, path: str = PATH, token: str = "good", **headers: str
    ) -> tuple[int, Any]:
        self.at[0] += 1.0
        data = body if isinstance(body, bytes) else orjson.dumps(body or status())
        headers = {"Authorization": f"Bearer {token}", **headers}
        async with self.session.post(self.url + path, data=data, headers=headers) as answer:
            return answer.status, orjson.loads(await answer.read())


def status(percentage: int | None = 10, **metrics: object) -> dict[str, Any]:
    listed = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    made: dict[str, Any] = {"metrics": listed, "lastUpdatedTime": "2026-01-01T00:00:00.1+00:00"}
    return {"trainerStatus": {**made, "progressPercentage": percentage}}


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    at, statuses = [1000.0], list[int]()
    api: Any = Api()
    posts = Posts(api, count=statuses.append, wall=lambda: at[0], monotonic=lambda: at[0])
    app = web.Application()
    posts.add_routes(app)
    async with (
        serving(app, tmp_path) as (url, authority),
        client_that_trusts(authority) as session,
    ):
        yield Bed(url, authority, session, api, posts, statuses, at)


async def test_a_post_is_written_into_the_plan_of_its_job(bed: Bed) -> None:
    sent = status(loss=2.5, current_step=10, total_steps=100)
    assert await bed.post(sent) == (200, sent)
    await bed.posts.write()
    ((path, written),) = bed.api.written
    posted = decode_posted(written)
    assert path == PLAN
    assert posted is not None
    assert posted.pod == "uid-train-master-0"
    assert [(post.step, post.total, post.measures) for post in posted.posts] == [
        (10, 100, (("loss", 2.5),))
    ]
    assert bed.api.reviews == [{"token": "good", "audiences": [names.DOMAIN]}]
    assert bed.statuses == [200]


NOT_OURS: dict[str, tuple[Any, str]] = {
    "an unknown token": ({"authenticated": False}, PATH),
    "a token for another service": (account() | {"audiences": ["api"]}, PATH),
    "a token that is bound to no pod": (account(bound=False), PATH),
    "a person": ({**account(), "user": {"username": "ann"}}, PATH),
    "a pod of another namespace": (account(namespace="other"), PATH),
    "a pod of another job": (account("other-master-0"), PATH),
    "a pod of a job with a longer name": (account("train-b-master-0"), PATH),
    "a pod that is never rank 0": (
        account("train-ps-0"),
        post_path(KINDS["TFJob"], "team", "train"),
    ),
    "a pod with a name of its own": (account("train-worker-x"), PATH),
    "a review without an answer": ({}, PATH),
    "a review that is no object": ("x", PATH),
}


@pytest.mark.parametrize(("review", "path"), NOT_OURS.values(), ids=NOT_OURS)
async def test_a_job_writes_its_own_progress_only(bed: Bed, review: Any, path: str) -> None:
    bed.api.tokens["theirs"] = review
    code, answer = await bed.post(path=path, token="theirs")
    assert (code, answer["reason"], answer["status"]) == (403, "Forbidden", "Failure")
    await bed.posts.write()
    assert bed.api.written == []


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic good"])
async def test_without_a_token_nothing_is_reviewed(bed: Bed, header: str) -> None:
    assert (await bed.post(Authorization=header))[0] == 403
    assert bed.api.reviews == []


MALFORMED: dict[str, tuple[bytes, int]] = {
    "no JSON": (b"{", 422),
    "a list": (b"[]", 422),
    "a percentage beyond 100": (orjson.dumps(status(101)), 422),
    "a long name, of a metric that no plan could have": (
        orjson.dumps(status(10, **{"x" * 1000: 1})),
        200,
    ),
    "too many metrics": (orjson.dumps(status(10, **{f"m{n}": n for n in range(257)})), 422),
    "a number as a value": (b'{"trainerStatus": {"metrics": [{"name": "a", "value": 1}]}}', 422),
    "too large": (b" " * (64 * 2**10 + 1), 413),
    "nothing to say": (b"{}", 200),
    "fields of a later version": (b'{"trainerStatus": {"later": 1}, "more": {}}', 200),
}


@pytest.mark.parametrize(("body", "want"), MALFORMED.values(), ids=MALFORMED)
async def test_what_a_body_may_be(bed: Bed, body: bytes, want: int) -> None:
    assert (await bed.post(body))[0] == want


async def test_a_token_is_reviewed_once_in_five_minutes(bed: Bed) -> None:
    for _ in range(3):
        await bed.post()
    assert len(bed.api.reviews) == 1
    bed.at[0] += 300.0
    await bed.post()
    assert len(bed.api.reviews) == 2


async def test_the_tokens_of_strangers_are_reviewed_at_a_bounded_rate(bed: Bed) -> None:
    codes = []
    for number in range(30):
        bed.at[0] -= 1.0  # all in one second
        codes.append((await bed.post(token=f"stranger-{number}"))[0])
    assert (codes.count(403), codes.count(429)) == (20, 10)


async def test_strangers_keep_no_pod_from_posting_that_posts_already(bed: Bed) -> None:
    await bed.post()
    bed.at[0] += 300.0  # its token is to be reviewed again
    for number in range(30):
        bed.at[0] -= 1.0
        await bed.post(token=f"stranger-{number}")
    bed.at[0] -= 1.0
    assert (await bed.post())[0] == 200


async def test_a_pod_posts_at_a_bounded_rate(bed: Bed) -> None:
    codes = [(await bed.post())[0] for _ in range(40)]
    assert (codes.count(200), codes.count(429)) == (30, 10)


async def test_a_job_is_written_once_in_half_a_minute_and_at_its_end(bed: Bed) -> None:
    for step in range(1, 8):
        await bed.post(status(step, current_step=step, total_steps=100))
        await bed.posts.write()
    assert len(bed.api.written) == 1
    bed.at[0] += WRITE_SECONDS
    await bed.posts.write()
    _, posted = bed.api.written[1]
    assert [post["step"] for post in posted["posts"]] == list(range(2, 8))
    await bed.post(status(100))
    await bed.posts.write()
    assert bed.api.written[2][1]["posts"][0]["step"] == 100
    await bed.post(status(100))
    await bed.posts.write()
    assert len(bed.api.written) == 3


async def test_the_writes_of_many_jobs_are_spread_over_time(bed: Bed) -> None:
    for number in range(3 * ONE_TURN):
        pod = f"train-worker-{number}"
        bed.api.tokens[pod] = account(pod)
        await bed.post(token=pod)
    writes = []
    for _ in range(4):
        await bed.posts.write()
        writes.append(len(bed.api.written))
    assert writes == [ONE_TURN, 2 * ONE_TURN, 3 * ONE_TURN, 3 * ONE_TURN]


@pytest.mark.parametrize(
    ("error", "kept"), [(AWAY, [1, 2]), (GONE, [2])], ids=["away", "no such plan"]
)
async def test_a_refused_write_ends_nothing(bed: Bed, error: ApiError, kept: list[int]) -> None:
    await bed.post(status(1, current_step=1))
    bed.api.error = error
    await bed.posts.write()
    bed.api.error = None
    bed.at[0] += WRITE_SECONDS
    await bed.post(status(2, current_step=2))
    await bed.posts.write()
    assert [post["step"] for post in bed.api.written[-1][1]["posts"]] == kept


async def test_the_end_of_a_training_is_written_once_the_api_server_is_back(bed: Bed) -> None:
    await bed.post(status(100, current_step=100))
    bed.api.error = AWAY
    await bed.posts.write()
    bed.api.error = None
    bed.at[0] += WRITE_SECONDS
    await bed.posts.write()
    await bed.posts.write()
    assert [[post["step"] for post in posted["posts"]] for _, posted in bed.api.written] == [
        [100],
        [100],
    ]


async def test_an_api_server_that_does_not_answer_is_said(bed: Bed) -> None:
    bed.api.error = AWAY
    code, answer = await bed.post()
    assert (code, answer["code"]) == (503, 503)


CALLBACK = """
    import json, sys
    from types import SimpleNamespace as Of
    from transformers.integrations.integration_utils import KubeflowCallback

    callback = KubeflowCallback()
    callback._MIN_UPDATE_INTERVAL = 0.0
    state = Of(is_world_process_zero=True, max_steps=40, global_step=0, epoch=0.0)
    sent = callback._update_status
    answers = []
    callback._update_status = lambda *args, **kw: answers.append(sent(*args, **kw))
    callback.on_train_begin(None, state, None)
    for step in range(1, 41):
        state.global_step, state.epoch = step, step / 40
        if step % 10 == 0:
            callback.on_log(None, state, None, logs={"loss": 4.0 / step, "epoch": state.epoch})
        if step % 5 == 0:
            callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    print(json.dumps(answers))
"""


async def called_back(bed: Bed, token: Path) -> list[bool]:
    """Run a training with the callback; return whether each of its posts was accepted.

    With the interpreter that KFEXT_TRANSFORMERS names: `pip install transformers`, without torch.
    """
    interpreter = os.environ.get("KFEXT_TRANSFORMERS")
    if not interpreter:
        pytest.skip("KFEXT_TRANSFORMERS names no interpreter with transformers")
    env = {
        "KUBEFLOW_TRAINER_SERVER_URL": bed.url + PATH,
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(bed.authority),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
    }
    ended = await asyncio.to_thread(
        subprocess.run,
        [interpreter, "-c", textwrap.dedent(CALLBACK)],
        env={**os.environ, **env, "PYTHONPATH": ""},
        check=True,
        stdout=subprocess.PIPE,
    )
    answers: list[bool] = orjson.loads(ended.stdout)
    return answers


async def test_without_the_link_to_its_token_the_callback_of_transformers_sends_nothing(
    bed: Bed, tmp_path: Path
) -> None:
    assert await called_back(bed, tmp_path / "absent") == [False] * 10
    assert bed.statuses == []


async def test_the_callback_of_transformers_posts(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("good\n")
    assert await called_back(bed, tmp_path / "token") == [True] * 10
    await bed.posts.write()
    ((_, written),) = bed.api.written
    posted = decode_posted(written)
    assert posted is not None
    assert [(post.step, post.measures) for post in posted.posts] == [
        (5, ()),
        (10, (("loss", 0.4),)),
        (15, ()),
        (20, (("loss", 0.2),)),
        (25, ()),
        (30, (("loss", 4.0 / 30),)),
        (35, ()),
        (40, (("loss", 0.1),)),
        (40, ()),
    ]

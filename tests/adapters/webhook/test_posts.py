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
from kfext.webhook.posts import MAX_WRITES, WRITE_SECONDS, Posts
from tests.adapters.webhook.conftest import client_that_trusts, serving

PATH = post_path(KINDS["PyTorchJob"], "team", "train")
PLAN = "/apis/kfext.dev/v1alpha1/namespaces/team/trainingplans/pytorchjob-train/status"
NAME, UID = (f"authentication.kubernetes.io/pod-{key}" for key in ("name", "uid"))
AWAY = Unavailable(status=0, reason="Unavailable", message="no answer")
NO_PLAN = NotFound(status=404, reason="NotFound", message="gone")
ONE_TURN = int(MAX_WRITES / 2)
"""The writes of a turn; there are two turns a second."""


def account(
    pod: str = "train-master-0", *, namespace: str = "team", bound: bool = True
) -> dict[str, Any]:
    """Return the status of the TokenReview of a token that is bound to a pod."""
    extra = {NAME: [pod], UID: [f"uid-{pod}"]} if bound else {}
    user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
    return {"authenticated": True, "audiences": [names.DOMAIN], "user": user}


@dataclass
class Api:
    """A fake API server that reviews tokens and records the writes.

    `tokens`: the status of each review. `hangs`: whether writes get no answer.
    """

    tokens: dict[str, dict[str, Any]] = field(default_factory=lambda: {"good": account()})
    reviews: list[Any] = field(default_factory=list)
    written: list[tuple[str, Any]] = field(default_factory=list)
    error: ApiError | None = None
    wrote: asyncio.Event = field(default_factory=asyncio.Event)
    hangs: bool = False

    async def create(self, path: str, body: Any) -> Any:
        assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
        self.reviews.append(body["spec"])
        if self.error:
            raise self.error
        return {"status": self.tokens.get(body["spec"]["token"], {"authenticated": False})}

    async def merge_patch(self, path: str, body: Any) -> Any:
        self.written.append((path, body["status"]["posted"]))
        self.wrote.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        return {}


@dataclass
class Bed:
    """The endpoint with a client; both of its clocks show `at[0]`, and a post takes a second."""

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
    fields: dict[str, Any] = {"metrics": listed, "lastUpdatedTime": "2026-01-01T00:00:00.1+00:00"}
    return {"trainerStatus": {**fields, "progressPercentage": percentage}}


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    at, statuses = [1000.0], list[int]()
    api: Any = Api()
    posts = Posts(api, count=statuses.append, wall=lambda: at[0], monotonic=lambda: at[0])
    app = web.Application()
    posts.add_routes(app)
    async with serving(app, tmp_path) as (url, authority), client_that_trusts(authority) as session:
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


FOREIGN: dict[str, tuple[Any, str]] = {
    "an unknown token": ({"authenticated": False}, PATH),
    "a token for another service": (account() | {"audiences": ["api"]}, PATH),
    "a token that is bound to no pod": (account(bound=False), PATH),
    "a token of a person": ({**account(), "user": {"username": "ann"}}, PATH),
    "a pod of another namespace": (account(namespace="other"), PATH),
    "a pod of another job": (account("other-master-0"), PATH),
    "a pod of a job with a longer name": (account("train-b-master-0"), PATH),
    "a pod that is never rank 0": (
        account("train-ps-0"),
        post_path(KINDS["TFJob"], "team", "train"),
    ),
    "a pod with a name that the operator does not use": (account("train-worker-x"), PATH),
    "a review without an answer": ({}, PATH),
    "a review that is not an object": ("x", PATH),
}


@pytest.mark.parametrize(("review", "path"), FOREIGN.values(), ids=FOREIGN)
async def test_a_job_writes_only_its_own_progress(bed: Bed, review: Any, path: str) -> None:
    bed.api.tokens["foreign"] = review
    code, answer = await bed.post(path=path, token="foreign")
    assert (code, answer["reason"], answer["status"]) == (403, "Forbidden", "Failure")
    await bed.posts.write()
    assert bed.api.written == []


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic good", "Bearer good x", " "])
async def test_a_header_without_a_token_causes_no_review(bed: Bed, header: str) -> None:
    assert (await bed.post(Authorization=header))[0] == 403
    assert bed.api.reviews == []


MALFORMED: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{", 422),
    "a list": (b"[]", 422),
    "a percentage beyond 100": (orjson.dumps(status(101)), 422),
    "a metric with a name too long for a plan": (orjson.dumps(status(10, **{"x" * 1000: 1})), 200),
    "too many metrics": (orjson.dumps(status(10, **{f"m{n}": n for n in range(257)})), 422),
    "a number as a value": (b'{"trainerStatus": {"metrics": [{"name": "a", "value": 1}]}}', 422),
    "too large": (b" " * (64 * 2**10 + 1), 413),
    "no status": (b"{}", 200),
    "fields of a later version": (b'{"trainerStatus": {"later": 1}, "more": {}}', 200),
}


@pytest.mark.parametrize(("body", "want"), MALFORMED.values(), ids=MALFORMED)
async def test_the_status_of_the_answer_to_a_body(bed: Bed, body: bytes, want: int) -> None:
    assert (await bed.post(body))[0] == want


async def test_a_token_is_reviewed_once_in_five_minutes(bed: Bed) -> None:
    for spaces in range(3):
        assert (await bed.post(token=" " * spaces + "good"))[0] == 200
    assert len(bed.api.reviews) == 1
    bed.at[0] += 300.0
    await bed.post()
    assert len(bed.api.reviews) == 2


async def test_the_tokens_of_unknown_pods_are_reviewed_at_a_bounded_rate(bed: Bed) -> None:
    codes = []
    for number in range(30):
        bed.at[0] -= 1.0  # all in one second
        codes.append((await bed.post(token=f"stranger-{number}"))[0])
    assert (codes.count(403), codes.count(429)) == (20, 10)


async def test_unknown_pods_do_not_prevent_a_posting_pod_from_posting(bed: Bed) -> None:
    await bed.post()
    bed.at[0] += 300.0  # its token must be reviewed again
    for number in range(30):
        bed.at[0] -= 1.0
        await bed.post(token=f"stranger-{number}")
    bed.at[0] -= 1.0
    assert (await bed.post())[0] == 200


async def test_pods_of_one_namespace_do_not_prevent_another_from_posting(bed: Bed) -> None:
    pods = [f"worker-{number}" for number in range(30)]
    for pod in pods:
        await post_of(bed, pod, job="large", namespace="many")
    await bed.post()
    bed.at[0] += 300.0  # all tokens must be reviewed again
    for pod in pods:
        bed.at[0] -= 1.0  # in one second
        path = post_path(KINDS["PyTorchJob"], "many", "large")
        await bed.post(path=path, token=f"many/large-{pod}")
    bed.at[0] -= 1.0
    assert (await bed.post())[0] == 200


async def test_a_job_posts_at_a_bounded_rate(bed: Bed) -> None:
    codes = [(await bed.post())[0] for _ in range(40)]
    assert (codes.count(200), codes.count(429)) == (30, 10)


async def test_posts_are_written_once_in_half_a_minute_and_at_the_end(bed: Bed) -> None:
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


async def post_of(bed: Bed, pod: str, *, job: str, namespace: str = "team", step: int = 1) -> None:
    """Post as the pod JOB-POD of a job."""
    token = f"{namespace}/{job}-{pod}"
    bed.api.tokens[token] = account(f"{job}-{pod}", namespace=namespace)
    path = post_path(KINDS["PyTorchJob"], namespace, job)
    assert (await bed.post(status(current_step=step), path=path, token=token))[0] == 200


def jobs_written(bed: Bed) -> list[str]:
    """Return NAMESPACE/JOB of each write, in order."""
    parts = (path.split("/") for path, _ in bed.api.written)
    return [f"{part[5]}/{part[7].removeprefix('pytorchjob-')}" for part in parts]


async def test_the_writes_of_many_jobs_are_spread_over_time(bed: Bed) -> None:
    for number in range(3 * ONE_TURN):
        await post_of(bed, "worker-0", job=f"train{number}")
    writes = []
    for _ in range(4):
        await bed.posts.write()
        writes.append(len(bed.api.written))
    assert writes == [ONE_TURN, 2 * ONE_TURN, 3 * ONE_TURN, 3 * ONE_TURN]


async def test_a_job_with_many_posting_pods_is_written_no_more_often(bed: Bed) -> None:
    for number in range(3 * ONE_TURN):
        await post_of(bed, f"worker-{number}", job="large")
    for _ in range(4):
        await bed.posts.write()
    assert jobs_written(bed) == ["team/large"]


async def test_a_namespace_with_one_job_need_not_wait_for_a_namespace_with_many(bed: Bed) -> None:
    for number in range(3 * ONE_TURN):
        await post_of(bed, "worker-0", job=f"train{number}", namespace="many")
    await post_of(bed, "worker-0", job="one", namespace="few")
    await bed.posts.write()
    assert "few/one" in jobs_written(bed)


async def test_beyond_the_bound_the_namespace_with_most_jobs_loses_its_oldest_posts(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfext.webhook.posts._MAX_JOBS", 4)
    await post_of(bed, "worker-0", job="one", namespace="few")
    for number in range(6):
        await post_of(bed, "worker-0", job=f"train{number}", namespace="many")
    await bed.posts.write()
    assert sorted(jobs_written(bed)) == ["few/one", "many/train3", "many/train4", "many/train5"]


POSTING_PODS: dict[str, tuple[list[tuple[str, float]], str]] = {
    "the pod of the lower index": ([("worker-1", 0), ("worker-0", 0), ("worker-2", 0)], "worker-0"),
    "the master": ([("worker-0", 0), ("master-0", 0), ("worker-0", 0)], "master-0"),
    "the lower number": ([("worker-10", 0), ("worker-9", 0)], "worker-9"),
    "another if the first is silent": ([("worker-0", 0), ("worker-1", WRITE_SECONDS)], "worker-1"),
    "the first pod, because it posts again in time": (
        [("worker-1", 0), ("worker-1", 29), ("worker-2", 2)],
        "worker-1",
    ),
}


@pytest.mark.parametrize(("posts", "counts"), POSTING_PODS.values(), ids=POSTING_PODS)
async def test_of_several_pods_the_likeliest_rank_0_posts_for_the_job(
    bed: Bed, posts: list[tuple[str, float]], counts: str
) -> None:
    for pod, later in posts:
        bed.at[0] += later - 1  # a post takes a second
        await post_of(bed, pod, job="train")
    await bed.posts.write()
    assert [posted["pod"] for _, posted in bed.api.written] == [f"uid-train-{counts}"]


async def test_a_replacement_pod_may_post_at_once(bed: Bed) -> None:
    await post_of(bed, "worker-0", job="train", step=40)
    new = account("train-worker-0")
    new["user"]["extra"][UID] = ["uid-of-the-new"]
    bed.api.tokens["new"] = new
    await bed.post(status(current_step=30), token="new")
    await bed.posts.write()
    ((_, posted),) = bed.api.written
    assert (posted["pod"], [post["step"] for post in posted["posts"]]) == ("uid-of-the-new", [30])


async def test_accepted_posts_are_written_before_the_process_stops(bed: Bed) -> None:
    writer = asyncio.create_task(bed.posts.run())
    await post_of(bed, "worker-0", job="train", step=1)
    await bed.api.wrote.wait()
    for number in range(3 * ONE_TURN):
        await post_of(bed, "worker-0", job=f"other{number}")
    await post_of(bed, "worker-0", job="train", step=2)
    writer.cancel()
    await asyncio.wait([writer])
    assert set(jobs_written(bed)) == {
        "team/train",
        *(f"team/other{n}" for n in range(3 * ONE_TURN)),
    }
    steps = [posted["posts"] for path, posted in bed.api.written if path == PLAN]
    assert [[post["step"] for post in posts] for posts in steps] == [[1], [2]]


async def test_a_write_that_the_stop_interrupts_is_repeated(bed: Bed) -> None:
    await post_of(bed, "worker-0", job="train")
    bed.api.hangs = True
    writer = asyncio.create_task(bed.posts.run())
    await bed.api.wrote.wait()
    bed.api.hangs = False
    writer.cancel()
    await asyncio.wait([writer])
    assert jobs_written(bed) == ["team/train", "team/train"]


@pytest.mark.parametrize(
    ("error", "kept"), [(AWAY, [1, 2]), (NO_PLAN, [2])], ids=["away", "no such plan"]
)
async def test_which_posts_a_failed_write_keeps(bed: Bed, error: ApiError, kept: list[int]) -> None:
    await bed.post(status(1, current_step=1))
    bed.api.error = error
    await bed.posts.write()
    bed.api.error = None
    bed.at[0] += WRITE_SECONDS
    await bed.post(status(2, current_step=2))
    await bed.posts.write()
    assert [post["step"] for post in bed.api.written[-1][1]["posts"]] == kept


async def test_the_end_is_written_once_the_api_server_answers_again(bed: Bed) -> None:
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


async def test_an_api_server_that_does_not_answer_is_reported(bed: Bed) -> None:
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


async def run_callback(bed: Bed, token: Path) -> list[bool]:
    """Run a training with the callback of transformers; return whether each post was accepted.

    KFEXT_TRANSFORMERS names the Python: `pip install transformers`, without torch.
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


async def test_without_its_token_the_callback_of_transformers_sends_nothing(
    bed: Bed, tmp_path: Path
) -> None:
    assert await run_callback(bed, tmp_path / "absent") == [False] * 10
    assert bed.statuses == []


async def test_the_callback_of_transformers_posts(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("good\n")
    assert await run_callback(bed, tmp_path / "token") == [True] * 10
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

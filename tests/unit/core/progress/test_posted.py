"""The posts of a program about its progress."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.posted import (
    MAX_METRICS,
    MAX_POSTS,
    PodPosts,
    Post,
    Posted,
    decode_posted,
    encode_posted,
)
from kfext.model.timestamps import written_time
from tests.unit.objects import json_values

AT = 1_700_000_000.0
LOG = {"loss": "2.5", "grad_norm": "1.0", "learning_rate": "5e-05", "epoch": "0.1"}
COUNTS = {"current_step": "10", "total_steps": "100", "current_epoch": "0.1"}
EVALUATION = {"eval_loss": "2.7", "eval_runtime": "3.1"}
LOSS = ("loss", 2.5)


def posts_of(*posts: tuple[dict[str, str], int | None]) -> list[Post]:
    pod_posts = PodPosts()
    for number, (metrics, percentage) in enumerate(posts):
        pod_posts.read_post(metrics, percentage=percentage, at=AT + number)
    return list(pod_posts.posts)


def steps(*posts: tuple[dict[str, str], int | None]) -> list[tuple[int | None, int | None]]:
    return [(post.step, post.total) for post in posts_of(*posts)]


def test_the_posts_of_the_callback_of_transformers() -> None:
    begun, ended = ({"total_steps": "100"}, 0), ({**LOG, "train_loss": "2.4"}, 100)
    result = posts_of(
        begun,
        ({**LOG, **COUNTS}, 10),
        ({**LOG, **COUNTS, "current_step": "15"}, 15),
        ({**LOG, **EVALUATION, **COUNTS, "current_step": "20", "epoch": "0.2"}, 20),
        ({**LOG, **EVALUATION, **COUNTS, "current_step": "25", "loss": "2.4"}, 25),
        ended,
    )
    assert [(post.step, post.total) for post in result] == [
        *((10, 100), (15, 100), (20, 100), (25, 100), (100, 100)),
    ]
    assert [post.measures for post in result[:4]] == [
        (LOSS,),
        (),
        (("eval_loss", 2.7),),
        (("loss", 2.4),),
    ]


REPEATED: dict[str, tuple[dict[str, str], bool]] = {
    "nothing new": (LOG, False),
    "only the step": ({**LOG, "current_step": "11"}, False),
    "only the epoch, which an evaluation logs too": ({**LOG, "epoch": "0.2"}, False),
    "a different loss": ({**LOG, "loss": "2.4"}, True),
    "the same loss at another rate": ({**LOG, "learning_rate": "4e-05"}, True),
    "an evaluation": ({**LOG, **EVALUATION}, False),
}


@pytest.mark.parametrize(("metrics", "want"), REPEATED.values(), ids=REPEATED)
def test_a_loss_counts_once_for_each_time_that_it_was_measured(
    metrics: dict[str, str], want: bool
) -> None:
    result = posts_of(
        ({**LOG, "current_step": "10"}, None), ({"current_step": "12"} | metrics, None)
    )
    assert any(name == "loss" for name, _ in result[1].measures) is want


STEPS: dict[str, tuple[list[tuple[dict[str, str], int | None]], list[Any]]] = {
    "both steps by name": ([(COUNTS, None)], [(10, 100)]),
    "under other names": ([({"global_step": "7", "max_steps": "9"}, None)], [(7, 9)]),
    "within an epoch beside the whole run": (
        [({"step": "1", "global_step": "7"}, None)],
        [(7, None)],
    ),
    "only a percentage": ([({}, 40)], [(40, 100)]),
    "a percentage of known steps": ([({"total_steps": "500"}, 40)], [(200, 500)]),
    "the beginning, which may be a restart at a later step": ([({"total_steps": "5"}, 0)], []),
    "the end, without its step": ([(COUNTS, 10), ({}, 100)], [(10, 100), (100, 100)]),
    "a step without an end is no percentage": (
        [({"current_step": "7"}, 0), ({}, 20)],
        [(7, None)],
    ),
    "a step and its percentage": ([({"step": "200"}, 20)], [(200, 1000)]),
    "both from the beginning on": (
        [({}, 0), ({"step": "200"}, 20), ({"step": "219"}, 21), ({"step": "1000"}, 100)],
        [(200, 1000), (219, 1043), (1000, 1000)],
    ),
    "only a percentage, and then both": ([({}, 10), ({"step": "15"}, 75)], [(10, 100), (15, 20)]),
    "a percentage too small for a total": ([({"step": "9"}, 1)], [(9, None)]),
    "a step that starts again beside its percentage": (
        [({"step": "50"}, 10), ({"step": "5"}, 12), ({"step": "50"}, 20)],
        [(50, 500), (5, None), (50, None)],
    ),
    "a total by name beside a percentage of something else": ([(COUNTS, 50)], [(10, 100)]),
    "malformed numbers": ([({"step": "x", "total_steps": "-1"}, None)], []),
    "a step that is too large": ([({"step": "1e300"}, None)], []),
}


@pytest.mark.parametrize(("posts", "want"), STEPS.values(), ids=STEPS)
def test_the_step_of_a_post(posts: list[tuple[dict[str, str], int | None]], want: Any) -> None:
    assert steps(*posts) == want


@pytest.mark.parametrize(("length", "is_read"), [(64, True), (65, False)])
def test_a_measure_with_a_long_name_is_ignored(length: int, is_read: bool) -> None:
    (post,) = posts_of(({f"{'a' * (length - 6)}_loss": "1", "step": "1"}, None))
    assert bool(post.measures) is is_read


@pytest.mark.parametrize(("others", "is_read"), [(MAX_METRICS - 1, True), (MAX_METRICS, False)])
def test_only_the_first_of_many_metrics_are_read(others: int, is_read: bool) -> None:
    many = {f"m{number}": "1" for number in range(others)}
    assert bool(posts_of((many | {"loss": "1"}, None))) is is_read


def test_the_newest_posts_are_kept() -> None:
    result = posts_of(*(({"step": str(number)}, None) for number in range(100)))
    assert [post.step for post in result] == list(range(100 - MAX_POSTS, 100))


def test_a_measure_that_is_not_a_number_is_read_back() -> None:
    (post,) = posts_of(({"loss": "nan", "step": "1"}, None))
    posted = decode_posted(encode_posted(Posted("a", (post,))))
    assert posted is not None
    assert math.isnan(posted.posts[0].measures[0][1])


names = st.sampled_from(["loss", "eval_loss", "step", "total_steps", "lr", "x"]) | st.text(
    max_size=9
)
values = st.floats().map(repr) | st.integers().map(str) | st.text(max_size=9)


@given(posts=st.lists(st.tuples(st.dictionaries(names, values), st.integers(0, 100) | st.none())))
def test_written_posts_are_read_back(posts: list[tuple[dict[str, str], int | None]]) -> None:
    result = tuple(posts_of(*posts))
    read = decode_posted(encode_posted(Posted("uid", result)))
    assert repr(read) == repr(Posted("uid", result) if result else None)


@given(json_values)
def test_anything_is_read_without_an_error(raw: Any) -> None:
    decode_posted(raw)
    decode_posted({"posts": [raw, {"metrics": [raw], "time": raw, "step": raw}]})


def test_a_status_of_trainer_is_a_post_at_the_time_that_it_states() -> None:
    metrics = [{"name": name, "value": value} for name, value in {**LOG, **COUNTS}.items()]
    status = {"lastUpdatedTime": written_time(AT), "progressPercentage": 10, "metrics": metrics}
    pod_posts = PodPosts()
    for _ in range(2):
        pod_posts.read_status(status)
    assert list(pod_posts.posts) == [Post(AT, 10, 100, (LOSS,))]


def test_a_status_from_a_clock_that_was_ahead_hides_no_later_status() -> None:
    pod_posts = PodPosts()
    for seconds, percentage in ((3600, 10), (5, 20)):
        at = written_time(AT + seconds)
        pod_posts.read_status({"lastUpdatedTime": at, "progressPercentage": percentage})
    assert [post.step for post in pod_posts.posts] == [10, 20]


@given(json_values)
def test_each_status_of_trainer_adds_at_most_one_post(status: Any) -> None:
    pod_posts = PodPosts()
    pod_posts.read_status({"lastUpdatedTime": written_time(AT), "metrics": status})
    pod_posts.read_status(status if isinstance(status, dict) else {"metrics": status})
    assert len(pod_posts.posts) <= 2

"""The posts of a job's program about its progress, and their form in the job's TrainingPlan.

A program posts the last values of all its measures, so most values of a post are as old as the
program's last line. A value counts as a new measurement only if a value of its group changed:
windows of repeated values would look like the end of growth.

Kubeflow Trainer defines the wire format. Source: kubeflow/trainer KEP-2779; huggingface
transformers, integration_utils.py KubeflowCallback.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kfext.core.progress.lines import Line
from kfext.core.progress.position import MOST, Position
from kfext.core.progress.vocabulary import Role, is_eval, meaning, order
from kfext.model.timestamps import timestamp, written_time
from kfext.model.tolerant import mapping, sequence, text

MAX_POSTS = 16
"""The most posts in a write, which has the newest: a callback posts at most every 5 s."""
MAX_METRICS = 64
_MAX_MEASURES = 8
_LONGEST_PAIR = 64
"""The most characters of a name and its value together."""
_STEP = {Role.RUN_STEP, Role.STEP}
_TOTAL = {Role.END, Role.LAST}
_WHOLE = 100
"""The total for a program that has posted no step: its percentage counts as the step of 100."""
_MIN_PERCENTAGE, _ROUNDING = 5, 1.5
"""A lower percentage shows no total. Percentages of the same total differ by up to the rounding."""


@dataclass(frozen=True, slots=True)
class Post:
    """The content of a post: its time in epoch seconds, its position, and its new measures.

    `step`, `total`: the step and the steps of the whole run, or None. `measures`: name and number.
    """

    at: float
    step: int | None = None
    total: int | None = None
    measures: tuple[tuple[str, float], ...] = ()

    @property
    def line(self) -> Line:
        """The post in the form of a line of a log."""
        return Line(self.measures, Position(self.step, self.total, whole=True, named=True))


@dataclass(frozen=True, slots=True)
class Posted:
    """The newest posts of a pod, oldest first. `pod`: its uid."""

    pod: str
    posts: tuple[Post, ...]


class PodPosts:
    """The posts of one pod. `posts`: the posts that are not written yet."""

    def __init__(self) -> None:
        self.posts: deque[Post] = deque(maxlen=MAX_POSTS)
        self._metrics: Mapping[str, str] = {}  # of the last post
        self._total: int | None = None  # stated by name
        self._likely: int | None = None  # computed from a percentage
        self._first: tuple[float, int] | None = None  # such a total, and its percentage
        self._stepped = False  # whether a post had a step
        self._status_at = 0.0

    def read_post(self, metrics: Mapping[str, str], *, percentage: int | None, at: float) -> None:
        """Read a post: its metrics by name, and the percentage of the training that is done.

        Metrics with long names or values, and metrics beyond the first MAX_METRICS, are ignored.
        """
        fits = ((key, value) for key, value in metrics.items() if len(key + value) <= _LONGEST_PAIR)
        metrics = dict(islice(fits, MAX_METRICS))
        step, total = _count(metrics, _STEP), _count(metrics, _TOTAL)
        self._total = total or self._total
        self._stepped |= step is not None
        total = self._total or self._likely_total(step, percentage or 0)
        if step is None and percentage and (self._total or not self._stepped):
            total = self._total or _WHOLE
            step = percentage * total // _WHOLE
        measures = tuple(self._new_measures(metrics))
        self._metrics = metrics
        if step is not None or measures:
            self.posts.append(Post(at, step, total, measures))

    def _likely_total(self, step: int | None, percentage: int) -> int | None:
        """Return the total from a step and its percentage if it agrees with the first total."""
        if step and percentage >= _MIN_PERCENTAGE:
            total = _WHOLE * step / percentage
            first, at = self._first = self._first or (total, percentage)
            agrees = abs(total / first - 1) * at <= _ROUNDING
            self._likely = min(round(total), MOST) if agrees else None
        return self._likely

    def read_status(self, status: Mapping[str, Any]) -> None:
        """Read a status of Kubeflow Trainer as a post, unless it has the time of the last status.

        Its clock may be set back, so an earlier time is new too.
        """
        at = timestamp(status.get("lastUpdatedTime"))
        if at == self._status_at:
            return
        self._status_at = at
        stated = map(mapping, sequence(status.get("metrics"))[:MAX_METRICS])
        metrics = {text(metric.get("name")): text(metric.get("value")) for metric in stated}
        percentage = _whole(status.get("progressPercentage"))
        self.read_post(metrics, percentage=min(percentage or 0, _WHOLE), at=at)

    def _new_measures(self, metrics: Mapping[str, str]) -> Iterator[tuple[str, float]]:
        """Yield the measures of the groups, training and evaluation, in which a value changed."""
        changed = {
            is_eval(name)
            for name, value in metrics.items()
            if _role(name) in {None, Role.MEASURE} and self._metrics.get(name) != value
        }
        measures = [name for name in metrics if _role(name) is Role.MEASURE]
        for name in sorted(measures, key=order)[:_MAX_MEASURES]:
            value = _number(metrics[name])
            if value is not None and is_eval(name) in changed:
                yield name, value


def encode_posted(posted: Posted) -> dict[str, Any]:
    """Return the field `status.posted` of a TrainingPlan."""
    return {
        "pod": posted.pod,
        "posts": [
            {
                "time": written_time(post.at),
                **({} if post.step is None else {"step": post.step}),
                **({} if post.total is None else {"totalSteps": post.total}),
                # JSON has no NaN.
                "metrics": [{"name": name, "value": repr(value)} for name, value in post.measures],
            }
            for post in posted.posts
        ],
    }


def decode_posted(raw: object) -> Posted | None:
    """Return the posts from their JSON, or None for no posts. Never raises."""
    written = mapping(raw)
    posts = tuple(map(_decode_post, sequence(written.get("posts"))[-MAX_POSTS:]))
    return Posted(text(written.get("pod")), posts) if posts else None


def _decode_post(raw: object) -> Post:
    written = mapping(raw)
    stated = map(mapping, sequence(written.get("metrics"))[:_MAX_MEASURES])
    measures = ((text(metric.get("name")), _number(metric.get("value"))) for metric in stated)
    return Post(
        at=timestamp(written.get("time")),
        step=_whole(written.get("step")),
        total=_whole(written.get("totalSteps")),
        measures=tuple((name, value) for name, value in measures if name and value is not None),
    )


def _role(name: str) -> Role | None:
    known = meaning(name)
    return known.role if known else None


def _count(metrics: Mapping[str, str], roles: set[Role]) -> int | None:
    """Return the largest count with one of these roles: `step` beside `global_step`."""
    counts = (_number(value) for name, value in metrics.items() if _role(name) in roles)
    known = [int(count) for count in counts if count is not None and 0 <= count <= MOST]
    return max(known, default=None)


def _number(value: object) -> float | None:
    written = text(value)
    try:
        return float(written) if len(written) <= _LONGEST_PAIR else None
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST else None

"""One job, followed by its log and its posts: its course, its growth, or why they are unknown.

Posts take precedence: while the program posts, only checkpoints are read from its log.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from kfext import names
from kfext.core.progress.checkpoints import CheckpointLog, Checkpoints
from kfext.core.progress.course import Course, GrowthList, progress_of
from kfext.core.progress.fields import Table
from kfext.core.progress.life import Life
from kfext.core.progress.lines import Line, read_line
from kfext.core.progress.posted import Post
from kfext.core.progress.reported import Reported
from kfext.core.progress.stall import Start
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.timestamps import written_time
from kfext.model.verdict import Verdict

INTERVAL = 30.0
"""The length of a window of values, in seconds."""
_MAX_TEXT = 16 * 1024
"""The most characters of new lines that are read at once: 80 lines of 200 characters."""
_UNRECOGNISED_SECONDS = 60.0
"""Unrecognised progress is shown after reads for this long: programs take time to start."""
_UNAVAILABLE_READS = 3
"""An unavailable log is shown after so many failed reads in a row."""
_POSTS_SECONDS = 180.0
"""If the job has not posted for this long, its log counts again; a step may take long."""
_PENDING_ROUNDS = 6
"""Pending CPU use is shown as unknown after so many rounds, which are three minutes."""


class Followed:
    """Follows one job by the lines of its log and the posts of its program.

    `course`: the training so far.
    `expression`: the user's expression, empty if kfext itself recognises the progress.
    `fruitful`: the number of reads that recognised progress.
    `fruitless`: the number of reads in a row that recognised nothing.
    `failures`: the number of reads in a row that failed.
    `silent`: the seconds from the first to the last read that recognised nothing.
    `pause`: the longest time between two lines with progress, in seconds, or 0.0 while unknown. A
        pause with a restart does not count.
    `life`: the counters of the log.
    `moved`, `steps`: whether a counter moved, or a step was shown, since the silence was judged.
    `start`, `judged`: the silence of the present start, and the verdict on it; see Reported.
    """

    def __init__(self, expression: str = "") -> None:
        self.expression = expression
        self.fruitful = 0
        self.fruitless = 0
        self.silent = 0.0
        self.failures = 0
        self.pause = 0.0
        self.life = Life()
        self.moved = self.steps = False
        self.start: Start | None = None
        self.judged: Verdict | None = None
        self._source = ""  # the uid of the pod that printed last
        self._silent_from = 0.0
        self._posted_at = -math.inf
        self._by_posts = False  # whether the last progress was posted
        self._table = Table()
        self._checkpoints = CheckpointLog()
        self.course = Course(INTERVAL)
        self._growth = GrowthList()
        self._judged_at = 0.0
        self._disturbed_at = -math.inf
        self._failed: Verdict | None = None
        self._cores: float | None = None  # in use
        self._share: float | None = None
        self._unmeasured: Verdict | None = None
        self._pending = 0  # rounds in a row with pending CPU use

    def read_lines(
        self,
        lines: Sequence[LogLine],
        *,
        now: Moment,
        source: str = "",
        neighbours: Collection[str] = (),
    ) -> list[Line]:
        """Read new lines, in the order printed; return the lines with measures.

        `source`: the uid of the pod that printed them. A new pod begins the training anew.
        `neighbours`: the uids of the pods that run beside it. If all ranks print, lines of another
            rank that are older than the last line are ignored.
        """
        self.failures, self._failed = 0, None
        measured: list[Line] = []
        step, saved = self.course.step, self._checkpoints.seen
        posts = self._by_posts = self.posts(now.monotonic)
        with self._judging_after(now):
            for printed in _newest(lines):
                if not posts and self._source in neighbours and self._is_older(printed):
                    continue
                text = printed.text if self.expression else self._table.label(printed.text)
                line = None if posts else read_line(text, self.expression)
                self.moved |= self.life.read_line(text, line)
                if line is not None:
                    self._add_line(line, at=printed.at, now=now.wall, source=source)
                    self._checkpoints.advance(self.course.counted_step)
                    known = line.measures and not line.guessed
                    shown = known or self.course.metric in dict(line.measures)
                    measured += [line] if shown else []
                self._checkpoints.read_line(printed, step=self.course.counted_step, now=now.wall)
                if self._checkpoints.seen != saved:
                    saved, self.moved, self.life.saving = self._checkpoints.seen, True, False
            self.steps |= bool(measured) or self.course.step != step
            useful = bool(measured) or posts
            if useful or not self.fruitless:
                self._silent_from = now.monotonic
            self.fruitful += useful
            self.fruitless = 0 if useful else self.fruitless + 1
            self.silent = now.monotonic - self._silent_from
        return measured

    def add_posts(
        self, posts: Iterable[Post], *, now: Moment, source: str, neighbours: Collection[str] = ()
    ) -> None:
        """Add the posts of a pod that are newer than the last line or post; see `read_lines`.

        While a pod posts, the posts of the pods that run beside it do not count.
        """
        if self._source in neighbours and self.posts(now.monotonic):
            return
        self._posted_at, self._by_posts = now.monotonic, True
        with self._judging_after(now):
            for post in posts:
                if self.course.at is not None and post.at <= self.course.at:
                    continue  # the log was read up to a later time
                if post.measures or post.step != self.course.step:
                    self.moved = self.steps = True
                if post.measures:
                    self._add_line(post.line, at=post.at, now=now.wall, source=source)
                else:
                    self.course.advance(post.line.position, at=post.at, now=now.wall)

    def posts(self, monotonic: float) -> bool:
        """Return whether the program posts its progress, so that its log does not count."""
        return monotonic - self._posted_at <= _POSTS_SECONDS

    @contextmanager
    def _judging_after(self, now: Moment) -> Iterator[None]:
        """Judge the growth after lines or posts are added."""
        metric, restarts = self.course.metric, self.course.restarts
        yield
        if self.course.metric != metric:
            self._growth, self._judged_at = GrowthList(), now.monotonic
        if self.course.restarts > restarts or self.course.diverged_since is not None:
            self._disturbed_at = now.monotonic
        self._judge(now)

    def _is_older(self, printed: LogLine) -> bool:
        """Return whether a line is not newer than the last line with a measure."""
        return self.course.at is not None and printed.at <= self.course.at

    def _add_line(self, line: Line, *, at: float, now: float, source: str) -> None:
        before, restarts = self.course.at, self.course.restarts
        self.course.read_line(line, at=at, now=now)
        if not line.measures:
            return
        moved, self._source = self._source not in {"", source}, source
        if moved or self.course.restarts > restarts:
            self._checkpoints.record_restart()
        elif before is not None and self.course.at is not None:
            self.pause = max(self.pause, self.course.at - before)

    def record_failed_read(self, why: Verdict | None) -> None:
        """Record that a read failed; None means that the log does not exist yet.

        A single failure is shown only if reading is forbidden.
        """
        if self.start is not None:
            self.start.unread, self.start.hangs = True, False
        if why is None:
            return
        self.failures += 1
        if why.reason == names.REASON_LOG_FORBIDDEN or self.failures >= _UNAVAILABLE_READS:
            self._failed = why

    def use(self, cores: float | None, *, share: float | None, why: Verdict | None = None) -> None:
        """Record the cores in use and their share of the nodes' cores, or why they are unknown.

        Pending values are shown as unknown only after several rounds.
        """
        pending = why is not None and why.reason == names.REASON_CPU_USE_PENDING
        self._pending = self._pending + 1 if pending else 0
        self._cores, self._share = cores, share
        self._unmeasured = None if pending and self._pending < _PENDING_ROUNDS else why

    @property
    def recognised(self) -> bool:
        """Whether any measure of its progress was recognised."""
        return bool(self.course.metric)

    @property
    def moves(self) -> Verdict | None:
        """The verdict on the movement of its counters; see Reported."""
        return self._unreadable or self.judged

    @property
    def _unreadable(self) -> Verdict | None:
        """Why its log cannot be read, or None; for a program that posts it does not matter."""
        return None if self._by_posts else self._failed

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the log so far."""
        return self._checkpoints.seen

    def reported(self) -> Reported:
        """Return the progress to display."""
        return Reported(
            progress=self.course.progress(),
            growth=self._growth.growth,
            state=self._growth.state if self.course.better else None,
            cpu=self._cores,
            known=self._whether_known(),
            unmeasured=self._unmeasured,
            moves=self.moves,
        )

    def _whether_known(self) -> Verdict | None:
        shows = "the job posts" if self._by_posts else "the log shows"
        if self._unreadable is not None:
            return self._unreadable
        metric = self.course.metric
        if (since := self.course.diverged_since) is not None:
            message = f"{metric} has not been a number since {written_time(since)}"
            return Verdict(names.REASON_DIVERGED, message)
        if metric:
            return Verdict(names.REASON_RECOGNISED, f"{shows} {metric}")
        if self.course.step is not None:
            return Verdict(names.REASON_RECOGNISED, f"{shows} steps and no measure")
        if self.silent < _UNRECOGNISED_SECONDS:
            return None
        predicate = "matches the expression" if self.expression else "looks like progress"
        return Verdict(
            names.REASON_NOTHING_RECOGNISED, f"nothing in the log {predicate}; see {names.METRICS}"
        )

    def _judge(self, now: Moment) -> None:
        """Judge the growth of the last interval, once per interval.

        It is unknown while a window has values from before a restart, or has no values.
        """
        time = now.monotonic
        if self.course.better is None or time - self._judged_at < INTERVAL:
            return
        self._judged_at = time
        progress = None
        if time - self._disturbed_at >= 2 * INTERVAL:
            progress = progress_of(self.course.windows, self.course.better, now=now.wall)
        self._growth.add_interval(progress, self._share)


def _newest(lines: Sequence[LogLine]) -> Iterable[LogLine]:
    """Return the newest lines, up to _MAX_TEXT characters."""
    size, first = 0, len(lines)
    while first > 0 and size < _MAX_TEXT:
        first -= 1
        size += len(lines[first].text)
    return lines[first:]

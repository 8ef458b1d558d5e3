"""The logs of pods on fake nodes: a kubelet that serves them, and fake training programs.

kwok serves only log files named when it starts. Cases create pods later, so the API server
fetches their logs from this kubelet; for everything else kwok remains the kubelet.

`FakeTraining` prints the lines of `e2e/jobs/elastic_ddp.py` and `elastic_ps.py`: steps,
checkpoints, answers to requests. Its speed is proportional to its workers. When their number
changes, a program that must restart resumes from its last checkpoint. `GrowingLog` is a single log
that all pods show.
"""

import math
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

from e2e.harness.kube import Kube, Object
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed
from kfext import names

_ADDRESS = "127.0.0.1"
_MAX_LINES = 5000
_POLL_SECONDS = 0.5
_ANNOUNCEMENT_SECONDS = 60.0
"""The time between two lines in which a program announces that it can save."""
PACE = 1.5
"""Steps that each worker makes per second."""
LINES_PER_SECOND = 5
_FIRST_LINES = 400
"""Lines that a `GrowingLog` has from the start."""


@contextmanager
def in_background(run: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """Run a function in a thread during a `with` block; it must return once its event is set."""
    ending = threading.Event()
    running = threading.Thread(target=run, args=(ending,), name=name)
    running.start()
    try:
        yield
    finally:
        ending.set()
        running.join()


class PodLog:
    """The output of a container; each line has a distinct time."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._last = 0

    def write(self, text: str) -> None:
        self._last = max(self._last + 1, time.time_ns())
        seconds, rest = divmod(self._last, 10**9)
        second = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._lines.append(f"{second}.{rest:09}Z {text}\n")

    def read(self, *, tail: int | None, most: int | None, timestamps: bool) -> bytes:
        """Return the last `tail` lines, cut after `most` bytes, as a kubelet does."""
        lines = list(self._lines)
        chosen = lines if tail is None else lines[max(0, len(lines) - tail) :]
        if not timestamps:
            chosen = [line.split(" ", 1)[1] for line in chosen]
        return "".join(chosen).encode()[:most]


class _Handler(BaseHTTPRequestHandler):
    """Answers /containerLogs/NAMESPACE/POD/CONTAINER with the log of that pod."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts, query = url.path.strip("/").split("/"), parse_qs(url.query)
        if parts[0] != "containerLogs" or len(parts) != 4:
            self.send_error(404)
            return
        tail, most = (query.get(name) for name in ("tailLines", "limitBytes"))
        log: PodLog = self.server.log_of(parts[1], parts[2])  # type: ignore[attr-defined]
        body = log.read(
            tail=int(tail[0]) if tail else None,
            most=int(most[0]) if most else None,
            timestamps=query.get("timestamps") == ["true"],
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is inherited
        """Log no requests."""


class FakeKubelet:
    """Serves the logs of pods, by namespace and name, on a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._logs: dict[tuple[str, str], PodLog] = {}
        self._lock = threading.Lock()

    def log_of(self, namespace: str, pod: str) -> PodLog:
        """Return the log of a pod; it is empty at first."""
        with self._lock:
            return self._logs.setdefault((namespace, pod), PodLog())

    def forget(self, namespace: str, pod: str) -> None:
        """Empty the log of a pod, because a new pod with its name has replaced it."""
        with self._lock:
            self._logs.pop((namespace, pod), None)

    def take_over(self, kube: Kube, node: str) -> None:
        """Make the API server request the logs of a node's pods here."""
        addresses = [
            {"type": "InternalIP", "address": _ADDRESS},
            {"type": "Hostname", "address": node},
        ]
        endpoints = {"kubeletEndpoint": {"Port": self.port}}
        status = {"addresses": addresses, "daemonEndpoints": endpoints}
        kube.patch(f"/api/v1/nodes/{node}/status", {"status": status})

    @contextmanager
    def serving(self, tls: ssl.SSLContext) -> Iterator[None]:
        server = ThreadingHTTPServer((_ADDRESS, self.port), _Handler)
        server.daemon_threads = True
        server.log_of = self.log_of  # type: ignore[attr-defined]
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, name="fake-kubelet")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def fake_kubelet(testbed: Testbed) -> Iterator[FakeKubelet]:
    """Run a kubelet beside a testbed; the API server accepts any certificate of a kubelet."""
    serving = testbed.pki.server("fake-kubelet", hosts=[_ADDRESS])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(serving.certificate, serving.key)
    kubelet = FakeKubelet(testbed.new_port())
    with kubelet.serving(tls):
        yield kubelet


@dataclass
class FakeProgram:
    """A training program; `advance` lets it train, and returns the lines that it prints.

    It saves only on request.

    `total`: its number of steps. `saves`: whether it can save, and says so. `silent`: whether it
        ignores requests. `restarts`: whether it resumes from its last checkpoint when its workers
        have changed.
    """

    total: int = 10**6
    saves: bool = True
    silent: bool = False
    restarts: bool = True
    step: int = 0
    saved: int = 0
    _team: Sequence[str] = ()
    _last_answered: int = 0
    _progress: float = 0.0
    _since_announced: float = math.inf

    def advance(self, seconds: float, team: Sequence[str], request: int) -> list[str]:
        """Train for `seconds` with the workers `team`.

        `request`: the number of the checkpoint request; 0 means that there is none.
        """
        lines = self._set_team(team)
        if not team:
            return lines
        self._since_announced += seconds
        if self.saves and self._since_announced >= _ANNOUNCEMENT_SECONDS:
            lines.append("kfext.checkpoint 0")
            self._since_announced = 0.0
        self._progress += seconds * PACE * len(team)
        whole = int(self._progress)
        self._progress -= whole
        for _ in range(min(whole, self.total - self.step)):
            self.step += 1
            lines.append(f"step {self.step}/{self.total} loss={math.exp(-self.step / 5000):.6f}")
        if self.saves and not self.silent and request > self._last_answered:
            self._last_answered, self.saved = request, self.step
            lines += [f"saved checkpoint at step {self.step}", f"kfext.checkpoint {request}"]
        return lines

    def _set_team(self, team: Sequence[str]) -> list[str]:
        if team == self._team:
            return []
        first, self._team = not self._team, team
        if first:
            self._last_answered = 0  # a new process knows no request
        if not team or not (first or self.restarts):
            return []
        self.step, self._progress, self._since_announced = self.saved, 0.0, math.inf
        return [f"resumed at step {self.step} with world {len(team)}"]


@dataclass
class FakeTraining:
    """Runs the program of a job with pods on fake nodes. `lines`: all lines that it has printed."""

    space: Space
    job: str
    kubelet: FakeKubelet
    program: FakeProgram
    lines: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def run(self, ending: threading.Event) -> None:
        """Train until `ending` is set."""
        last = monotonic()
        while not ending.wait(_POLL_SECONDS):
            pods = [pod for pod in self.space.pods(self.job) if _is_training(pod)]
            pods.sort(key=lambda pod: _rank(pod["metadata"]["name"]))
            now = monotonic()
            self._advance(now - last, pods)
            last = now

    def _advance(self, seconds: float, pods: Sequence[Object]) -> None:
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        for name, uid in uids.items():
            if self._known.get(name, uid) != uid:
                self.kubelet.forget(self.space.name, name)
        self._known |= uids
        request = max(map(_request_number, pods), default=0)
        printed = self.program.advance(seconds, list(uids.values()), request)
        self.lines += printed
        if uids:
            log = self.kubelet.log_of(self.space.name, next(iter(uids)))
            for line in printed:
                log.write(line)


@contextmanager
def training(
    space: Space, job: str, kubelet: FakeKubelet, program: FakeProgram
) -> Iterator[FakeTraining]:
    fake = FakeTraining(space, job, kubelet, program)
    with in_background(fake.run, name=f"training-{job}"):
        yield fake


def _is_training(pod: Object) -> bool:
    """Whether a pod trains: it runs, and is no parameter server."""
    serves = pod["metadata"]["labels"].get(names.REPLICA_TYPE) == "ps"
    return not serves and bool(pod["status"].get("phase") == "Running")


def _rank(pod: str) -> tuple[str, int]:
    """Return the sort key of a pod's name; the master is first, then workers by index."""
    stem, _, index = pod.rpartition("-")
    return stem.rpartition("-")[2], int(index)


def _request_number(pod: Object) -> int:
    """Return the number of the checkpoint request on a pod; 0 means that there is none."""
    written = pod["metadata"].get("annotations", {}).get(names.CHECKPOINT_REQUEST, "")
    return int(written) if written.isdecimal() else 0


class GrowingLog:
    """The log of every pod, as containerd writes it: a line with a falling loss for each step.

    `saves_every`: the steps between two lines about checkpoints; 0 means no such lines. `lines` and
    `saves` count the printed steps and checkpoints.
    """

    def __init__(self, path: Path, *, saves_every: int = 0) -> None:
        self.path = path
        self.lines = self.saves = 0
        self._saves_every = saves_every
        with path.open("w") as file:
            for _ in range(_FIRST_LINES):
                file.write(self._next())

    def grow(self, ending: threading.Event) -> None:
        """Add lines until `ending` is set."""
        with self.path.open("a") as file:
            while not ending.wait(1 / LINES_PER_SECOND):
                file.write(self._next())
                file.flush()

    def _next(self) -> str:
        self.lines += 1
        text = _with_time(f"step={self.lines} loss={math.exp(-self.lines / 1000):.6f}")
        if self._saves_every and self.lines % self._saves_every == 0:
            self.saves += 1
            text += _with_time(f"saved checkpoint at step {self.lines}")
        return text


@contextmanager
def growing(path: Path, *, saves_every: int = 0) -> Iterator[GrowingLog]:
    """Yield a log file that grows during a `with` block."""
    log = GrowingLog(path, saves_every=saves_every)
    with in_background(log.grow, name="growing-log"):
        yield log


def _with_time(line: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    return f"{stamp} stdout F {line}\n"

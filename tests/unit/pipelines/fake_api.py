"""An API server with one training job, which moves on with each look at it. For the launcher."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

Raw = dict[str, Any]
CREATED = "2026-11-27T10:00:00Z"


def condition(type_: str, status: str = "True", **more: str) -> Raw:
    return {"type": type_, "status": status, "lastTransitionTime": "2026-11-27T10:20:00Z", **more}


def queued(ahead: int, message: str = "needs 8 CPUs of a node; node-1 has 2") -> Raw:
    return {"phase": "Queued", "reason": "NoRoom", "message": message, "ahead": ahead}


def placed(step: int, **more: Any) -> Raw:
    progress = {"metric": "loss", "value": 1 / step, "step": step, "totalSteps": 40, **more}
    nodes = {"nodes": ["node-1"], "nodeSummary": "node-1"}
    return {"phase": "Placed", "reason": "Placed", **nodes, "progress": progress}


@dataclass
class FakeApi:
    """`moves`: the conditions of the job and the status of its TrainingPlan, look by look.

    `refusal`: the message of the admission webhook, which refuses all jobs with it.
    `job`: the job that is there; None without one.
    `outages`: how many of the next requests fail.
    """

    moves: Sequence[tuple[list[Raw], Raw]]
    refusal: str = ""
    job: Raw | None = None
    outages: int = 0
    asked: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Raw]:
        self.asked.append(method)
        self.bodies.append(body)
        if self.outages:
            self.outages -= 1
            return 503, {"kind": "Status", "message": "the server is restarting"}
        if method == "POST":
            return self._create(body)
        if self.job is None:
            return 404, {"kind": "Status", "message": "not found"}
        if method == "DELETE":
            self.job = None
            return 200, {"kind": "Status"}
        conditions, status = self.moves[0]
        if "trainingplans" in path:
            return 200, {"spec": {"job": {"uid": self.job["metadata"]["uid"]}}, "status": status}
        if method == "GET":
            if len(self.moves) > 1:
                self.moves = self.moves[1:]
            self.job["status"] = {"conditions": conditions, "startTime": CREATED}
        else:
            self.job["metadata"] = body["metadata"]
        return 200, self.job

    def _create(self, body: Raw) -> tuple[int, Raw]:
        if self.refusal:
            return 400, {"kind": "Status", "message": self.refusal}
        if self.job is not None and self.job["metadata"]["name"] == body["metadata"]["name"]:
            return 409, {"kind": "Status", "reason": "AlreadyExists"}
        number = self.asked.count("POST")
        metadata = {**body["metadata"], "uid": f"uid-{number}", "creationTimestamp": CREATED}
        self.job = {**body, "metadata": metadata}
        return 201, self.job


@contextmanager
def served(api: FakeApi, folder: Path) -> Iterator[Path]:
    """Serve it; yield a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length) or "null")
            code, answer = api.answer(self.command, self.path, sent)
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - as http.server calls them

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                    }
                ],
                "users": [{"name": "u", "user": {}}],
                "contexts": [
                    {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
                ],
            }
        )
    )
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()

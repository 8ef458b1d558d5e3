"""A fake API server with one training job, which advances at each read; for the launcher."""

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
MERGE = "application/merge-patch+json"


def condition(type_: str, status: str = "True", **fields: str) -> Raw:
    return {"type": type_, "status": status, "lastTransitionTime": "2026-11-27T10:20:00Z", **fields}


def queued(ahead: int, message: str = "needs 8 CPUs of a node; node-1 has 2") -> Raw:
    return {"phase": "Queued", "reason": "NoRoom", "message": message, "ahead": ahead}


def placed(step: int, **fields: Any) -> Raw:
    progress = {"metric": "loss", "value": 1 / step, "step": step, "totalSteps": 40, **fields}
    nodes = {"nodes": ["node-1"], "nodeSummary": "node-1"}
    return {"phase": "Placed", "reason": "Placed", **nodes, "progress": progress}


@dataclass
class FakeApi:
    """A fake API server with at most one training job.

    `moves`: the conditions of the job and the status of its TrainingPlan, for each read of the job.
    `refusal`: the message of the admission webhook that refuses all jobs; empty if it does not.
    `outages`: how many of the next requests fail.
    `failing`: methods: the next request of each fails. `lost`: it succeeds, but its answer is lost.
    `created`: the uids of the jobs that were created.
    `pods`: the pods of steps by name. `runtime`: the existing ClusterTrainingRuntime, or None.
    `methods`, `bodies`: the methods and the bodies of all requests.
    """

    moves: Sequence[tuple[list[Raw], Raw]]
    refusal: str = ""
    job: Raw | None = None
    outages: int = 0
    failing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    pods: dict[str, Raw] = field(default_factory=dict)
    runtime: Raw | None = None
    methods: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Raw]:
        self.methods.append(method)
        self.bodies.append(body)
        if self.outages or method in self.failing:
            self.outages = max(0, self.outages - 1)
            self.failing = [other for other in self.failing if other != method]
            return 503, {"kind": "Status", "message": "the server is restarting"}
        code, answer = self._respond(method, path, body)
        if method in self.lost:
            self.lost.remove(method)
            return 504, {"kind": "Status", "message": "the answer is lost"}
        return code, answer

    def _respond(self, method: str, path: str, body: Any) -> tuple[int, Raw]:
        absent = 404, {"kind": "Status", "message": "not found"}
        if "/pods/" in path:
            pod = self.pods.get(path.rpartition("/")[2])
            return (200, pod) if pod else absent
        if "clustertrainingruntimes" in path:
            return (200, self.runtime) if self.runtime else absent
        if method == "POST":
            return self._create(body)
        if self.job is None:
            return absent
        if method == "DELETE":
            if (body or {}).get("preconditions", {}).get("uid") != self.job["metadata"]["uid"]:
                return 409, {"kind": "Status", "message": "the UID in the precondition differs"}
            self.job = None
            return 200, {"kind": "Status"}
        conditions, status = self.moves[0]
        if "trainingplans" in path:
            return 200, {"spec": {"job": {"uid": self.job["metadata"]["uid"]}}, "status": status}
        if method == "GET":
            if len(self.moves) > 1:
                self.moves = self.moves[1:]
            self.job["status"] = {"conditions": conditions, "startTime": CREATED}
        elif body["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"]:
            return 409, {"kind": "Status", "message": "the object has been modified"}
        else:
            version = int(self.job["metadata"]["resourceVersion"]) + 1
            patched = {**self.job["metadata"], **body["metadata"]}
            self.job["metadata"] = {**patched, "resourceVersion": str(version)}
        return 200, self.job

    def _create(self, body: Raw) -> tuple[int, Raw]:
        if self.refusal:
            return 400, {"kind": "Status", "message": self.refusal}
        if self.job is not None and self.job["metadata"]["name"] == body["metadata"]["name"]:
            return 409, {"kind": "Status", "reason": "AlreadyExists"}
        number = self.methods.count("POST")
        metadata = {**body["metadata"], "uid": f"uid-{number}", "resourceVersion": "1"}
        metadata["creationTimestamp"] = CREATED
        self.created.append(f"uid-{number}")
        self.job = {**body, "metadata": metadata}
        return 201, self.job


def pod_of_step(name: str, *, attempt: int | None = None, drained: bool = False) -> Raw:
    """Return the pod of a step, as Argo creates it; `attempt`: its number, if it may be retried."""
    node = "run.root.train.executor" + ("" if attempt is None else f"({attempt})")
    run = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "run", "uid": "run-1"}
    conditions = [condition("Ready"), *([condition("DisruptionTarget")] if drained else [])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "annotations": {"workflows.argoproj.io/node-name": node},
            "ownerReferences": [{**run, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"containers": [{"name": "main", "image": "python:3.11-slim"}]},
        "status": {"conditions": conditions},
    }


@contextmanager
def serve(api: FakeApi, folder: Path) -> Iterator[Path]:
    """Serve the fake API server; yield the path of a kubeconfig for it."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length) or "null")
            code, answer = api.answer(self.command, self.path, sent)
            if self.command == "PATCH" and self.headers["Content-Type"] != MERGE:
                code, answer = 415, {"kind": "Status", "message": "unsupported media type"}
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - as http.server calls them

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
                    {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
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

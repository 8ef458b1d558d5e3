"""Reviews over TLS: latency and throughput of kfext's webhooks and of kopf's webhook server.

Both are processes of their own with certificates of a real authority, and answer the same
AdmissionReviews (a PyTorchJob of 11 KB, a pod of 5 KB) with patches that come to the same object,
which is checked first. Latency is at 200 reviews a second, open loop; throughput is the closed loop
of 32 connections. The load comes from a third process, so on two cores the throughput of a fast
server is as much the generator's. Repeats alternate between the servers.

The reviews are made of what the API server answers to a dry run, so defaults, managed fields and
the service account's volume are in them; environment variables pad them to their size.

Not measured: the API server's own share, and new connections (it keeps its open).
"""

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jsonpatch
import orjson
import urllib3

from e2e.bench import report
from e2e.bench.bed import Bench
from e2e.bench.crowd import job_body, pod_body
from e2e.bench.report import quantile, spread, table
from e2e.harness.wait import until
from kfext.names import MANAGED

_SIZES = {"job": 11_000, "pod": 5_000}
_KINDS = {
    "job": ("kubeflow.org", "PyTorchJob", "pytorchjobs"),
    "pod": ("", "Pod", "pods"),
}
_MANY = 100
"""Reviews that differ in uid and name; they are sent in turn."""

Object = dict[str, Any]
_NAMESPACE = "bench-review"
_RATE = 200
_CONNECTIONS = 32
_PATHS = {
    ("kopf", "job"): "/job",
    ("kopf", "pod"): "/pod",
    ("kfext", "job"): "/mutate-job",
    ("kfext", "pod"): "/mutate-pod",
}


def write_bodies(bench: Bench, namespace: str, folder: Path) -> dict[str, Path]:
    """Write the reviews of each kind to a file, one a line; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for kind, size in _SIZES.items():
        stored = _stored(bench, namespace, kind, size)
        lines = [orjson.dumps(_review(kind, stored, namespace, number)) for number in range(_MANY)]
        files[kind] = folder / f"{kind}.jsonl"
        files[kind].write_bytes(b"\n".join(lines))
    return files


def _stored(bench: Bench, namespace: str, kind: str, size: int) -> Object:
    """Return an object as the API server would store it, of about `size` bytes."""
    group, _, plural = _KINDS[kind]
    root = f"/apis/{group}/v1" if group else "/api/v1"
    # Not managed, so that what comes back is the object before kfext's edit.
    path = f"{root}/namespaces/default/{plural}?dryRun=All"
    padding = 0
    while True:
        stored: Object = bench.testbed.api.create(path, _manifest(kind, padding))
        stored["metadata"]["namespace"] = namespace
        if len(orjson.dumps(stored)) >= size:
            return stored
        padding += 1


def _manifest(kind: str, padding: int) -> Object:
    environment = [
        {"name": f"TRAINING_OPTION_{number}", "value": f"--some-flag-of-the-job={number}"}
        for number in range(padding)
    ]
    # Copied, because its two templates are one object.
    manifest: Object = orjson.loads(orjson.dumps(job_body("review", 4, held=False)))
    manifest["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    if kind == "pod":
        owner = {"metadata": {"name": "review", "uid": str(uuid.uuid4())}}
        manifest = pod_body(owner, 1, affinity={})
        del manifest["spec"]["schedulingGates"]
        specs = [manifest["spec"]]
    else:
        manifest["metadata"]["annotations"] = {}
        replicas = manifest["spec"]["pytorchReplicaSpecs"].values()
        specs = [each["template"]["spec"] for each in replicas]
    for spec in specs:
        container = spec["containers"][0]
        spec["containers"] = [{**container, "env": [*container.get("env", []), *environment]}]
    return manifest


def _review(kind: str, stored: Object, namespace: str, number: int) -> Object:
    group, name, plural = _KINDS[kind]
    identity = {"name": f"{stored['metadata']['name']}-{number}"}
    version = {"group": group, "version": "v1"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {**version, "kind": name},
            "resource": {**version, "resource": plural},
            "requestKind": {**version, "kind": name},
            "requestResource": {**version, "resource": plural},
            "name": identity["name"],
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kubeflow:training-operator",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": {**stored, "metadata": {**stored["metadata"], **identity}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


@dataclass(frozen=True, slots=True)
class Server:
    """Where a webhook server answers, and the authority of its certificate."""

    url: str
    authority: Path


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat. Latencies in milliseconds, at the fixed rate; `late` is the generator's own."""

    p50: float
    p99: float
    late: float
    rate: float
    errors: int


def measure(bench: Bench, *, quick: bool) -> str:
    """Return the table."""
    repeats, open_seconds, closed_seconds = (2, 3.0, 2.0) if quick else (5, 10.0, 5.0)
    labels = {"name": _NAMESPACE, "labels": {MANAGED: "true"}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": labels}
    bench.testbed.api.create("/api/v1/namespaces", body)
    bodies = write_bodies(bench, _NAMESPACE, bench.testbed.folder / "reviews")
    runs: dict[tuple[str, str], list[Run]] = {}
    with _kopf(bench) as kopf:
        servers = {"kopf": kopf, "kfext": _ours(bench)}
        for kind, file in bodies.items():
            _same(kind, servers, file.read_bytes().splitlines()[0])
        for _ in range(repeats):
            for (who, kind), path in _PATHS.items():
                server = Server(servers[who].url + path, servers[who].authority)
                run = _run(server, bodies[kind], open_seconds, closed_seconds)
                runs.setdefault((kind, who), []).append(run)
    return table(
        f"Reviews over TLS, {repeats} repeats of {open_seconds:.0f} s + {closed_seconds:.0f} s",
        (
            *("review", "server", f"p50 ms at {_RATE}/s", f"p99 ms at {_RATE}/s"),
            *(f"reviews/s, {_CONNECTIONS} conn.", "errors", "generator late p99 ms"),
        ),
        [_row(kind, who, of) for (kind, who), of in sorted(runs.items(), reverse=True)],
    )


def _row(kind: str, who: str, runs: list[Run]) -> tuple[str, ...]:
    p50, p99 = [run.p50 for run in runs], [run.p99 for run in runs]
    rates = [run.rate for run in runs]
    errors = sum(run.errors for run in runs)

    def judged(target: report.Target, values: list[float], digits: int) -> str:
        verdict = target.judge(median(values)) if who == "kfext" else ""
        return f"{spread(values, digits=digits)} {verdict}".strip()

    return (
        kind,
        who,
        judged(report.REVIEW_P50, p50, 2),
        judged(report.REVIEW_P99, p99, 2),
        judged(report.REVIEW_RATE, rates, 0),
        f"{errors} {report.REVIEW_ERRORS.judge(errors) if who == 'kfext' else ''}".strip(),
        spread([run.late for run in runs]),
    )


def _run(server: Server, bodies: Path, open_seconds: float, closed_seconds: float) -> Run:
    _load(server, bodies, 1.0, "--rate", str(_RATE))  # connections and caches
    steady = _load(server, bodies, open_seconds, "--rate", str(_RATE))
    most = _load(server, bodies, closed_seconds)
    return Run(
        p50=1e3 * quantile(steady["latencies"], 0.5),
        p99=1e3 * quantile(steady["latencies"], 0.99),
        late=1e3 * quantile(steady["lateness"], 0.99),
        rate=most["rate"],
        errors=steady["errors"] + most["errors"],
    )


def _load(server: Server, bodies: Path, seconds: float, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "e2e.bench.load", f"--url={server.url}"),
            *(f"--authority={server.authority}", f"--bodies={bodies}"),
            *(f"--connections={_CONNECTIONS}", f"--seconds={seconds}", *options),
        ],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + 60,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _ours(bench: Bench) -> Server:
    hooks = bench.kube.get(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kfext"
    )
    bundle = bench.testbed.folder / "reviews" / "kfext-ca.crt"
    bench.wait_hooks()  # until then the bundle may not be there
    bundle.write_bytes(base64.b64decode(hooks["webhooks"][0]["clientConfig"]["caBundle"]))
    return Server(bench.reviews_url, bundle)


@contextmanager
def _kopf(bench: Bench) -> Iterator[Server]:
    bed = bench.testbed
    pair = bed.pki.server("kopf", hosts=["localhost", "127.0.0.1"])
    port = bed.new_port()
    process = bed.start_process(
        [
            *(sys.executable, "-m", "e2e.bench.kopf_server", f"--kubeconfig={bed.kubeconfig}"),
            *(f"--port={port}", f"--certificate={pair.certificate}", f"--key={pair.key}"),
        ],
        name="kopf",
    )
    server = Server(f"https://127.0.0.1:{port}", bed.pki.authority.certificate)
    try:
        until(lambda: process.poll() is not None or _listens(server), what="kopf serves")
        yield server
    finally:
        bed.stop_process("kopf")


def _listens(server: Server) -> bool:
    try:
        return bool(_post(server, "/job", b"{}").status)
    except urllib3.exceptions.HTTPError:
        return False


def _same(kind: str, servers: dict[str, Server], review: bytes) -> None:
    """Check that both servers come to the same object. Raises RuntimeError."""
    before = json.loads(review)["request"]["object"]
    after = []
    for who, server in servers.items():
        answer = _post(server, _PATHS[who, kind], review)
        response = answer.json()["response"] if answer.status == 200 else {}
        if not response.get("patch"):
            raise RuntimeError(f"{who} answers a {kind} with {answer.status}: {answer.data!r}")
        after.append(jsonpatch.apply_patch(before, json.loads(base64.b64decode(response["patch"]))))
    if after[0] != after[1]:
        raise RuntimeError(f"the {kind} differs: {jsonpatch.make_patch(*after)}")


def _post(server: Server, path: str, body: bytes) -> Any:
    with urllib3.PoolManager(ca_certs=str(server.authority), retries=False) as pool:
        return pool.request(
            "POST", server.url + path, body=body, headers={"Content-Type": "application/json"}
        )

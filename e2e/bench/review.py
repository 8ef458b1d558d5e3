"""Reviews over TLS: latency and throughput of kfext's webhooks.

The webhook is a process of its own with a certificate of a real CA, and answers
AdmissionReviews (a PyTorchJob of 11 KB, a pod of 5 KB) with patches. Latency is measured open loop,
at 200 reviews a second; throughput closed loop, over 32 connections. The load comes from another
process, so on two cores the generator too limits the throughput of a fast server. Repeats alternate
between the kinds.

The reviews are built from the API server's answers to dry runs, so they have defaults, managed
fields and the service account's volume; environment variables pad them to their size.

Not measured: the API server's own share, and new connections (it keeps its connections open).
"""

import base64
import json
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import urllib3

from e2e.bench import report
from e2e.bench.bed import Bench
from e2e.bench.crowd import job_body, pod_body
from e2e.bench.report import quantile, spread, table
from kfext.names import MANAGED

_SIZES = {"job": 11_000, "pod": 5_000}
_KINDS = {"job": ("kubeflow.org", "PyTorchJob", "pytorchjobs"), "pod": ("", "Pod", "pods")}
_DISTINCT = 100
"""The number of reviews, with different uids and names, that are sent in turn."""

Object = dict[str, Any]
_NAMESPACE = "bench-review"
_RATE = 200
_CONNECTIONS = 32
_PATHS = {"job": "/mutate-job", "pod": "/mutate-pod"}


def write_bodies(bench: Bench, namespace: str, folder: Path) -> dict[str, Path]:
    """Write the reviews of each kind to a file, one per line; return the files by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for kind, size in _SIZES.items():
        stored = _stored(bench, namespace, kind, size)
        lines = [
            orjson.dumps(_review(kind, stored, namespace, number)) for number in range(_DISTINCT)
        ]
        files[kind] = folder / f"{kind}.jsonl"
        files[kind].write_bytes(b"\n".join(lines))
    return files


def _stored(bench: Bench, namespace: str, kind: str, size: int) -> Object:
    """Return an object as the API server would store it, of about `size` bytes."""
    group, _, plural = _KINDS[kind]
    root = f"/apis/{group}/v1" if group else "/api/v1"
    # This namespace is not managed, so that the answer is the object before kfext's edit.
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
    # Copied, because the job's two templates are the same Python object.
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
    """The URL of a webhook server, and a file with the CA certificate of its certificate."""

    url: str
    authority: Path


@dataclass(frozen=True, slots=True)
class Run:
    """A repeat: latencies in ms at the fixed rate, and reviews a second (`rate`) at full load.

    `late`: the p99 of how late the generator itself sent its requests, in ms.
    """

    p50: float
    p99: float
    late: float
    rate: float
    errors: int


def measure(bench: Bench, *, quick: bool) -> str:
    repeats, open_seconds, closed_seconds = (2, 3.0, 2.0) if quick else (5, 10.0, 5.0)
    labels = {"name": _NAMESPACE, "labels": {MANAGED: "true"}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": labels}
    bench.testbed.api.create("/api/v1/namespaces", body)
    bodies = write_bodies(bench, _NAMESPACE, bench.testbed.folder / "reviews")
    url, authority = bench.reviews_url, _authority(bench)
    servers = {kind: Server(url + path, authority) for kind, path in _PATHS.items()}
    for kind, server in servers.items():
        _check(server, kind, bodies[kind].read_bytes().splitlines()[0])
    runs: dict[str, list[Run]] = {}
    for _ in range(repeats):
        for kind, server in servers.items():
            run = _run(server, bodies[kind], open_seconds, closed_seconds)
            runs.setdefault(kind, []).append(run)
    return table(
        f"Reviews over TLS, {repeats} repeats of {open_seconds:.0f} s + {closed_seconds:.0f} s",
        (
            *("review", f"p50 ms at {_RATE}/s", f"p99 ms at {_RATE}/s"),
            *(f"reviews/s, {_CONNECTIONS} conn.", "errors", "generator late p99 ms"),
        ),
        [_row(kind, repeats) for kind, repeats in sorted(runs.items(), reverse=True)],
    )


def _row(kind: str, runs: list[Run]) -> tuple[str, ...]:
    errors = sum(run.errors for run in runs)

    def judged(target: report.Target, values: list[float], digits: int) -> str:
        return f"{spread(values, digits=digits)} {target.judge(median(values))}"

    return (
        kind,
        judged(report.REVIEW_P50, [run.p50 for run in runs], 2),
        judged(report.REVIEW_P99, [run.p99 for run in runs], 2),
        judged(report.REVIEW_RATE, [run.rate for run in runs], 0),
        f"{errors} {report.REVIEW_ERRORS.judge(errors)}",
        spread([run.late for run in runs]),
    )


def _run(server: Server, bodies: Path, open_seconds: float, closed_seconds: float) -> Run:
    _load(server, bodies, 1.0, "--rate", str(_RATE))  # connections and caches
    open_loop = _load(server, bodies, open_seconds, "--rate", str(_RATE))
    closed_loop = _load(server, bodies, closed_seconds)
    return Run(
        p50=1e3 * quantile(open_loop["latencies"], 0.5),
        p99=1e3 * quantile(open_loop["latencies"], 0.99),
        late=1e3 * quantile(open_loop["lateness"], 0.99),
        rate=closed_loop["rate"],
        errors=open_loop["errors"] + closed_loop["errors"],
    )


def _load(server: Server, bodies: Path, seconds: float, *options: str) -> dict[str, Any]:
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "e2e.bench.load", f"--url={server.url}"),
            *(f"--authority={server.authority}", f"--bodies={bodies}"),
            *(f"--connections={_CONNECTIONS}", f"--seconds={seconds}", *options),
        ],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + 60,
    )
    figures: dict[str, Any] = json.loads(completed.stdout)
    return figures


def _authority(bench: Bench) -> Path:
    hooks = bench.kube.get(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kfext"
    )
    bundle = bench.testbed.folder / "reviews" / "kfext-ca.crt"
    bench.wait_webhooks()  # until then the bundle may be missing
    bundle.write_bytes(base64.b64decode(hooks["webhooks"][0]["clientConfig"]["caBundle"]))
    return bundle


def _check(server: Server, kind: str, review: bytes) -> None:
    """Check that a review is answered with a patch. Raises RuntimeError."""
    with urllib3.PoolManager(ca_certs=str(server.authority), retries=False) as pool:
        answer = pool.request(
            "POST", server.url, body=review, headers={"Content-Type": "application/json"}
        )
    if answer.status != 200 or not answer.json()["response"].get("patch"):
        raise RuntimeError(f"a {kind} is answered with {answer.status}: {answer.data!r}")

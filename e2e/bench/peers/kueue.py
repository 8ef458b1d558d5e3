"""Kueue with topology-aware scheduling (TAS), as a process outside the testbed, and its objects.

Only benchmarks need Kueue. `stop` removes its webhooks, so that other arms can run without it. Its
settings are the defaults of its release, except that PyTorchJob and TrainJob are enabled: in Kueue
0.19 PyTorchJob is disabled by default.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml

from e2e.bench.peers.jobs import gang, with_templates
from e2e.testbed import binaries, fakenodes, paths, preflight
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import step
from kfext.names import HOSTNAME, KUEUE_QUEUE

Object = dict[str, Any]
NAMESPACE = "kueue-system"
API = "kueue.x-k8s.io/v1beta2"
QUEUE = "bench"
_FLAVOR = "fake-nodes"
_TOPOLOGY = "hosts"
_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
# The integration `pod` is off, so there is no webhook on pods.
_HOOKS = frozenset(
    {
        *("mpytorchjob.kb.io", "mclusterqueue.kb.io", "mresourceflavor.kb.io", "mworkload.kb.io"),
        *("vpytorchjob.kb.io", "vclusterqueue.kb.io", "vresourceflavor.kb.io", "vworkload.kb.io"),
        *("mtrainjob.kb.io", "vtrainjob.kb.io", "vcohort.kb.io"),
    }
)
_FRAMEWORKS = ["kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob"]
# More than the capacity of the cluster, so that Kueue, like kfext, has to find nodes for the pods.
_QUOTA = {"cpu": "1000000", "memory": "10000Ti", "nvidia.com/gpu": "100000"}
VERSION = "v0.19.2"
_MODULE = Path(__file__).with_name("module")
_READY_SECONDS = 60.0
_PROCESS = "kueue"


def configuration(*, port: int, probe: int, certificates: str, shipped: Object) -> Object:
    """Return the configuration of the process, with the release's limits (`shipped`)."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": certificates},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "controller": shipped["controller"],
        "clientConnection": shipped["clientConnection"],
        "featureGates": {"VisibilityOnDemand": False},  # it would need a certificate of its own
        "integrations": {
            "frameworks": ["kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob"]
        },
    }


def webhooks(shipped: Sequence[Object], *, url: str, ca: str) -> Iterator[Object]:
    """Yield the webhook configurations of the enabled kinds, with `url` in place of a Service."""
    for webhook_configuration in shipped:
        enabled = []
        for hook in webhook_configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            client = {"url": url + path, "caBundle": ca}
            enabled += [{**hook, "clientConfig": client}] if hook["name"] in _HOOKS else []
        name = f"kueue-{webhook_configuration['metadata']['name']}"
        yield {**webhook_configuration, "metadata": {"name": name}, "webhooks": enabled}


def queues(namespace: str) -> Iterator[Object]:
    """Yield a topology with nodes as its only level, and a queue over all fake nodes."""
    yield _object("Topology", _TOPOLOGY, {"levels": [{"nodeLabel": HOSTNAME}]})
    labels = {fakenodes.LABEL: "fake"}
    yield _object("ResourceFlavor", _FLAVOR, {"nodeLabels": labels, "topologyName": _TOPOLOGY})
    resources = [{"name": name, "nominalQuota": amount} for name, amount in _QUOTA.items()]
    group = {
        "coveredResources": list(_QUOTA),
        "flavors": [{"name": _FLAVOR, "resources": resources}],
    }
    yield _object("ClusterQueue", QUEUE, {"namespaceSelector": {}, "resourceGroups": [group]})
    local = _object("LocalQueue", QUEUE, {"clusterQueue": QUEUE})
    local["metadata"]["namespace"] = namespace
    yield local


def with_queue(job: Object) -> Object:
    """Return the job as users of Kueue submit it: with a queue and a preferred topology."""
    near = {"metadata": {"annotations": {_PREFERRED: HOSTNAME}}}
    patched = with_templates(job, lambda template: {**template, **near})
    return {**patched, "metadata": {**job["metadata"], "labels": {KUEUE_QUEUE: QUEUE}}}


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


class Kueue:
    """Kueue on a testbed; `install` once, then `start` and `stop` any number of times.

    Needs root: Kueue reads a certificate from a fixed path under /etc, which is mounted in a
    namespace of its own.
    """

    def __init__(self, testbed: Testbed, *, namespace: str) -> None:
        if os.geteuid() != 0:
            raise preflight.Unavailable(
                "Kueue reads a certificate from a fixed path under /etc, which is mounted in a "
                "namespace of its own: run `python -m e2e.bench peers` as root"
            )
        self._testbed = testbed
        self._namespace = namespace
        self._folder = testbed.folder / "kueue"
        self._port, self._probe = testbed.new_port(), testbed.new_port()
        self._running: subprocess.Popen[bytes] | None = None
        self._hooks: list[Object] = []

    def install(self) -> None:
        """Apply Kueue's definitions to the cluster, and write the files of the process."""
        api = self._testbed.api
        for name in (NAMESPACE, self._namespace):
            api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        definitions = [_documents(file)[0] for file in (_files() / "crd" / "bases").iterdir()]
        for definition in definitions:
            api.apply(definition)
        kinds = {definition["spec"]["names"]["kind"] for definition in definitions}
        # Kueue exits at once if its own kinds are not served.
        self._wait(lambda: kinds <= self._served(), "Kueue's kinds to be served")
        pair = self._testbed.pki.server("kueue", hosts=["127.0.0.1"])
        certificates = self._folder / "etc" / "kueue" / "metrics" / "certs"
        certificates.mkdir(parents=True)
        shutil.copy(pair.certificate, certificates / "tls.crt")
        shutil.copy(pair.key, certificates / "tls.key")
        shipped = _documents(_files() / "manager" / "controller_manager_config.yaml")[0]
        config = configuration(
            port=self._port, probe=self._probe, certificates=str(certificates), shipped=shipped
        )
        (self._folder / "config.yaml").write_text(json.dumps(config))
        ca = self._testbed.pki.authority.certificate.read_bytes()
        self._hooks = list(
            webhooks(
                _documents(_files() / "webhook" / "manifests.yaml"),
                url=f"https://127.0.0.1:{self._port}",
                ca=base64.b64encode(ca).decode(),
            )
        )

    def start(self) -> None:
        """Start the process, register its webhooks, and wait until it suspends a dry-run job."""
        etc, config = self._folder / "etc", self._folder / "config.yaml"
        binary = resolve()
        self._running = self._testbed.start_process(
            [
                *("unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc && shift && exec "$@"'),
                *("sh", str(etc), str(binary), f"--config={config}", "--zap-log-level=2"),
            ],
            name=_PROCESS,
            environment={"KUBECONFIG": str(self._testbed.kubeconfig)},
        )
        for configuration in self._hooks:
            self._testbed.api.apply(configuration)
        for manifest in queues(self._namespace):
            self._wait(lambda: self._testbed.api.apply(manifest), "Kueue's queues")  # noqa: B023
        self._wait(self._ready, "Kueue to be ready")
        self._wait(self._suspends, "Kueue to suspend a job in a dry run")

    def stop(self) -> None:
        for configuration in self._hooks:
            self._testbed.api.delete(self._testbed.api.path(configuration))
        if self._running is not None:
            self._testbed.stop_process(_PROCESS)
            self._running = None

    def _wait(self, condition: Any, what: str) -> None:
        self._testbed.wait_for(condition, what=what, seconds=_READY_SECONDS, needs=(_PROCESS,))

    def _served(self) -> set[str]:
        group, _ = API.split("/")
        if group not in {served["name"] for served in self._testbed.api.get("/apis")["groups"]}:
            return set()
        resources = self._testbed.api.get(f"/apis/{API}")["resources"]
        return {resource["kind"] for resource in resources}

    def _ready(self) -> bool:
        url = f"http://127.0.0.1:{self._probe}/readyz"
        return urllib3.request("GET", url, retries=False, timeout=5).status == 200

    def _suspends(self) -> bool:
        path = f"/apis/kubeflow.org/v1/namespaces/{self._namespace}/pytorchjobs?dryRun=All"
        answer = self._testbed.api.create(path, with_queue(gang("trial", 2)))
        return bool(answer["spec"]["runPolicy"].get("suspend"))


def resolve() -> Path:
    """Return the program; build it if it is missing. Raises Unavailable if that fails."""
    target = _cached() / "kueue"
    if not target.exists():
        with step(f"building kueue {VERSION}", expect="3 minutes"):
            binaries.build(_MODULE, "sigs.k8s.io/kueue/cmd/kueue", target)
    return target


def _files() -> Path:
    """Return a copy of the folder with Kueue's own manifests, made once, beside the program."""
    folder = _cached() / "files"
    if not folder.exists():
        source = (
            binaries.download(_MODULE, f"sigs.k8s.io/kueue@{VERSION}") / "config" / "components"
        )
        unfinished = folder.with_name("files.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for subfolder in ("crd/bases", "manager", "webhook"):
            (unfinished / subfolder).mkdir(parents=True)
            for file in (source / subfolder).glob("*.yaml"):
                # The module cache is read-only; its modes are not copied.
                (unfinished / subfolder / file.name).write_bytes(file.read_bytes())
        unfinished.rename(folder)
    return folder


def _cached() -> Path:
    return paths.cache() / "bin" / f"kueue-{VERSION}"


def _documents(file: Path) -> list[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(file.read_text(), Loader=loader) if document]

"""The training-operator, as a process beside the cluster instead of a Deployment in it.

It has the service account and RBAC rules of its Deployment.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from e2e.testbed import binaries
from e2e.testbed.images import TRAINING_IMAGE
from e2e.testbed.record import remove_empty_file

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

BINARIES = ("training-operator.v1",)
NAMESPACE = "kubeflow"
_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:training-operator"
_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
# With the defaults, 20 requests per second and one worker, creating 400 pods takes 80 s.
_FAST = ["--kube-api-qps=500", "--kube-api-burst=1000", "--controller-threads=8"]
# Before it starts its controllers, the operator waits for this file; in its Deployment it is from a
# mounted Secret. The path is fixed, but the content is not read; see `_write_certificate`.
_AWAITED_FILE = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
# The operator's own template needs the nslookup of an old busybox; this template needs only libc.
_INIT_CONTAINER = """\
- name: init-pytorch
  image: {image}
  imagePullPolicy: IfNotPresent
  resources:
    requests: {{cpu: 10m, memory: 10Mi}}
  command: [sh, -c, 'until getent hosts {{{{.MasterAddr}}}}; do sleep 0.5; done']
"""


def start(testbed: Testbed) -> None:
    """Install the CRDs and start the operator; `wait_ready` waits until it works."""
    for manifest in _manifests():
        testbed.api.apply(manifest)
    folder = testbed.folder / "operator"
    _write_certificate(testbed, folder / "tmp" / "k8s-webhook-server" / "serving-certs")
    template = folder / "init-container.yaml"
    template.write_text(_INIT_CONTAINER.format(image=TRAINING_IMAGE))
    kubeconfig = testbed.pki.kubeconfig(
        testbed.folder / "kubeconfigs" / "training-operator.yaml",
        server=testbed.server,
        user=_ACCOUNT,
        groups=_GROUPS,
    )
    testbed.record.add("empty-file", str(_AWAITED_FILE))
    _make_awaited_file()
    health = testbed.new_port()
    (folder / "health-port").write_text(str(health))
    testbed.start_process(
        [
            str(testbed.binary("training-operator.v1")),
            "--enable-scheme=pytorchjob",
            "--enable-scheme=tfjob",
            f"--kubeconfig={kubeconfig}",
            f"--pytorch-init-container-template-file={template}",
            f"--webhook-server-port={testbed.new_port()}",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            "--metrics-bind-address=0",
            "--zap-log-level=info",
            *(_FAST if testbed.fast else []),
        ],
        name="training-operator",
        environment={"TMPDIR": str(folder / "tmp")},
    )


def wait_ready(testbed: Testbed) -> None:
    """Wait until the operator's controllers run."""
    port = (testbed.folder / "operator" / "health-port").read_text()
    url = f"http://127.0.0.1:{port}/readyz"

    def ready() -> bool:
        _make_awaited_file()
        return urllib3.request("GET", url, retries=False).status == 200

    testbed.wait_for(
        ready,
        what="the training-operator to be ready",
        needs=("training-operator",),
    )
    remove_empty_file(str(_AWAITED_FILE))


def _make_awaited_file() -> None:
    """Make the awaited file and its folders; another testbed may remove them at any time."""
    while not _AWAITED_FILE.exists():
        with suppress(FileNotFoundError, FileExistsError):
            _AWAITED_FILE.parent.mkdir(parents=True, exist_ok=True)
            _AWAITED_FILE.touch()


def _write_certificate(testbed: Testbed, folder: Path) -> None:
    """Write any certificate where the operator will read one; no webhook is registered."""
    folder.mkdir(parents=True)
    pair = testbed.pki.server("training-operator", hosts=[f"training-operator.{NAMESPACE}.svc"])
    shutil.copy(pair.certificate, folder / "tls.crt")
    shutil.copy(pair.key, folder / "tls.key")


def _manifests() -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    # The operator fills this Secret, but does not create it.
    name = {"name": "training-operator-webhook-cert", "namespace": NAMESPACE}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": name}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the CRDs are over a megabyte
    for path in binaries.operator_manifests():
        for manifest in yaml.load_all(path.read_text(), Loader=loader):
            if manifest is None:
                continue
            if manifest["kind"] == "ServiceAccount":
                manifest["metadata"]["namespace"] = NAMESPACE
            for subject in manifest.get("subjects", []):
                subject["namespace"] = NAMESPACE
            yield manifest

"""The training-operator, as a process beside the cluster instead of a Deployment in it.

It has the identity and the RBAC rules that its Deployment would have.
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
# With the defaults, 20 requests a second and one worker, 400 pods take 80 s.
_FAST = ["--kube-api-qps=500", "--kube-api-burst=1000", "--controller-threads=8"]
# The operator waits for this file before it starts its controllers; in its Deployment a mounted
# Secret has it. The path is fixed; its content is not read, see _write_certificate.
_GATE = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
# The operator's own template needs nslookup of an old busybox; this template needs only libc.
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
    testbed.record.add("empty-file", str(_GATE))
    _open_gate()
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
        _open_gate()
        return urllib3.request("GET", url, retries=False).status == 200

    testbed.wait_for(
        ready,
        what="the training-operator to be ready",
        needs=("training-operator",),
    )
    remove_empty_file(str(_GATE))


def _open_gate() -> None:
    """Make the file if it is missing: another testbed may just have removed it.

    That testbed may also remove the folders between the two calls; then both are made again.
    """
    while not _GATE.exists():
        with suppress(FileNotFoundError, FileExistsError):
            _GATE.parent.mkdir(parents=True, exist_ok=True)
            _GATE.touch()


def _write_certificate(testbed: Testbed, folder: Path) -> None:
    """Write a certificate where the operator's webhook server reads it, before it starts.

    It must be complete when the operator reads it. Any pair works: no webhook is registered.
    """
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

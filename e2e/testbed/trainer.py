"""Kubeflow Trainer and JobSet, as processes beside the cluster, started on demand.

Both run as an administrator. Their webhooks are registered: only JobSet's set the defaults of its
objects, and only Trainer's decide which changes of a TrainJob are accepted.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from e2e.testbed import binaries
from e2e.testbed.progress import Planned, step

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

TRAINER, JOBSET = "trainer-controller-manager", "jobset"
BINARIES = (TRAINER, JOBSET)
START = Planned("start Kubeflow Trainer, for TrainJobs", 10)
RUNTIME = "torch-distributed"
_ADMINISTRATORS = ("system:masters",)
_CONFIGURATION = {
    TRAINER: {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "certManagement": {"enable": False},
    },
    JOBSET: {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "internalCertManagement": {"enable": False},
    },
}
_NAMED = {TRAINER: "trainer.kubeflow.org", JOBSET: "jobset"}
"""Suffixes of the names of their webhook configurations, in their own installations."""
_PREFIXES = {
    "MutatingWebhookConfiguration": "defaulter",
    "ValidatingWebhookConfiguration": "validator",
}


def start(testbed: Testbed) -> None:
    """Install the CRDs, start both, and return once a TrainJob of the torch runtime is accepted."""
    with step(START):
        _start_both(testbed)


def _start_both(testbed: Testbed) -> None:
    of_jobset, of_trainer = binaries.jobset_manifests(), binaries.trainer_manifests()
    *crds, runtime = [path for path in of_trainer if path.name != "manifests.yaml"]
    served = list(_read([*of_jobset[:1], *crds]))
    for manifest in served:
        testbed.api.apply(manifest)
    testbed.wait_for(
        lambda: all(_is_served(testbed, manifest) for manifest in served),
        what="the APIs of Trainer and JobSet to be served",
    )
    for name, files in ((JOBSET, of_jobset), (TRAINER, of_trainer)):
        (hooks,) = (path for path in files if path.name == "manifests.yaml")
        _start(testbed, name, hooks)

    def accepted() -> bool:
        for manifest in _read([runtime]):
            testbed.api.apply(manifest)
        return True

    testbed.wait_for(accepted, what="Trainer to answer", needs=(TRAINER, JOBSET))


def stop(testbed: Testbed) -> None:
    """End both, and unregister their webhooks, which would now refuse all objects."""
    for name, files in (
        (TRAINER, binaries.trainer_manifests()),
        (JOBSET, binaries.jobset_manifests()),
    ):
        for manifest in _hooks(testbed, name, files, port=0):
            testbed.api.delete(testbed.api.path(manifest))
        testbed.stop_process(name)


def _is_served(testbed: Testbed, crd: dict[str, Any]) -> bool:
    """Say whether the API server lists objects of a kind."""
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    testbed.api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
    return True


def _start(testbed: Testbed, name: str, hooks: Path) -> None:
    """Start one of the two, wait until its webhooks serve, and register them."""
    folder = testbed.folder / name
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True, exist_ok=True)  # a testbed may outlive a run
    pair = testbed.pki.server(name, hosts=["127.0.0.1"])
    shutil.copy(pair.certificate, certificates / "tls.crt")
    shutil.copy(pair.key, certificates / "tls.key")
    port, health = testbed.new_port(), testbed.new_port()
    configuration = {
        **_CONFIGURATION[name],
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port},
        "leaderElection": {"leaderElect": False},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration))
    kubeconfig = testbed.pki.kubeconfig(
        testbed.folder / "kubeconfigs" / f"{name}.yaml",
        server=testbed.server,
        user=name,
        groups=_ADMINISTRATORS,
    )
    started = testbed.start_process(
        [
            str(testbed.binary(name)),
            f"--config={folder / 'config.yaml'}",
            f"--kubeconfig={kubeconfig}",
        ],
        name=name,
        environment={"TMPDIR": str(folder)},
    )

    def ready() -> bool:
        nonlocal started
        if started.poll() is not None:
            # It exits if discovery does not show its kinds yet; a kubelet would start it again.
            started = testbed.restart_process(name)
        url = f"http://127.0.0.1:{health}/readyz"
        return urllib3.request("GET", url, retries=False).status == 200

    testbed.wait_for(ready, what=f"{name} to be ready")
    for manifest in _hooks(testbed, name, [hooks], port=port):
        testbed.api.apply(manifest)


def _hooks(
    testbed: Testbed, name: str, files: Sequence[Path], *, port: int
) -> Iterator[dict[str, Any]]:
    """Yield its webhook configurations with URLs of this machine."""
    authority = base64.b64encode(testbed.pki.authority.certificate.read_bytes()).decode()
    for manifest in _read([path for path in files if path.name == "manifests.yaml"]):
        manifest["metadata"]["name"] = f"{_PREFIXES[manifest['kind']]}.{_NAMED[name]}"
        for hook in manifest["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        yield manifest


def _read(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the CRDs are over a megabyte
    for path in files:
        yield from filter(None, yaml.load_all(path.read_text(), Loader=loader))

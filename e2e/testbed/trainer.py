"""Kubeflow Trainer and JobSet, as processes beside the cluster, started on demand.

Both run as an administrator. Their webhooks are registered: only JobSet's webhooks set the defaults
of JobSets, and only Trainer's webhooks decide which changes of a TrainJob are accepted.
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
_HOOK_SUFFIXES = {TRAINER: "trainer.kubeflow.org", JOBSET: "jobset"}
"""The suffixes of the names that their installations give to the webhook configurations."""
_PREFIXES = {
    "MutatingWebhookConfiguration": "defaulter",
    "ValidatingWebhookConfiguration": "validator",
}


def start(testbed: Testbed) -> None:
    """Install the CRDs, start both, and return once Trainer accepts the torch runtime."""
    with step(START):
        _start_both(testbed)


def _start_both(testbed: Testbed) -> None:
    jobset_files, trainer_files = binaries.jobset_manifests(), binaries.trainer_manifests()
    *crds, runtime = [path for path in trainer_files if path.name != "manifests.yaml"]
    served = list(_read([*jobset_files[:1], *crds]))
    for manifest in served:
        testbed.api.apply(manifest)
    testbed.wait_for(
        lambda: all(_is_served(testbed, manifest) for manifest in served),
        what="the APIs of Trainer and JobSet to be served",
    )
    for name, files in ((JOBSET, jobset_files), (TRAINER, trainer_files)):
        (hooks,) = (path for path in files if path.name == "manifests.yaml")
        _start(testbed, name, hooks)

    def runtime_accepted() -> bool:
        for manifest in _read([runtime]):
            testbed.api.apply(manifest)
        return True

    testbed.wait_for(runtime_accepted, what="Trainer to answer", needs=(TRAINER, JOBSET))


def stop(testbed: Testbed) -> None:
    """End both, and unregister their webhooks, which would otherwise refuse all objects."""
    for name, files in (
        (TRAINER, binaries.trainer_manifests()),
        (JOBSET, binaries.jobset_manifests()),
    ):
        for manifest in _hooks(testbed, name, files, port=0):
            testbed.api.delete(testbed.api.path(manifest))
        testbed.stop_process(name)


def _is_served(testbed: Testbed, crd: dict[str, Any]) -> bool:
    """Return True if the API server lists objects of a kind, else raise ApiError."""
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    testbed.api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
    return True


def _start(testbed: Testbed, name: str, hooks: Path) -> None:
    """Start Trainer or JobSet, wait until its webhooks serve, and register them."""
    folder = testbed.folder / name
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True, exist_ok=True)  # an earlier start may have made it
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
            # It exits if discovery does not show its kinds yet; kubelet would restart it.
            started = testbed.restart_process(name)
        url = f"http://127.0.0.1:{health}/readyz"
        return urllib3.request("GET", url, retries=False).status == 200

    testbed.wait_for(ready, what=f"{name} to be ready")
    for manifest in _hooks(testbed, name, [hooks], port=port):
        testbed.api.apply(manifest)


def _hooks(
    testbed: Testbed, name: str, files: Sequence[Path], *, port: int
) -> Iterator[dict[str, Any]]:
    """Yield the webhook configurations of Trainer or JobSet with URLs on this machine."""
    authority = base64.b64encode(testbed.pki.authority.certificate.read_bytes()).decode()
    for manifest in _read([path for path in files if path.name == "manifests.yaml"]):
        manifest["metadata"]["name"] = f"{_PREFIXES[manifest['kind']]}.{_HOOK_SUFFIXES[name]}"
        for hook in manifest["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        yield manifest


def _read(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the CRDs are over a megabyte
    for path in files:
        yield from filter(None, yaml.load_all(path.read_text(), Loader=loader))

"""The installation of kfext: its manifests, object by object, or by kubectl as admins do."""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from e2e.testbed.cluster import NotReadyError, Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.progress import Planned, step
from kfext.names import LEASE, NAMESPACE, WEBHOOK_CONFIGURATION

_OVERLAY = REPOSITORY / "manifests" / "overlays" / "testbed"
_TIMEOUT = "180s"
INSTALL = Planned("install kfext: kubectl apply --server-side -k manifests/overlays/testbed", 15)


def manifests() -> Iterator[dict[str, Any]]:
    """Yield the objects of `kubectl apply -k`, except the Deployments and the webhooks."""
    yield from read("base/namespace.yaml")
    yield from crds(REPOSITORY)
    yield from roles(REPOSITORY)
    yield from protection()


def crds(version: Path) -> Iterator[dict[str, Any]]:
    """Yield the CRDs of a version of kfext. `version`: the folder with its code."""
    for path in sorted((version / "crds").glob("kfext.dev_*.yaml")):
        yield from read(f"../crds/{path.name}", version)


def roles(version: Path) -> Iterator[dict[str, Any]]:
    """Yield the service accounts, the roles and the components of a version."""
    for part in ("controller/rbac", "webhook/rbac", "users/roles"):
        yield from read(f"base/{part}.yaml", version)
    (overlay,) = read("overlays/default/kustomization.yaml", version)
    for path in overlay.get("components", ()):
        yield from component(Path(path).name, version)


def component(name: str, version: Path = REPOSITORY) -> Iterator[dict[str, Any]]:
    """Yield the objects in the files of a component."""
    (content,) = read(f"components/{name}/kustomization.yaml", version)
    for file in content["resources"]:
        yield from read(f"components/{name}/{file}", version)


def protection(version: Path = REPOSITORY) -> Iterator[dict[str, Any]]:
    """Yield the policy that protects kfext's marks, and its binding."""
    for part in ("policy", "binding"):
        yield from read(f"base/marks/{part}.yaml", version)


def read(path: str, version: Path = REPOSITORY) -> list[dict[str, Any]]:
    """Return the objects of a file in manifests/."""
    text = (version / "manifests" / path).read_text()
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def plain_kubeconfig(path: Path, server: str) -> Path:
    """Write a kubeconfig without credentials: the proxy has them."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anonymous"}}],
        "current-context": "proxy",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    os.chmod(path, 0o600)
    return path


def kubectl(bed: Testbed, *arguments: str, given: str = "") -> str:
    """Run kubectl as the testbed's administrator, with `given` as input; return its output."""
    completed = subprocess.run(
        [str(bed.binary("kubectl")), *arguments],
        env={**os.environ, "KUBECONFIG": str(bed.kubeconfig)},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)} failed: {completed.stderr.strip()}")
    return completed.stdout


def install_kfext(bed: Testbed) -> None:
    """Apply the overlay that changes only the image, and wait until kfext works."""
    with step(INSTALL):
        kubectl(bed, "apply", "--server-side", "-k", str(_OVERLAY))
        wait_installed(bed)


def wait_installed(bed: Testbed) -> None:
    """Wait until all of kfext's pods are ready, a controller leads, and the webhooks have a CA."""
    for deployment in ("kfext-webhook", "kfext-controller"):
        try:
            bed.wait_for(
                partial(_available, bed, deployment),
                what=f"deployment {deployment}",
            )
        except NotReadyError as error:
            logs = kubectl(bed, "logs", "-n", NAMESPACE, f"deployment/{deployment}", "--tail=20")
            raise NotReadyError(f"{error}; its log:\n{logs}") from error
    bed.wait_for(lambda: bool(lease_holder(bed)), what="the Lease")
    bed.wait_for(lambda: _have_ca(bed), what="the webhook's CA")


def scale(bed: Testbed, deployment: str, replicas: int) -> None:
    """Scale a Deployment of kfext, and wait until it has that many pods."""
    namespace = ("-n", NAMESPACE)
    kubectl(bed, "scale", "deployment", deployment, *namespace, f"--replicas={replicas}")
    kubectl(bed, "rollout", "status", "deployment", deployment, *namespace, f"--timeout={_TIMEOUT}")
    if not replicas:
        label = f"app.kubernetes.io/component={deployment.removeprefix('kfext-')}"
        kubectl(
            bed, "wait", "pod", *namespace, "-l", label, "--for=delete", f"--timeout={_TIMEOUT}"
        )


def uninstall_kfext(bed: Testbed) -> None:
    """Delete all objects of the overlay, and wait until they are gone."""
    kubectl(bed, "delete", "--ignore-not-found", f"--timeout={_TIMEOUT}", "-k", str(_OVERLAY))


def create_namespace(bed: Testbed, name: str, *, managed: bool) -> None:
    """Create a namespace. `managed`: whether kfext handles its jobs."""
    kubectl(bed, "create", "namespace", name)
    if managed:
        kubectl(bed, "label", "namespace", name, "kfext.dev/managed=true")


def _available(bed: Testbed, name: str) -> bool:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
    deployment = bed.api.get(path)
    wanted = deployment["spec"]["replicas"]
    return bool(deployment.get("status", {}).get("readyReplicas", 0) >= wanted)


def lease_holder(bed: Testbed) -> str:
    """Return the identity of the controller that leads; empty if none leads."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
    return str(bed.api.get(path)["spec"].get("holderIdentity") or "")


def _have_ca(bed: Testbed) -> bool:
    path = (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
        f"{WEBHOOK_CONFIGURATION}"
    )
    hooks = bed.api.get(path)["webhooks"]
    return all(hook["clientConfig"].get("caBundle") for hook in hooks)

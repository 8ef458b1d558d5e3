"""Installs another version of kfext from the git history, and upgrades as on a cluster."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from e2e.harness.install import component, crds, protection, roles
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.processes import WebhookProcess
from e2e.harness.reviews import running_reviews
from e2e.harness.wait import until
from e2e.testbed.paths import REPOSITORY
from kfext import names

RELEASED_0_3 = "8efab36132b60df7a4e3e3aecefaab86cb9daac6"
"""The commit of version 0.3, the only version that docs/upgrade.md describes upgrades from."""
_PARTS = ("kfext", "manifests", "crds", "pyproject.toml", "README.md", "LICENSE")
_COMPONENTS = ("pod-resize", "gpu-sharing")
"""The components that the upgrade cases need, and that the default overlay lacks."""
_SECRET = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.CA_SECRET}"
_HOOKS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    f"/{names.WEBHOOK_CONFIGURATION}"
)
_DRAIN_SECONDS = 3


def unpack_0_3(folder: Path) -> Path:
    """Unpack version 0.3 from this repository's history; return its folder."""
    packing = ["git", "archive", RELEASED_0_3, *_PARTS]
    packed = subprocess.run(packing, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    (folder / "0.3").mkdir()
    # Not with `tarfile`: its filter argument is missing in Debian's 3.11.2, and required later.
    subprocess.run(["tar", "--extract", "--directory", folder / "0.3"], input=packed, check=True)
    return folder / "0.3"


def install(kfext: Kfext, version: Path) -> tuple[WebhookProcess, WebhookProcess]:
    """Install a version in place of the present version; return the replicas of the webhook."""
    kfext.remove_everything()
    kfext.kube.delete(_SECRET)
    apply_manifests(kfext, version)
    kfext.ensure()
    return kfext.start_webhooks(drain_seconds=_DRAIN_SECONDS)


def apply_manifests(kfext: Kfext, version: Path) -> None:
    """Apply a version as `kubectl apply -k`, which removes nothing; new processes run its code."""
    parts = (crds(version), roles(version), protection(version), _components(version))
    for manifest in chain.from_iterable(parts):
        kfext.testbed.api.apply(manifest)
    kfext.environment = {"PYTHONPATH": str(version)}
    print_path = [sys.executable, "-P", "-c", "import kfext; print(kfext.__file__)"]
    env = {**os.environ, **kfext.environment}
    code = subprocess.run(print_path, env=env, capture_output=True, text=True, check=True).stdout
    assert Path(code).is_relative_to(version), "the processes would run other code"


def _components(version: Path) -> Iterator[Object]:
    """Yield the objects of the components without the agent, which fake nodes cannot run."""
    for name in _COMPONENTS:
        yield from (each for each in component(name, version) if each["kind"] != "DaemonSet")


def restore(kfext: Kfext) -> None:
    """Install this version again, and delete the objects of the components."""
    install(kfext, REPOSITORY)
    api = kfext.testbed.api
    for manifest in list(_components(REPOSITORY))[::-1]:
        api.delete(api.path(manifest))
    space = f"/api/v1/namespaces/{names.GPU_NAMESPACE}"
    until(lambda: kfext.kube.find(space) is None, what=f"{names.GPU_NAMESPACE} is gone")


def replace(kfext: Kfext, replica: WebhookProcess) -> None:
    """Replace a replica of the webhook by another version, as a Deployment does."""
    with running_reviews(kfext) as reviews:
        assert replica.stop() == 0
        reviews.wait_more()
        replica.start(drain_seconds=_DRAIN_SECONDS, environment=kfext.environment)
        reviews.wait_more()
    assert reviews.outcomes.keys() == {"held"}
    assert reviews.failed_open == 0


def hand_over(kfext: Kfext) -> None:
    """Replace the controller by a standby of another version, ready before the old process ends."""
    kfext.standby.stop()
    standby = kfext.start_standby()
    kfext.stop_controller()
    kfext.wait_leading(standby)


def trusted(kfext: Kfext) -> tuple[bytes, set[str]]:
    """Return kfext's CA certificate, and the CA bundles of the webhooks."""
    ca = base64.b64decode(kfext.kube.get(_SECRET)["data"]["tls.crt"])
    hooks = kfext.kube.get(_HOOKS)["webhooks"]
    return ca, {hook["clientConfig"]["caBundle"] for hook in hooks}

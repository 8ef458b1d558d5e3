"""A true API server accepts the manifests in a dry run, without a warning."""

import subprocess
from pathlib import Path

import pytest

from e2e.testbed.cluster import Testbed
from kfext.names import NAMESPACE, NEW_NODES_NAMESPACE

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


@pytest.mark.parametrize("overlay", ["default", "testbed"])
def test_the_api_server_accepts_every_object_of_the_install_without_a_warning(
    testbed: Testbed, overlay: str
) -> None:
    # A dry run creates no namespace for the objects inside it. The restricted Pod Security of
    # the manifest matters for its warnings: a Deployment that violates it causes a warning.
    restricted = {"pod-security.kubernetes.io/warn": "restricted"}
    for name in (NAMESPACE, NEW_NODES_NAMESPACE):
        metadata = {"name": name, "labels": restricted}
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    command = [str(testbed.binary("kubectl")), "--kubeconfig", str(testbed.kubeconfig)]
    command += ["apply", "--server-side", "--dry-run=server", "--force-conflicts"]
    folder = MANIFESTS / "overlays" / overlay
    done = subprocess.run(
        [*command, "-k", str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("deployment.apps/kfext-webhook", "deployment.apps/kfext-controller"):
        assert line in done.stdout
    assert "mutatingwebhookconfiguration.admissionregistration.k8s.io/kfext " in done.stdout

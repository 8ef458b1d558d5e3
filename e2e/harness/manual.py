"""The commands of the pages for administrators, and a shell that runs them."""

import os
import subprocess
from pathlib import Path

from e2e.harness.kube import Kube, Object
from e2e.harness.processes import COMMAND
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from kfext import names

PAGES = ("install", "upgrade", "certificates", "remove")


def commands(section: str) -> list[str]:
    """Return the shell commands in the section with this title, in order."""
    pages = ((REPOSITORY / "docs" / f"{page}.md").read_text() for page in PAGES)
    (text,) = (page for page in pages if f"\n## {section}\n" in page)
    body = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    blocks = body.split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```", 1)[0].splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def left_behind(kube: Kube) -> list[str]:
    """Return the names of kfext's cluster-scoped objects that still exist."""
    kinds = {
        "/api/v1": ["namespaces"],
        "/apis/rbac.authorization.k8s.io/v1": ["clusterroles", "clusterrolebindings"],
        "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
        "/apis/admissionregistration.k8s.io/v1": [
            *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ],
    }
    objects: list[Object] = []
    for root, plurals in kinds.items():
        for plural in plurals:
            objects += kube.items(f"{root}/{plural}")
    present = [each["metadata"]["name"] for each in objects]
    fixed = ("kfext-system", "kfext-controller", "kfext-webhook", "kfext-view", "kfext-edit")
    return [
        name
        for name in present
        if name in {*fixed, "kfext", "kfext-policy-edit", names.MARKS_POLICY}
        or name.endswith(".kfext.dev")
    ]


class Shell:
    """A shell in a folder with links to the manifests, with kubectl and its kfext plugin on PATH.

    `source`: the folder with the manifests. `command`: the `kfext` command beside the plugin.
    """

    def __init__(
        self,
        testbed: Testbed,
        folder: Path,
        *,
        source: Path = REPOSITORY,
        command: Path = COMMAND,
    ) -> None:
        self._folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "kubectl").symlink_to(testbed.binary("kubectl"))
        (folder / "bin" / "kubectl-kfext").symlink_to(command.with_name("kubectl-kfext"))
        for name in ("manifests", "crds"):
            (folder / name).symlink_to(source / name)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(testbed.kubeconfig), "PATH": path}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

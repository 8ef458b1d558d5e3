"""A user with all permissions in one namespace, and none elsewhere."""

import json
import os
import subprocess
from itertools import count
from pathlib import Path

from e2e.harness.jobs import workers
from e2e.harness.kube import Answer, Kube, Object
from e2e.harness.processes import COMMAND
from e2e.harness.space import Space
from e2e.harness.wait import until
from kfext import names

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"
_ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
MERGE = "application/merge-patch+json"
Done = subprocess.CompletedProcess[str]


class Tenant:
    """A user of the API server with a Role that allows everything in a namespace."""

    def __init__(self, space: Space, folder: Path) -> None:
        testbed = space.kfext.testbed
        self.space, self.name = space, f"tenant-of-{space.name}"
        self.kube = Kube(testbed, testbed.pki.client(self.name))
        self.config = testbed.pki.kubeconfig(
            folder / "kubeconfig.yaml", server=testbed.server, user=self.name
        )
        self._folder = folder
        self._kubectl = testbed.binary("kubectl")
        roles = f"{_RBAC}/namespaces/{space.name}/roles"
        space.kube.create(roles, {"metadata": {"name": "all"}, "rules": [_ALL]})
        self.bind("Role", "all", namespace=space.name)
        path = space.path("pytorchjobs")
        until(lambda: self.kube.ask("GET", path).ok, what="the tenant has its permissions")

    def bind(self, kind: str, role: str, *, namespace: str = "") -> str:
        """Bind a role to this user, by default cluster-wide; return the API path of the binding."""
        plural = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        name = f"{self.name}-{role}"
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
            "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": self.name}],
        }
        self.space.kube.create(f"{_RBAC}/{plural}", body)
        return f"{_RBAC}/{plural}/{name}"

    def write(self, job: str, mark: str, value: str | None) -> Answer:
        """Write an annotation of a PyTorchJob, or remove it; return the API server's answer."""
        body = {"metadata": {"annotations": {mark: value}}}
        return self.kube.ask("PATCH", self.space.path("pytorchjobs", job), body, kind=MERGE)

    def kubectl(self, *arguments: str, given: Object | None = None, editor: str = "") -> Done:
        """Run kubectl in the namespace. `given`: the object in the file that FILE stands for."""
        file = self._folder / "given.json"
        file.write_text(json.dumps(given))
        resolved = [str(file) if argument == "FILE" else argument for argument in arguments]
        return self._run(str(self._kubectl), "-n", self.space.name, *resolved, editor=editor)

    def kfext(self, command: str, *arguments: str, as_administrator: bool = False) -> Done:
        """Run a command of the kfext plugin in the namespace."""
        config = self.space.kfext.testbed.kubeconfig if as_administrator else self.config
        options = ("-n", self.space.name, f"--kubeconfig={config}")
        return self._run(str(COMMAND), command, *options, *arguments)

    def _run(self, *command: str, editor: str = "") -> Done:
        return subprocess.run(
            command,
            env={**os.environ, "KUBECONFIG": str(self.config), "KUBE_EDITOR": editor},
            capture_output=True,
            text=True,
            check=False,
        )


def protected(space: Space, folder: Path) -> Tenant:
    """Return the tenant of a namespace once the API server protects kfext's marks there."""
    tenant = Tenant(space, folder)
    off = {names.COLOCATION: "off"}
    space.submit(workers("probe", 1, each={"cpu": "1"}, annotations=off))
    # A new value each time: the policy lets any user write the present value again.
    values = count()
    space.until(
        lambda: not tenant.write("probe", names.PLAN, str(next(values))).ok, "the policy holds"
    )
    space.kube.delete(space.path("pytorchjobs", "probe"))
    return tenant

"""What tenants try who may do everything in their own namespace, and nothing elsewhere."""

from pathlib import Path

from e2e.harness.jobs import jobs_path
from e2e.harness.kube import Kube, Object
from e2e.harness.space import Space
from e2e.harness.tenant import Tenant
from e2e.harness.wait import until
from e2e.soak import forgeries
from e2e.soak.asking import Asking, pods_path
from e2e.soak.facts import PLAN

_PROTECTED = "only kfext may add or change"
_MERGE = "application/merge-patch+json"


class Tenants(Asking):
    """One method per action, each by the tenant of the namespace. `wrong`: what they must not."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self._of: dict[str, Kube] = {}
        self.wrong: list[str] = []

    def move_in(self, spaces: list[Space], folder: Path) -> None:
        """Give each namespace a tenant, and wait until the policy that protects marks holds."""
        for space in spaces:
            own = folder / space.name
            own.mkdir(parents=True, exist_ok=True)
            self._of[space.name] = Tenant(space, own).kube
        name = spaces[0].name
        probe = forgeries.job("probe", "paused")
        self._ask("POST", jobs_path(name, probe["kind"]), probe)
        path = jobs_path(name, probe["kind"], "probe")
        body = {"metadata": {"annotations": {PLAN: "{}"}}}
        until(
            lambda: self._of[name].ask("PATCH", path, body, kind=_MERGE).status == 403,
            what="the policy that protects the marks holds",
        )
        self._ask("DELETE", path)

    def forge(self, namespace: str, kind: str, name: str, mark: str, node: str) -> None:
        """Write a mark on a job that is there: that is refused, always."""
        job = self._kube.find(jobs_path(namespace, kind, name))
        if job is None:
            return
        body = {"metadata": {"annotations": {mark: forgeries.mark(mark, job, [node])}}}
        path = jobs_path(namespace, kind, name)
        answer = self._of[namespace].ask("PATCH", path, body, kind=_MERGE)
        refused = answer.status == 403 and _PROTECTED in answer.message
        self.took["forge"] += refused
        if not refused and answer.status != 404:
            self.wrong.append(
                f"[forged] a tenant wrote {mark} on {namespace}/{name}: "
                f"{answer.status} {answer.message}"
            )

    def submit_forged(self, namespace: str, manifest: Object) -> None:
        answer = self._of[namespace].ask("POST", jobs_path(namespace, manifest["kind"]), manifest)
        self.took["submit_forged"] += self._expect(answer, manifest["metadata"]["name"])

    def drop_forged(self, namespace: str, kind: str, name: str) -> None:
        self._ask("DELETE", jobs_path(namespace, kind, name))

    def plant(self, namespace: str, kind: str, name: str, nodes: list[str]) -> None:
        """Leave a plan on a job that kfext must not place, as from before there was a policy."""
        path = jobs_path(namespace, kind, name)
        job = self._kube.find(path)
        if job is not None:
            plan = forgeries.mark(PLAN, job, nodes)
            body = {"metadata": {"annotations": {PLAN: plan}}}
            self.took["plant"] += self._patch(path, body)

    def stray(self, namespace: str, name: str, victim: tuple[str, str, str]) -> None:
        """Have a pod name a job of another namespace as its owner, and not want to go."""
        there, kind, job = victim
        owner = self._kube.find(jobs_path(there, kind, job))
        if owner is not None:
            pod = forgeries.stray(name, owner)
            answer = self._of[namespace].ask("POST", pods_path(namespace), pod)
            self.took["stray"] += self._expect(answer, name)

    def drop_stray(self, namespace: str, name: str) -> None:
        self._patch(pods_path(namespace, name), {"metadata": {"finalizers": None}})
        self._ask("DELETE", pods_path(namespace, name))

"""kfext as local processes beside the testbed, installed from the project's own manifests.

A `Trial` submits objects as a dry run, and tells what the webhooks would do with them.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from e2e.harness.faults import Exchange, Match
from e2e.harness.install import manifests, read
from e2e.harness.jobs import workers
from e2e.harness.kube import Kube
from e2e.harness.processes import COMMAND, Balancer, ControllerProcess, WebhookProcess
from e2e.harness.proxy import Proxy
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names

NAMESPACE = "kfext-probe"
__all__ = ["COMMAND", "Kfext"]
_SYSTEM = names.NAMESPACE
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{_SYSTEM}/leases/{names.LEASE}"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_HOOKS = {
    "configuration": f"{_CONFIGURATIONS}/{names.WEBHOOK_CONFIGURATION}",
    "trainjobs": f"{_CONFIGURATIONS}/{names.FIRST_WEBHOOKS}",
}
"""File in manifests/base/webhook -> the API path of its webhook configuration."""
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10
_DEAD_URL = "https://127.0.0.1:1/"  # nothing listens there


class Trial:
    """A managed namespace in which nothing is ever stored."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self) -> None:
        labels = {names.MANAGED: "true"}
        metadata = {"name": NAMESPACE, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._kube.create("/api/v1/namespaces", body)

    def job(self) -> str:
        """Submit a job as a dry run; return untouched, seen (changed but not suspended) or held."""
        path = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs?dryRun=All"
        answer = self._kube.ask("POST", path, workers("probe", 1))
        if not answer.ok:
            return answer.message
        if answer.body["spec"]["runPolicy"].get("suspend"):
            return "held"
        return "seen" if names.COLOCATION in json.dumps(answer.body["spec"]) else "untouched"

    def pod(self) -> str:
        """Submit a pod of a job as a dry run; return `untouched` or `gated`."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        answer = self._kube.ask("POST", path, _pod_of_a_job())
        if not answer.ok:
            return answer.message
        return "gated" if answer.body["spec"].get("schedulingGates") else "untouched"


def _pod_of_a_job() -> dict[str, Any]:
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "probe",
        "uid": "probe",
        "controller": True,
    }
    metadata = {
        "name": "probe",
        "labels": {names.OPERATOR_NAME: "pytorchjob-controller"},
        "ownerReferences": [owner],
    }
    spec = {"containers": [{"name": "pytorch", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Kfext:
    """The controller and the webhook; each may be killed, stopped and started again.

    Both run under the identity and RBAC rules of their Deployments. A controller reaches the API
    server through a proxy. Most cases need one replica of each; `start_standby` and
    `start_webhooks` start a second replica. `environment` is added to the environment of new
    processes; a PYTHONPATH makes them run other code.
    """

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.kube = Kube(testbed)
        self.trial = Trial(self.kube)
        self.environment: dict[str, str] = {}
        service = "system:serviceaccount:" + _SYSTEM
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{_SYSTEM}")
        user = testbed.pki.client(f"{service}:kfext-controller", groups=groups)
        tls = ssl.create_default_context(cafile=str(testbed.pki.authority.certificate))
        tls.load_cert_chain(user.certificate, user.key)
        self.controller = ControllerProcess(testbed, tls, name="kfext-controller")
        self.standby = ControllerProcess(testbed, tls, name="kfext-standby")
        config = testbed.pki.kubeconfig(
            testbed.folder / "kubeconfigs" / "kfext-webhook.yaml",
            server=testbed.server,
            user=f"{service}:kfext-webhook",
            groups=groups,
        )
        self.webhook = WebhookProcess(testbed, name="kfext-webhook", kubeconfig=config)
        self.second_webhook = WebhookProcess(testbed, name="kfext-webhook-2", kubeconfig=config)
        self.balancer = Balancer(testbed.new_port(), self._endpoints)
        self._hooks: tuple[tuple[str, ...], int] | None = None

    @classmethod
    @contextmanager
    def installed(cls, testbed: Testbed) -> Iterator[Self]:
        """Install kfext beside a testbed; its processes are killed at the end of the block."""
        kfext = cls(testbed)
        try:
            kfext.install()
            yield kfext
        finally:
            kfext.kill_processes()
            kfext.proxy.stop()

    @property
    def proxy(self) -> Proxy:
        """The proxy of the controller; the standby has another."""
        return self.controller.proxy

    def install(self) -> None:
        """Apply the objects of `kubectl apply -k` without Deployments, and start all processes."""
        self.apply_manifests()
        for part in (self.controller.proxy, self.standby.proxy, self.balancer):
            part.start()
        self.trial.create()
        self.ensure()

    def apply_manifests(self) -> None:
        for manifest in manifests():
            self.testbed.api.apply(manifest)

    def ensure(self) -> None:
        """Start the controller and the webhook if they do not run, and wait until they work."""
        restarted = False
        self.second_webhook.kill()
        if self.standby.pid is not None:
            self.standby.thaw()
            self.standby.stop()
        self.standby.proxy.heal()
        if self._hooks != ((), self.webhook.port):
            self.configure_webhooks()
            restarted = True
        if self.controller.pid is None:  # before the webhook, which waits for the CA
            self.restart_killed_controller()
            restarted = True
        if not self.webhook.alive:
            self.start_webhook()
            restarted = True
        if not self.leads(self.controller):
            self.wait_leading()
            restarted = True
        if restarted:
            self.wait_webhooks()

    @property
    def controller_pid(self) -> int | None:
        """The id of the controller's process, or None."""
        return self.controller.pid

    def writes(self, match: Match = lambda _: True) -> list[Exchange]:
        """Return the writes of both controllers that the API server carried out."""
        return [*self.controller.proxy.writes(match), *self.standby.proxy.writes(match)]

    # --- the controller ---------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start the controller and wait until it leads."""
        self.launch_controller()
        self.wait_leading()

    def launch_controller(self) -> None:
        self.controller.launch(environment=self.environment)

    def start_standby(self) -> ControllerProcess:
        """Start a second controller and wait until it is ready to lead."""
        self.standby.launch(environment=self.environment)
        until(self.standby.ready, what="the standby is ready", account=self.tail)
        return self.standby

    @contextmanager
    def restarting(self) -> Iterator[None]:
        """During a `with` block, restart each controller that has ended, as kubelet does."""
        ending = threading.Event()

        def keep_running() -> None:
            while not ending.wait(_POLL_SECONDS):
                for controller in (self.controller, self.standby):
                    if controller.pid is None:
                        controller.wait_dead()
                        controller.launch(environment=self.environment)

        thread = threading.Thread(target=keep_running)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def leads(self, controller: ControllerProcess) -> bool:
        """Return whether a controller holds the Lease."""
        return controller.is_holder((self.lease() or {}).get("holderIdentity") or "")

    def wait_leading(self, controller: ControllerProcess | None = None) -> None:
        """Wait until a controller leads; without an argument, the first controller."""
        awaited = controller or self.controller

        def leads() -> bool:
            assert awaited.pid is not None, f"the controller ended\n{self.tail()}"
            return self.leads(awaited)

        until(leads, what=f"{awaited.name} leads", account=self.tail)

    def kill_controller(self) -> None:
        """Send SIGKILL, so that it neither finishes its work nor releases its Lease."""
        self.controller.kill()

    def stop_controller(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.controller.stop()

    def wait_controller_dead(self) -> None:
        self.controller.wait_dead()

    def restart_killed_controller(self) -> None:
        """Start a successor of the killed controller, and wait until it leads."""
        self.relaunch_killed_controller()
        self.wait_leading()

    def relaunch_killed_controller(self) -> None:
        """Wait for the killed controller's end, release its Lease, and launch a successor.

        A successor would wait 15 s until the dead holder's Lease expires. Releasing the Lease, as
        an orderly shutdown does, saves that time in the cases that do not test it.
        """
        self.wait_controller_dead()
        if self.lease() is not None:
            self.kube.patch(_LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        self.launch_controller()

    def lease(self) -> dict[str, Any] | None:
        """Return the spec of the controller's Lease, or None for an absent Lease."""
        lease = self.kube.find(_LEASE)
        return lease["spec"] if lease else None

    def steal_lease(self, thief: str) -> None:
        """Make another the holder, without the holder's consent."""
        spec = {"holderIdentity": thief, "leaseDurationSeconds": 15}
        self.kube.patch(_LEASE, {"spec": spec})

    def delete_lease(self) -> None:
        self.kube.delete(_LEASE)

    def remove_controller(self) -> None:
        """Stop the controller and delete its Lease, as on a cluster where it never ran."""
        self.stop_controller()
        self.delete_lease()
        self.wait_webhooks(job="seen", pod="untouched")

    # --- the webhook ------------------------------------------------------------------------------

    def start_webhook(self) -> None:
        """Start the webhook process and wait until it is ready to answer."""
        self.webhook.start(environment=self.environment)

    def start_webhooks(self, *, drain_seconds: float) -> tuple[WebhookProcess, WebhookProcess]:
        """Run two replicas behind a balancer, as behind their Service; wait until both answer."""
        self.webhook.kill()
        both = (self.webhook, self.second_webhook)
        for replica in both:
            replica.start(drain_seconds=drain_seconds, environment=self.environment)
        self.configure_webhooks(port=self.balancer.port)
        self.wait_webhooks()
        return both

    def _endpoints(self) -> list[int]:
        """Return the ports that a Service would send new connections to."""
        return [
            webhook.port for webhook in (self.webhook, self.second_webhook) if webhook.in_service
        ]

    def kill_webhook(self) -> None:
        self.webhook.kill()

    def configure_webhooks(
        self, *, unreachable: tuple[str, ...] = (), port: int | None = None
    ) -> None:
        """Register the webhooks of manifests/base/webhook with a different address and timeout.

        Each `clientConfig.service` becomes a `url` on this machine, since the process runs in no
        pod. Webhooks named in `unreachable` have a URL where nothing listens. kfext injects its own
        CA. The timeout is longer: after it the API server admits the object unchanged, which is no
        defect on a busy machine.
        """
        target = port or self.webhook.port
        for file, hooks in _HOOKS.items():
            configuration = read(f"base/webhook/{file}.yaml")[0]
            old = self.kube.find(hooks)
            for index, hook in enumerate(configuration["webhooks"]):
                path = hook["clientConfig"].pop("service")["path"]
                url = f"https://127.0.0.1:{target}{path}"
                hook["timeoutSeconds"] = _ANSWER_SECONDS
                hook["clientConfig"]["url"] = _DEAD_URL if hook["name"] in unreachable else url
                if old:
                    bundle = old["webhooks"][index]["clientConfig"].get("caBundle")
                    hook["clientConfig"]["caBundle"] = bundle
            self.kube.delete(hooks)
            self.kube.create(_CONFIGURATIONS, configuration)
        self._hooks = (unreachable, target)

    def remove_webhooks(self) -> None:
        """Unregister the webhooks; `ensure` registers them again."""
        for hooks in _HOOKS.values():
            self.kube.delete(hooks)
        self.forget_webhooks()
        self.wait_webhooks(job="untouched", pod="untouched")

    def remove_everything(self) -> None:
        """Stop all processes and unregister the webhooks, as before the installation."""
        self.end_processes()
        self.remove_webhooks()

    def end_processes(self) -> None:
        """Stop all processes, as the deletion of the Deployments would."""
        self.standby.stop()
        self.stop_controller()
        self.webhook.kill()
        self.second_webhook.kill()

    def kill_processes(self) -> None:
        """Send SIGKILL to all processes, so that they release nothing."""
        for controller in (self.controller, self.standby):
            controller.kill()
            controller.wait_dead()
        for webhook in (self.webhook, self.second_webhook):
            webhook.kill()

    def forget_webhooks(self) -> None:
        """Make `ensure` register the webhooks again, because a case deleted or changed them."""
        self._hooks = None

    def wait_webhooks(self, *, job: str = "held", pod: str = "gated") -> None:
        """Wait until the dry runs of a job and a pod have these effects."""
        for wanted, probe in ((job, self.trial.job), (pod, self.trial.pod)):
            until(
                lambda: probe() == wanted,  # noqa: B023 - called before the next turn
                what=f"a dry run shows {wanted}",
                account=lambda: f"it shows {probe()}\n{self.tail()}",  # noqa: B023
            )

    def metric(self, name: str) -> float:
        return self.controller.metric(name)

    def tail(self, lines: int = 25, *, about: str = "") -> str:
        """Return the last `lines` log lines with the text `about` of each process."""
        lines_of_all = []
        for process in (self.controller, self.standby, self.webhook, self.second_webhook):
            log = self.testbed.log(process.name)
            text = log.read_text(errors="replace") if log.exists() else ""
            matches = [line for line in text.splitlines() if about in line]
            lines_of_all += [f"--- last lines of {process.name}", *matches[-lines:]]
        return "\n".join(lines_of_all)

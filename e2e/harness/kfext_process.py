"""kfext as two local processes beside the testbed, installed from the project's own manifests."""

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import urllib3

from e2e.harness.installed import manifests, plain_kubeconfig, read
from e2e.harness.kube import Kube
from e2e.harness.proxy import Proxy
from e2e.harness.trial import Trial
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names

COMMAND = Path(sys.executable).with_name("kfext")
_SYSTEM = names.NAMESPACE
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{_SYSTEM}/leases/{names.LEASE}"
_HOOKS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    f"/{names.WEBHOOK_CONFIGURATION}"
)
_DEAD_URL = "https://127.0.0.1:1/"  # nobody listens there


class Kfext:
    """The controller and the webhook; each may be killed, stopped and started again.

    Both run under the identity and RBAC rules of their Deployments. The controller speaks to the
    API server through `proxy`.
    """

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.kube = Kube(testbed)
        self.trial = Trial(self.kube)
        self._controller: subprocess.Popen[bytes] | None = None
        self._webhook: subprocess.Popen[bytes] | None = None
        self._hooks: tuple[str, ...] | None = None
        self._hook_port, self._hook_probe = testbed.new_port(), testbed.new_port()
        self._probe_port = testbed.new_port()
        service = "system:serviceaccount:" + _SYSTEM
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{_SYSTEM}")
        user = testbed.pki.client(f"{service}:kfext-controller", groups=groups)
        tls = ssl.create_default_context(cafile=str(testbed.pki.authority.certificate))
        tls.load_cert_chain(user.certificate, user.key)
        self.proxy = Proxy(testbed.server, tls, testbed.new_port(), kill=self.kill_controller)
        folder = testbed.folder / "kubeconfigs"
        self._webhook_config = testbed.pki.kubeconfig(
            folder / "kfext-webhook.yaml",
            server=testbed.server,
            user=f"{service}:kfext-webhook",
            groups=groups,
        )
        self._controller_config = plain_kubeconfig(
            folder / "kfext-controller.yaml", self.proxy.server
        )

    def install(self) -> None:
        """Apply what `kubectl apply -k` would, without the Deployments, and start everything."""
        for manifest in manifests():
            self.testbed.api.apply(manifest)
        self.proxy.start()
        self.trial.create()
        self.ensure()

    def ensure(self) -> None:
        """Bring both processes to work if they do not, and wait until they do."""
        restarted = False
        if self._hooks != ():
            self.configure_hooks()
            restarted = True
        if self._webhook is None or self._webhook.poll() is not None:
            self.start_webhook()
            restarted = True
        if self._controller is None or self._controller.poll() is not None:
            self.restart_killed_controller()
            restarted = True
        if restarted:
            self.wait_hooks()

    @property
    def controller_pid(self) -> int | None:
        """The id of the controller's process, None if it does not run."""
        alive = self._controller is not None and self._controller.poll() is None
        return self._controller.pid if alive and self._controller else None

    # --- the controller ---------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start the controller and wait until it leads."""
        self.launch_controller()
        self.wait_leading()

    def launch_controller(self) -> None:
        self._controller = self.testbed.start_process(
            [
                *(str(COMMAND), "controller", "--log-level=debug"),
                f"--kubeconfig={self._controller_config}",
                f"--probe-port={self._probe_port}",
            ],
            name="kfext-controller",
        )

    def wait_leading(self) -> None:
        controller = self._controller
        assert controller is not None

        def leads() -> bool:
            assert controller.poll() is None, f"the controller ended\n{self.tail()}"
            holder = (self.lease() or {}).get("holderIdentity") or ""
            return bool(holder.endswith(f"_{controller.pid}"))

        until(leads, what="the controller leads", account=self.tail)

    def kill_controller(self) -> None:
        """SIGKILL: it gets no chance to say or finish anything."""
        if self._controller is not None:
            self._controller.kill()

    def stop_controller(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._controller is not None and self._controller.poll() is None:
            self._controller.terminate()
        self.wait_controller_dead()

    def wait_controller_dead(self) -> None:
        if self._controller is not None:
            self._controller.wait(30)
            self._controller = None

    def restart_killed_controller(self) -> None:
        """Start a successor of a dead controller and wait until it leads."""
        self.relaunch_killed_controller()
        self.wait_leading()

    def relaunch_killed_controller(self) -> None:
        """Wait for the dead controller's end, let its Lease go, and launch a successor.

        A successor has to wait until the dead holder's Lease runs out, 15 s. Writing what a holder
        writes that goes in order saves that time in every case but one, which waits it out.
        """
        self.wait_controller_dead()
        if self.lease() is not None:
            self.kube.patch(_LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        self.launch_controller()

    def lease(self) -> dict[str, Any] | None:
        """Return the spec of the controller's Lease, None without one."""
        found = self.kube.find(_LEASE)
        return found["spec"] if found else None

    def controller_absent(self) -> None:
        """Stop the controller and take its Lease away: as on a cluster where it never ran."""
        self.stop_controller()
        self.kube.delete(_LEASE)
        self.wait_hooks(job="seen", pod="untouched")

    # --- the webhook ------------------------------------------------------------------------------

    def start_webhook(self) -> None:
        """Start the webhook process and wait until it is ready to answer."""
        self._webhook = self.testbed.start_process(
            [
                *(str(COMMAND), "webhook", "--tls-ip=127.0.0.1", "--drain-seconds=0"),
                f"--kubeconfig={self._webhook_config}",
                f"--port={self._hook_port}",
                f"--probe-port={self._hook_probe}",
            ],
            name="kfext-webhook",
        )
        until(self._webhook_ready, what="the webhook is ready", account=self.tail)

    def kill_webhook(self) -> None:
        if self._webhook is not None:
            self._webhook.kill()
            self._webhook.wait(10)
            self._webhook = None

    def configure_hooks(self, *, dead: tuple[str, ...] = ()) -> None:
        """Register the webhooks of manifests/base/webhook with one change: where they are called.

        Each `clientConfig.service` becomes a `url` on this machine, since the process runs in no
        pod. Webhooks named in `dead` get a URL where nobody listens. kfext injects its own CA.
        """
        configuration = read("base/webhook/configuration.yaml")[0]
        old = self.kube.find(_HOOKS)
        for index, hook in enumerate(configuration["webhooks"]):
            path = hook["clientConfig"].pop("service")["path"]
            url = f"https://127.0.0.1:{self._hook_port}{path}"
            hook["clientConfig"]["url"] = _DEAD_URL if hook["name"] in dead else url
            if old:
                bundle = old["webhooks"][index]["clientConfig"].get("caBundle")
                hook["clientConfig"]["caBundle"] = bundle
        self.kube.delete(_HOOKS)
        self.kube.create(_HOOKS.rsplit("/", 1)[0], configuration)
        self._hooks = dead

    def remove_everything(self) -> None:
        """End both processes and unregister the webhooks: the cluster as it was before kfext."""
        self.stop_controller()
        self.kill_webhook()
        self.kube.delete(_HOOKS)
        self._hooks = None
        self.wait_hooks(job="untouched", pod="untouched")

    def wait_hooks(self, *, job: str = "held", pod: str = "gated") -> None:
        """Wait until the API server treats a job and a pod on trial as said."""
        for wanted, probe in ((job, self.trial.job), (pod, self.trial.pod)):
            until(
                lambda: probe() == wanted,  # noqa: B023 - called before the next turn
                what=f"a trial is {wanted}",
                account=lambda: f"it is {probe()}\n{self.tail()}",  # noqa: B023
            )

    def _webhook_ready(self) -> bool:
        assert self._webhook is not None
        assert self._webhook.poll() is None, f"the webhook ended\n{self.tail()}"
        url = f"http://127.0.0.1:{self._hook_probe}/readyz"
        try:
            return urllib3.request("GET", url, retries=False, timeout=2).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def metric(self, name: str) -> float:
        """Return a gauge of the controller."""
        url = f"http://127.0.0.1:{self._probe_port}/metrics"
        lines = urllib3.request("GET", url).data.decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    def tail(self, lines: int = 25) -> str:
        """Return the last log lines of both processes."""
        told = []
        for name in ("kfext-controller", "kfext-webhook"):
            log = self.testbed.log(name)
            last = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
            told += [f"--- last lines of {name}", *last]
        return "\n".join(told)

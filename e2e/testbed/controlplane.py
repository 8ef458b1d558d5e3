"""etcd, API server, controller-manager and scheduler, as processes on this machine.

The scheduler has the default profile, and a greedy profile for comparison.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

GREEDY = "greedy"
"""The schedulerName of a profile that binds each pod to the fullest node that it fits on."""
# By default (50 requests a second) the scheduler binds no more than 55 pods a second.
_FAST = {"qps": 2000, "burst": 4000}
# All other scores of the default profile are off, because they would spread the pods.
_FULLEST_FIRST = {
    "schedulerName": GREEDY,
    "plugins": {
        "score": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 1}],
        }
    },
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                }
            },
        }
    ],
}
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FRONT_PROXY = "front-proxy-client"
# By default (20 requests a second) it takes 45 s to untaint 200 new nodes; no benchmark measures
# that, so every testbed raises the limit. The controller retries claims every 15 s by default.
_MANAGER = ["--kube-api-qps=500", "--kube-api-burst=1000", "--pvclaimbinder-sync-period=1s"]
_NATIVE_GANGS = "--feature-gates=GenericWorkload=true"
# Longer than the leases of fake nodes in a fast testbed, 1200 s; see fakenodes.
_FAST_GRACE_SECONDS = 1500


def write_configuration(testbed: Testbed, *, kubeconfig: Path) -> Path:
    """Write the scheduler's configuration file and return its path."""
    content: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            **(_FAST if testbed.fast else {}),
        },
        "profiles": [{"schedulerName": "default-scheduler"}, _FULLEST_FIRST],
    }
    path = testbed.folder / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def start(testbed: Testbed) -> None:
    """Start the four processes; wait for the API server only, not for all four."""
    client = testbed.new_port()
    _start_etcd(testbed, client, testbed.new_port())
    _start_apiserver(testbed, client)
    testbed.wait_for(
        lambda: testbed.api.get("/readyz") == "ok",
        what="the API server to be ready",
        needs=("etcd", "kube-apiserver"),
    )
    _start_clients(testbed)


def _start_etcd(testbed: Testbed, client: int, peer: int) -> None:
    client_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    testbed.start_process(
        [
            str(testbed.binary("etcd")),
            f"--data-dir={testbed.folder / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",  # the cluster is disposable, never restored after a power cut
            "--log-level=warn",
        ],
        name="etcd",
    )


def _start_apiserver(testbed: Testbed, etcd: int) -> None:
    pki, addresses = testbed.pki, testbed.addresses
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts = ["localhost", *names, "kubernetes.default.svc.cluster.local", "127.0.0.1"]
    serving = pki.server(
        "kube-apiserver", hosts=[*hosts, addresses.kubernetes_service, addresses.bridge]
    )
    kubelets = pki.client("kube-apiserver-kubelet-client", groups=("system:masters",))
    front = pki.client(_FRONT_PROXY)
    key = pki.service_account_key()
    testbed.start_process(
        [
            str(testbed.binary("kube-apiserver")),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={testbed.apiserver_port}",
            # Nodes connect over their bridge, which is made after this process has started.
            f"--bind-address={'0.0.0.0' if testbed.real_nodes else '127.0.0.1'}",
            f"--advertise-address={addresses.bridge}",
            f"--service-cluster-ip-range={addresses.service_cidr}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={pki.authority.certificate}",
            f"--kubelet-client-certificate={kubelets.certificate}",
            f"--kubelet-client-key={kubelets.key}",
            # The API server's DNS does not know node names; `kubectl logs` needs the address.
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # Reach a webhook's Service by its endpoints: there is no kube-proxy on this machine.
            "--enable-aggregator-routing=true",
            # Its identity towards APIs that other servers provide, such as metrics-server.
            f"--proxy-client-cert-file={front.certificate}",
            f"--proxy-client-key-file={front.key}",
            f"--requestheader-client-ca-file={pki.authority.certificate}",
            f"--requestheader-allowed-names={_FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            *(
                (_NATIVE_GANGS, "--runtime-config=scheduling.k8s.io/v1beta1=true")
                if testbed.native_gangs
                else ()
            ),
        ],
        name="kube-apiserver",
        # Without a limit its garbage would fill the memory when tests write objects of a megabyte.
        environment={"GOMEMLIMIT": str(_half_of_the_memory())},
    )


def _half_of_the_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _start_clients(testbed: Testbed) -> None:
    manager, scheduler = (
        testbed.pki.kubeconfig(
            testbed.folder / "kubeconfigs" / f"{name}.yaml",
            server=testbed.server,
            user=f"system:{name}",
        )
        for name in ("kube-controller-manager", "kube-scheduler")
    )
    gates = [_NATIVE_GANGS] if testbed.native_gangs else []
    grace = [f"--node-monitor-grace-period={_FAST_GRACE_SECONDS}s"] if testbed.fast else []
    _start_client(
        testbed,
        "kube-controller-manager",
        manager,
        [
            f"--kubeconfig={manager}",
            f"--root-ca-file={testbed.pki.authority.certificate}",
            f"--service-account-private-key-file={testbed.pki.service_account_key()}",
            "--use-service-account-credentials=true",
            *_MANAGER,
            *grace,
            *gates,
        ],
    )
    configuration = write_configuration(testbed, kubeconfig=scheduler)
    _start_client(testbed, "kube-scheduler", scheduler, [f"--config={configuration}", *gates])


def _start_client(testbed: Testbed, name: str, kubeconfig: Path, more: list[str]) -> None:
    arguments = [
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={testbed.new_port()}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        # Any client with a certificate of the testbed may read the metrics.
        f"--client-ca-file={testbed.pki.authority.certificate}",
        "--authentication-skip-lookup=true",
    ]
    testbed.start_process([str(testbed.binary(name)), *arguments, *more], name=name)

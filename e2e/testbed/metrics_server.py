"""metrics-server, the usual metrics API of a cluster, as a process on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from e2e.testbed import binaries

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

NAME = "metrics-server"
_NAMESPACE = "kube-system"
_ACCOUNT = f"system:serviceaccount:{_NAMESPACE}:{NAME}"
_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{_NAMESPACE}")
_API = "/apis/metrics.k8s.io/v1beta1"
_KUBECONFIGS = ("", "authentication-", "authorization-")
# The shortest allowed resolution; each sample covers the time between two readings.
_RESOLUTION = ("--metric-resolution=10s", "--kubelet-request-timeout=5s")


def start(testbed: Testbed) -> None:
    """Start it with the RBAC rules of its manifests; return once it has metrics of all nodes."""
    for manifest in yaml.safe_load_all(binaries.metrics_server_rbac().read_text()):
        testbed.api.apply(manifest)
    port = testbed.new_port()
    kubeconfig = testbed.pki.kubeconfig(
        testbed.folder / "kubeconfigs" / f"{NAME}.yaml",
        server=testbed.server,
        user=_ACCOUNT,
        groups=_GROUPS,
    )
    testbed.start_process(
        [
            str(testbed.binary(NAME)),
            f"--secure-port={port}",
            f"--cert-dir={testbed.folder / NAME}",
            *(f"--{what}kubeconfig={kubeconfig}" for what in _KUBECONFIGS),
            f"--kubelet-certificate-authority={testbed.pki.authority.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            *_RESOLUTION,
        ],
        name=NAME,
    )
    for manifest in _objects(testbed, port):
        testbed.api.apply(manifest)
    testbed.wait_for(
        lambda: len(testbed.api.get(f"{_API}/nodes")["items"]) == testbed.real_nodes,
        what="metrics-server to have metrics",
        needs=(NAME,),
    )


def stop(testbed: Testbed) -> None:
    """End it, and unregister its API."""
    for manifest in _objects(testbed, 0):
        testbed.api.delete(testbed.api.path(manifest))
    testbed.stop_process(NAME)


def _objects(testbed: Testbed, port: int) -> list[dict[str, Any]]:
    """Return the objects that register the process with the API server: APIService and endpoint."""
    metadata = {"name": NAME, "namespace": _NAMESPACE}
    labels = {"kubernetes.io/service-name": NAME}
    group, version = "metrics.k8s.io", "v1beta1"
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "service": {"name": NAME, "namespace": _NAMESPACE},
                "insecureSkipTLSVerify": True,  # as in its own manifests
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port or 443}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [testbed.addresses.bridge]}],
            "ports": [{"name": "https", "port": port or 443, "protocol": "TCP"}],
        },
    ]

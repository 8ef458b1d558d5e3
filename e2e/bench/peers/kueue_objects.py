"""What a cluster and a process need to be Kueue with topology-aware scheduling (TAS)."""

from collections.abc import Iterator, Sequence
from typing import Any

from e2e.bench.peers.jobs import with_templates
from e2e.testbed import fakenodes
from kfext.names import HOSTNAME, KUEUE_QUEUE

Object = dict[str, Any]
NAMESPACE = "kueue-system"
API = "kueue.x-k8s.io/v1beta2"
QUEUE = "bench"
_FLAVOR = "fake-nodes"
_TOPOLOGY = "hosts"
_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
# Pods themselves are not queued here: no integration `pod`, so no webhook on pods.
_HOOKS = frozenset(
    {
        *("mpytorchjob.kb.io", "mclusterqueue.kb.io", "mresourceflavor.kb.io", "mworkload.kb.io"),
        *("vpytorchjob.kb.io", "vclusterqueue.kb.io", "vresourceflavor.kb.io", "vworkload.kb.io"),
        "vcohort.kb.io",
    }
)
# More than the cluster has: what does not fit must be found by the topology, as kfext must.
_QUOTA = {"cpu": "1000000", "memory": "10000Ti", "nvidia.com/gpu": "100000"}


def configuration(*, port: int, probe: int, certificates: str, shipped: Object) -> Object:
    """Return the configuration of the process; workers per kind are as in the `shipped` one."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": certificates},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "controller": {"groupKindConcurrency": shipped["controller"]["groupKindConcurrency"]},
        # Ten times what is shipped, as the other components of a fast testbed have it.
        "clientConnection": {"qps": 500, "burst": 1000},
        "featureGates": {"VisibilityOnDemand": False},  # it would need a certificate of its own
        "integrations": {"frameworks": ["kubeflow.org/pytorchjob"]},
    }


def newest_only(definition: Object) -> Object:
    """Return a CRD that stores and serves v1beta2 only: no conversion webhook is needed.

    As shipped, v1beta1 is stored and every write of v1beta2 converted. Right for a fresh cluster.
    """
    spec = definition["spec"]
    versions = [
        {**version, "served": version["name"] == "v1beta2", "storage": version["name"] == "v1beta2"}
        for version in spec["versions"]
    ]
    return {**definition, "spec": {**spec, "versions": versions}}


def webhooks(shipped: Sequence[Object], *, url: str, authority: str) -> Iterator[Object]:
    """Yield the webhook configurations that matter here, called at `url` instead of a Service."""
    for configured in shipped:
        kept = []
        for hook in configured["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            client = {"url": url + path, "caBundle": authority}
            kept += [{**hook, "clientConfig": client}] if hook["name"] in _HOOKS else []
        name = f"kueue-{configured['metadata']['name']}"
        yield {**configured, "metadata": {"name": name}, "webhooks": kept}


def queues(namespace: str) -> Iterator[Object]:
    """Yield a topology of single nodes, and a queue over all fake nodes for one namespace."""
    yield _object("Topology", _TOPOLOGY, {"levels": [{"nodeLabel": HOSTNAME}]})
    labels = {fakenodes.LABEL: "fake"}
    yield _object("ResourceFlavor", _FLAVOR, {"nodeLabels": labels, "topologyName": _TOPOLOGY})
    resources = [{"name": name, "nominalQuota": amount} for name, amount in _QUOTA.items()]
    group = {
        "coveredResources": list(_QUOTA),
        "flavors": [{"name": _FLAVOR, "resources": resources}],
    }
    yield _object("ClusterQueue", QUEUE, {"namespaceSelector": {}, "resourceGroups": [group]})
    local = _object("LocalQueue", QUEUE, {"clusterQueue": QUEUE})
    local["metadata"]["namespace"] = namespace
    yield local


def queued(job: Object) -> Object:
    """Return the job as a user of Kueue submits it: in the queue, its pods near each other."""
    near = with_templates(job, _near)
    return {**near, "metadata": {**job["metadata"], "labels": {KUEUE_QUEUE: QUEUE}}}


def _near(template: Object) -> Object:
    return {**template, "metadata": {"annotations": {_PREFERRED: HOSTNAME}}}


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}

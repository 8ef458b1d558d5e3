"""URL paths of the API server, built from names, which are escaped.

Without a namespace, a path is for the objects of the whole cluster; without a name, for the
collection.
"""

from functools import lru_cache
from urllib.parse import quote

from kfext.names import API_GROUP, API_VERSION, TRAINING_GROUP, TRAINING_VERSION


def resource_path(
    plural: str,
    *,
    group: str = "",
    version: str = "v1",
    namespace: str = "",
    name: str = "",
    subresource: str = "",
) -> str:
    """Return the path of a collection, an object or a subresource; group "" is the core API.

    Raises ValueError for a subresource without a name, and for a name made of dots only, which a
    URL library would resolve to another path.
    """
    if subresource and not name:
        raise ValueError(f"subresource {subresource!r} of {plural} needs a name")
    parts = ["apis", group, version] if group else ["api", version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, *subresource.split("/")) if part]
    if any(part.strip(".") == "" for part in parts):
        raise ValueError(f"{parts!r} contains a name made of dots only")
    return "/" + "/".join(_escaped(part) for part in parts)


@lru_cache(maxsize=4096)
def _escaped(part: str) -> str:
    return quote(part, safe="")


def resource_of(path: str) -> str:
    """Return the resource in a path, for metrics: `pods`, `pods/resize`, `pytorchjobs`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join([*parts[:1], *parts[2:]])


def pods(namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of pods; subresources: `log`, `resize`, `status`."""
    return resource_path("pods", namespace=namespace, name=name, subresource=subresource)


def nodes(name: str = "") -> str:
    """Return the path of nodes."""
    return resource_path("nodes", name=name)


def namespaces(name: str = "") -> str:
    """Return the path of namespaces."""
    return resource_path("namespaces", name=name)


def resource_quotas(namespace: str = "", name: str = "") -> str:
    """Return the path of resource quotas."""
    return resource_path("resourcequotas", namespace=namespace, name=name)


def network_policies(namespace: str = "", name: str = "") -> str:
    """Return the path of network policies."""
    return resource_path(
        "networkpolicies", group="networking.k8s.io", namespace=namespace, name=name
    )


def config_map(namespace: str, name: str) -> str:
    """Return the path of a config map."""
    return resource_path("configmaps", namespace=namespace, name=name)


def limit_ranges(namespace: str = "") -> str:
    """Return the path of limit ranges."""
    return resource_path("limitranges", namespace=namespace)


def priority_classes(name: str = "") -> str:
    """Return the path of priority classes, which are cluster-scoped."""
    return resource_path("priorityclasses", group="scheduling.k8s.io", name=name)


def volume_claims() -> str:
    """Return the path of persistent volume claims."""
    return resource_path("persistentvolumeclaims")


def volumes() -> str:
    """Return the path of persistent volumes, which are cluster-scoped."""
    return resource_path("persistentvolumes")


def storage_classes() -> str:
    """Return the path of storage classes, which are cluster-scoped."""
    return resource_path("storageclasses", group="storage.k8s.io")


def secrets(namespace: str, name: str = "") -> str:
    """Return the path of secrets."""
    return resource_path("secrets", namespace=namespace, name=name)


def pod_metrics(namespace: str) -> str:
    """Return the path of the metrics API's pods."""
    return resource_path("pods", group="metrics.k8s.io", version="v1beta1", namespace=namespace)


def node_metrics(name: str) -> str:
    """Return the path of what the metrics API states of a node."""
    return resource_path("nodes", group="metrics.k8s.io", version="v1beta1", name=name)


def jobs(plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of training jobs; `plural` is `pytorchjobs` or `tfjobs`."""
    return resource_path(
        plural, group=TRAINING_GROUP, version=TRAINING_VERSION, namespace=namespace, name=name
    )


def plans(namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of TrainingPlans."""
    return resource_path(
        "trainingplans",
        group=API_GROUP,
        version=API_VERSION,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def shared_gpus(name: str = "", subresource: str = "") -> str:
    """Return the path of SharedGPUs, which are cluster-scoped."""
    return resource_path(
        "sharedgpus", group=API_GROUP, version=API_VERSION, name=name, subresource=subresource
    )


def pod_template(namespace: str, name: str) -> str:
    """Return the path of a pod template."""
    return resource_path("podtemplates", namespace=namespace, name=name)


def policies(name: str = "") -> str:
    """Return the path of TrainingPolicies, which are cluster-scoped."""
    return resource_path("trainingpolicies", group=API_GROUP, version=API_VERSION, name=name)


def leases(namespace: str, name: str = "") -> str:
    """Return the path of leases."""
    return resource_path("leases", group="coordination.k8s.io", namespace=namespace, name=name)


def events(namespace: str, name: str = "") -> str:
    """Return the path of events in the events.k8s.io API."""
    return resource_path("events", group="events.k8s.io", namespace=namespace, name=name)


def admission_policies(name: str = "") -> str:
    """Return the path of validating admission policies."""
    return _admission("validatingadmissionpolicies", name)


def admission_policy_bindings(name: str = "") -> str:
    """Return the path of the bindings of validating admission policies."""
    return _admission("validatingadmissionpolicybindings", name)


def mutating_webhooks(name: str = "") -> str:
    """Return the path of mutating webhook configurations."""
    return _admission("mutatingwebhookconfigurations", name)


def access_reviews() -> str:
    """Return the path to which one posts what one would like to do, to learn whether one may."""
    return resource_path("selfsubjectaccessreviews", group="authorization.k8s.io")


def _admission(plural: str, name: str) -> str:
    return resource_path(plural, group="admissionregistration.k8s.io", name=name)

"""URL paths of the resources that kfext reads or writes at the API server.

    paths.pods("team-a", "train-0", "log")   # /api/v1/namespaces/team-a/pods/train-0/log

Names are escaped. A path without a namespace is for the objects of all namespaces, and a path
without a name for all objects.
"""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from kfext.errors import UserError
from kfext.model.kinds.job_kind import JobKind, Resource
from kfext.names import API_GROUP, API_VERSION


@lru_cache(maxsize=4096)
def _escape(part: str) -> str:
    return quote(part, safe="")


def resource_of(path: str) -> str:
    """Return the resource of a path, as metrics name it: `pods`, `pods/resize`, `nodes`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join([*parts[:1], *parts[2:]])


@dataclass(frozen=True, slots=True)
class _Resource:
    """A resource by its plural; the group "" is the core API."""

    plural: str
    group: str = ""
    version: str = "v1"

    def path(self, namespace: str, name: str, subresource: str) -> str:
        """Return the path of a collection, an object or a subresource.

        Raises ValueError for a subresource without a name, and UserError for a name made of dots
        only, which a URL library would resolve to another path.
        """
        if subresource and not name:
            raise ValueError(f"subresource {subresource!r} of {self.plural} needs a name")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, *subresource.split("/")) if part]
        if any(part.strip(".") == "" for part in parts):
            raise UserError(f"{'/'.join(parts)}: a name must not be made of dots only")
        return "/" + "/".join(_escape(part) for part in parts)


class Namespaced(_Resource):
    """A namespaced resource."""

    __slots__ = ()

    def __call__(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, an object or a subresource."""
        return self.path(namespace, name, subresource)


class ClusterScoped(_Resource):
    """A resource that is not namespaced."""

    __slots__ = ()

    def __call__(self, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, an object or a subresource."""
        return self.path("", name, subresource)


_ADMISSION = "admissionregistration.k8s.io"
_METRICS = ("metrics.k8s.io", "v1beta1")
_KFEXT = (API_GROUP, API_VERSION)

namespaces = ClusterScoped("namespaces")
nodes = ClusterScoped("nodes")
volumes = ClusterScoped("persistentvolumes")
priority_classes = ClusterScoped("priorityclasses", "scheduling.k8s.io")
storage_classes = ClusterScoped("storageclasses", "storage.k8s.io")
node_metrics = ClusterScoped("nodes", *_METRICS)
policies = ClusterScoped("trainingpolicies", *_KFEXT)
shared_gpus = ClusterScoped("sharedgpus", *_KFEXT)
admission_policies = ClusterScoped("validatingadmissionpolicies", _ADMISSION)
admission_policy_bindings = ClusterScoped("validatingadmissionpolicybindings", _ADMISSION)
mutating_webhooks = ClusterScoped("mutatingwebhookconfigurations", _ADMISSION)
token_reviews = ClusterScoped("tokenreviews", "authentication.k8s.io")
access_reviews = ClusterScoped("selfsubjectaccessreviews", "authorization.k8s.io")

pods = Namespaced("pods")
pod_templates = Namespaced("podtemplates")
config_maps = Namespaced("configmaps")
secrets = Namespaced("secrets")
limit_ranges = Namespaced("limitranges")
resource_quotas = Namespaced("resourcequotas")
volume_claims = Namespaced("persistentvolumeclaims")
network_policies = Namespaced("networkpolicies", "networking.k8s.io")
leases = Namespaced("leases", "coordination.k8s.io")
events = Namespaced("events", "events.k8s.io")
pod_metrics = Namespaced("pods", *_METRICS)
plans = Namespaced("trainingplans", *_KFEXT)


def jobs(kind: JobKind, namespace: str = "", name: str = "") -> str:
    """Return the path of the training jobs of a kind, or of a job."""
    return Namespaced(kind.plural, kind.group, kind.version)(namespace, name)


def rendered(resource: Resource, namespace: str = "", name: str = "") -> str:
    """Return the path of objects that an operator renders from jobs, or renders jobs from."""
    return Namespaced(resource.plural, resource.group, resource.version)(namespace, name)

"""The largest jobs, JobSets and pods that a webhook can receive, one for each part of an object.

etcd accepts 1.5 MiB per object, and annotations may have 256 KiB. Only one field is that large.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from kfext.model.bounds import LONGEST_SETTING
from kfext.names import ELASTIC, METRICS, NETWORK

Object = dict[str, Any]

ETCD_BYTES = 1_400_000
"""Bytes of JSON in one object: the limit of etcd is 1.5 MiB, and the API server adds defaults."""
ANNOTATION_BYTES = 250_000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUESTS = {"requests": {"cpu": "1"}}


def job(
    name: str, *, replicas: int = 1, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """Return a PyTorchJob of workers with these fields in the pod spec."""
    container = {"name": "pytorch", "image": "trainer", "resources": _REQUESTS}
    template = {"spec": {"containers": [container], **spec}}
    worker = {"replicas": replicas, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


def pod(name: str, **spec: Any) -> Object:
    """Return a pod with these fields in its spec."""
    container = {"name": "main", "image": "trainer", "resources": _REQUESTS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def _many(make: Callable[[int], Any], *, each: int, total: int = ETCD_BYTES) -> list[Any]:
    """Return as many values of about `each` bytes of JSON as fit in `total` bytes."""
    return [make(number) for number in range(total // each)]


def _term(number: int) -> Object:
    return {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]}


def _container(number: int) -> Object:
    return {"name": f"c{number}", "image": "i"}


def _sidecar(number: int) -> Object:
    limits = {"limits": {f"x.y/{number:05}": "1"}}
    return {**_container(number), "restartPolicy": "Always", "resources": limits}


def _required(terms: list[Object]) -> Object:
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def _trainer(**fields: Any) -> list[Object]:
    return [{"name": "pytorch", "image": "trainer", **fields}]


def _made_elastic() -> Object:
    """Return the job that costs most time: its templates are compared, its script is parsed."""
    env = _many(
        lambda at: {"name": f"V{at}", "value": "v"}, each=32, total=ETCD_BYTES // 2 - 70_000
    )
    script = "a " * 2000 + "&& torchrun x " + "$A" * 6_000
    raw = job("worst", annotations={ELASTIC: "1-8"})
    worker = raw["spec"]["pytorchReplicaSpecs"]["Worker"] | {"restartPolicy": "OnFailure"}
    worker["template"]["spec"]["containers"] = _trainer(env=env, command=["sh", "-c", script])
    raw["spec"]["pytorchReplicaSpecs"] = {"Master": deepcopy(worker), "Worker": worker}
    return raw


SPECS: Mapping[str, Callable[[], Object]] = {
    "containers": lambda: {"containers": _many(_container, each=26)},
    "init containers with resources": lambda: {"initContainers": _many(_sidecar, each=100)},
    "empty tolerations": lambda: {"tolerations": _many(lambda _: {}, each=3)},
    "tolerations": lambda: {
        "tolerations": _many(lambda at: {"key": f"k{at}", "operator": "Exists"}, each=38)
    },
    "required affinity terms": lambda: _required(_many(_term, each=60)),
    "values of one requirement": lambda: _required(
        [
            {
                "matchExpressions": [
                    {"key": "k", "operator": "NotIn", "values": _many(lambda at: f"v{at}", each=9)}
                ]
            }
        ]
    ),
    "preferred affinity terms": lambda: {
        "affinity": {
            "nodeAffinity": {
                _PREFERRED: _many(lambda at: {"weight": 1, "preference": _term(at)}, each=90)
            }
        }
    },
    "resource names": lambda: {
        "containers": _trainer(
            resources=dict.fromkeys(
                ("requests", "limits"), dict.fromkeys(_many(lambda at: f"x/{at}", each=40), "1")
            )
        )
    },
    "node selector": lambda: {
        "nodeSelector": dict.fromkeys(_many(lambda at: f"k{at}", each=13), "v")
    },
    "host ports": lambda: {
        "containers": _trainer(
            ports=_many(lambda at: {"containerPort": 1 + at, "hostPort": 1 + at}, each=40)
        )
    },
    "environment": lambda: {
        "containers": _trainer(env=_many(lambda at: {"name": f"V{at}", "value": "v"}, each=32))
    },
    "a long argument": lambda: {"containers": _trainer(args=["-" * ETCD_BYTES])},
    "volumes": lambda: {"volumes": _many(lambda at: {"name": f"v{at}", "emptyDir": {}}, each=34)},
}
"""The large part -> the fields of a pod spec."""

_REGEX = "stdout:(?P<value>x)(?i:" + "[ -~]" * 45 + ")"
ANNOTATIONS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "unknown keys of kfext": lambda: dict.fromkeys(
        _many(lambda at: f"kfext.dev/{at:06}", each=16, total=ANNOTATION_BYTES), ""
    ),
    "near misses of a setting": lambda: dict.fromkeys(
        _many(lambda at: f"kfext.dev/gpu-prioriti.{at:05}", each=28, total=ANNOTATION_BYTES), ""
    ),
    "annotations of others": lambda: dict.fromkeys(
        _many(lambda at: f"{at:05}", each=5, total=ANNOTATION_BYTES), ""
    ),
    "a long setting": lambda: {NETWORK: "pod".ljust(LONGEST_SETTING)},
    "an expression of metrics": lambda: {METRICS: _REGEX},
}
"""The large part -> the annotations of a job."""


def jobs() -> Mapping[str, Callable[[], Object]]:
    """Return the builder of each job, by its large part."""
    return {
        **{what: partial(_job_of, make) for what, make in SPECS.items()},
        **{what: partial(_annotated, make) for what, make in ANNOTATIONS.items()},
        "annotations of a template": lambda: _in_template("", each=11),
        "annotations of kfext in a template": lambda: _in_template("kfext.dev/", each=21),
        "replicas": partial(job, "worst", replicas=2**31 - 1),
        "as many replicas as kfext places": partial(job, "worst", replicas=10_000),
        "the parts that make it elastic": _made_elastic,
    }


def pods() -> Mapping[str, Callable[[], Object]]:
    """Return the builder of each pod, by its large part."""
    return {what: partial(_pod_of, make) for what, make in SPECS.items()}


def jobsets() -> Mapping[str, Callable[[], Object]]:
    """Return the builder of each JobSet, by its large part.

    Any account that may create JobSets can name a TrainJob of its namespace as the owner.
    """

    def empty(number: int) -> Object:
        return {"name": f"n{number}", "template": {"spec": {"template": {}}}}

    return {
        "replicated jobs": lambda: _jobset(*_many(empty, each=52)),
        "annotations of a template": lambda: _jobset(
            _replicated(metadata={"annotations": _keys("kfext.dev/", each=21)})
        ),
        **{what: partial(_jobset_of, make) for what, make in SPECS.items()},
    }


_OWNER: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "worst",
    "uid": "uid-of-the-job",
    "controller": True,
}


def _jobset(*replicated: Object) -> Object:
    return {
        "kind": "JobSet",
        "metadata": {"name": "worst", "ownerReferences": [_OWNER]},
        "spec": {"replicatedJobs": list(replicated)},
    }


def _replicated(**template: Any) -> Object:
    return {"name": "node", "template": {"spec": {"parallelism": 1, "template": template}}}


def _jobset_of(make: Callable[[], Any]) -> Object:
    return _jobset(_replicated(spec={"containers": _trainer(), **make()}))


def _job_of(make: Callable[[], Any]) -> Object:
    return job("worst", **make())


def _in_template(prefix: str, *, each: int) -> Object:
    """Return a job with these annotations in a template: there the API server has no bound."""
    raw = job("worst")
    template = raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": _keys(prefix, each=each)}
    return raw


def _keys(prefix: str, *, each: int) -> Object:
    return dict.fromkeys(_many(lambda at: f"{prefix}{at:05}", each=each), "")


def _annotated(make: Callable[[], Any]) -> Object:
    return job("worst", annotations=make())


def _pod_of(make: Callable[[], Any]) -> Object:
    return pod("worst", **make())

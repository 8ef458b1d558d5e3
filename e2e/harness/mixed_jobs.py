"""Many jobs of many users within a minute: the operator's examples and random jobs.

All random choices derive from one seed. About a quarter of the random jobs have terms that kfext
does not model, and a tenth have a priority. Together they request more than 24 fake nodes have.
"""

import random
from collections.abc import Callable
from typing import Any

import yaml

from e2e.harness.jobs import PLURAL
from e2e.harness.kube import Object
from e2e.testbed import binaries
from kfext import names
from kfext.model.kinds.registered import KINDS

PRIORITY = "low"
"""The PriorityClass of some of the jobs, with a value above 0, the default of other jobs."""
RANDOM_JOBS = 45
_GPU = "nvidia.com/gpu"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LONGEST_NAME = 40
_UNMODELLED = ("podAntiAffinity", "topologySpreadConstraints")


def mixed_jobs(seed: int, *, jobs: int = RANDOM_JOBS, only_modelled: bool = False) -> list[Object]:
    """Return the operator's examples and `jobs` random jobs, which depend only on the seed.

    `only_modelled`: omit the jobs that kfext leaves to plain Kubernetes.
    """
    draw = random.Random(seed)
    all_jobs = [*_examples(), *(_random_job(draw, f"r{number:03d}") for number in range(jobs))]
    if only_modelled:
        return [job for job in all_jobs if not any(term in str(job) for term in _UNMODELLED)]
    return all_jobs


def _examples() -> list[Object]:
    examples = []
    for path in binaries.operator_examples():
        try:
            documents = list(yaml.safe_load_all(path.read_text()))
        except yaml.YAMLError:
            continue  # a template of another tool
        stem = path.stem.lower().replace("_", "-")[:_LONGEST_NAME]
        jobs = [job for job in documents if isinstance(job, dict) and job.get("kind") in PLURAL]
        examples += [{**job, "metadata": {"name": f"ex-{stem}"}} for job in jobs]
    return examples


def _random_job(draw: random.Random, name: str) -> Object:
    kind = "TFJob" if draw.random() < 0.4 else "PyTorchJob"
    spec: Object = {}
    types = _types(draw, name, kind)
    if kind == "PyTorchJob" and ("Master" not in types or draw.random() < 0.1):
        spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 20, "rdzvBackend": "c10d"}
    for replica in types.values():
        if draw.random() < 0.5:
            replica["restartPolicy"] = draw.choice(["OnFailure", "Never", "ExitCode", "Always"])
        if draw.random() < 0.05:
            del replica["replicas"]
    annotations = {}
    if draw.random() < 0.2:
        annotations[names.COLOCATION] = draw.choice(["required", "preferred"])
    if draw.random() < 0.25:
        annotations[names.NETWORK] = "host"
    if draw.random() < 0.1 and kind == "PyTorchJob":
        annotations[names.ELASTIC] = "1-8"
    if draw.random() < 0.3:
        spec["runPolicy"] = {"cleanPodPolicy": draw.choice(["None", "Running", "All"])}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
        "spec": {**spec, KINDS[kind].replica_specs: types},
    }


def _types(draw: random.Random, name: str, kind: str) -> dict[str, Object]:
    types: dict[str, Object] = {}

    def group(type_: str, replicas: int) -> None:
        template = _template(draw, name, KINDS[kind].container)
        types[type_] = {"replicas": replicas, "template": template}

    if kind == "PyTorchJob":
        if draw.random() < 0.8:
            group("Master", 1)
        group("Worker", draw.randint(1, 14))
        return types
    if draw.random() < 0.5:
        group("Chief", 1)
    if draw.random() < 0.7:
        group("PS", draw.randint(1, 3))
    group("Worker", draw.randint(1, 9))
    if draw.random() < 0.2:
        group("Evaluator", 1)
    return types


def _template(draw: random.Random, job: str, container: str) -> Object:
    main: Object = {"name": container, "image": "none", "command": ["python", "t.py"]}
    if draw.random() < 0.8:
        main["resources"] = _resources(draw)
    spec: Object = {"containers": [main]}
    for probability, change in _terms(draw, job):
        if draw.random() < probability:
            change(spec)
    return {"spec": spec}


def _resources(draw: random.Random) -> Object:
    requests: Object = {
        "cpu": draw.choice(["100m", "500m", "1", "2500m", "4"]),
        "memory": draw.choice(["128Mi", "1Gi", "1500M", "3e9"]),
    }
    if draw.random() < 0.4:
        requests[_GPU] = draw.choice([1, "1", 2])
    limits = {_GPU: requests[_GPU]} if _GPU in requests else {}
    if draw.random() < 0.4:
        limits = dict(requests)
    if draw.random() < 0.2:
        return {"limits": dict(requests)}
    return {"requests": requests, "limits": limits}


def _terms(draw: random.Random, job: str) -> list[tuple[float, Callable[[Object], Any]]]:
    """Return the possible terms of a pod, each with its probability."""
    own: Object = {"labelSelector": {"matchLabels": {names.JOB_NAME: job}}}
    own["topologyKey"] = "kubernetes.io/hostname"

    def init(name: str, cpu: str, **more: str) -> Object:
        return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}, **more}

    def in_pool(spec: Object) -> None:
        operator = draw.choice(["In", "NotIn"])
        pool = {"key": "pool", "operator": operator, "values": ["a"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [pool]}]}
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: terms}}

    def apart(spec: Object) -> None:
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [own]}}

    def with_priority(spec: Object) -> None:
        draw.random()  # so that the other draws of a seed do not change
        spec["priorityClassName"] = PRIORITY

    def spread(spec: Object) -> None:
        even = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **own}
        spec["topologySpreadConstraints"] = [even]

    return [
        (0.25, lambda spec: spec.update(initContainers=[init("init", draw.choice(["1", "6"]))])),
        (0.2, lambda spec: spec["containers"].append(init("side", "250m"))),
        (
            0.15,
            lambda spec: spec.update(initContainers=[init("sc", "1", restartPolicy="Always")]),
        ),
        (0.2, lambda spec: spec.update(nodeSelector={"pool": draw.choice(["a", "b"])})),
        (0.15, in_pool),
        (0.1, apart),
        (0.1, spread),
        (0.2, lambda spec: spec.update(tolerations=[{"key": "gpu", "operator": "Exists"}])),
        (0.1, with_priority),
        (0.1, lambda spec: spec.update(volumes=[{"name": "e", "emptyDir": {}}])),
        (0.1, lambda spec: spec.update(schedulingGates=None)),
    ]

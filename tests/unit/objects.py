"""Objects for tests: well-formed builders, and Hypothesis strategies for odd ones."""

from typing import Any

from hypothesis import strategies as st

from kfext import names
from kfext.model.kinds.registered import KINDS

Raw = dict[str, Any]


def job(kind: str = "PyTorchJob", **fields: Any) -> Raw:
    """A job of one leader and two workers; `fields`: specs, run_policy or fields of metadata."""
    job_kind = KINDS[kind]
    specs = fields.pop("specs", {job_kind.rank_zero[0]: replica(1), "Worker": replica(2)})
    spec = {job_kind.replica_specs: specs}
    if "run_policy" in fields:
        spec["runPolicy"] = fields.pop("run_policy")
    metadata = {"name": "train", "namespace": "team", **fields}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}


def replica(replicas: int | None, *, metadata: Raw | None = None, **pod: Any) -> Raw:
    """A replica spec with one container; `pod` replaces fields of the pod spec."""
    spec = {"containers": [{"name": "pytorch", "image": "trainer"}], **pod}
    template: Raw = {"spec": spec} | ({"metadata": metadata} if metadata else {})
    return {"template": template} | ({} if replicas is None else {"replicas": replicas})


def pod(**fields: Any) -> Raw:
    """A pod as the training-operator creates it; `fields`: spec, or fields of metadata."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": "u", "controller": True}
    spec = {"containers": [{"name": "pytorch"}], **fields.pop("spec", {})}
    return {
        "metadata": {"name": "train-worker-0", "ownerReferences": [owner], **fields},
        "spec": spec,
    }


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "1", "true", "3", "a/b~c", "5m", "1e3m", "2Gi", "In", "cpu"])
    | st.text(max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


def _odd(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly a well-formed value, sometimes anything."""
    return strategy | strategy | strategy | json_values


def _fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return _odd(st.fixed_dictionaries({}, optional={k: _odd(v) for k, v in optional.items()}))


def _list(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return _odd(st.lists(_odd(item), max_size=3))


_keys = st.sampled_from(
    [
        names.HELD, names.PLAN, names.STATE, names.RELEASED, names.COLOCATION, names.NETWORK,
        names.ELASTIC, names.ISTIO_INJECT, names.PLAN_GENERATION, names.JOB_NAME,
        names.REPLICA_INDEX, names.KUEUE_QUEUE, "kfext.dev/unknown", "a~b/c", "x",
    ]
)  # fmt: skip
_words = st.sampled_from(["true", "false", "preferred", "required", "off", "pod", "host", "2-8"])
_strings = _odd(st.dictionaries(_keys, _odd(_words), max_size=4))
_metadata = _fields(
    name=st.text(max_size=5),
    labels=_strings,
    annotations=_strings,
    creationTimestamp=st.sampled_from(["2026-11-21T10:00:00Z", "0001-01-01T00:00:00Z", "x"]),
    ownerReferences=_list(
        _fields(
            apiVersion=st.sampled_from(["kubeflow.org/v1", "batch/v1"]),
            kind=st.sampled_from([*KINDS, "Job"]),
            controller=st.booleans(),
            uid=st.text(max_size=3),
        )
    ),
)
_amounts = _odd(st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), scalars))
_resources = _fields(requests=_amounts, limits=_amounts)
_trainers = st.sampled_from([kind.container for kind in KINDS.values()])
_container = _fields(
    name=_trainers,
    resources=_resources,
    resizePolicy=_list(_fields(resourceName=st.just("cpu"), restartPolicy=scalars)),
    ports=_list(_fields(hostPort=scalars, containerPort=scalars, protocol=scalars)),
    restartPolicy=st.just("Always"),
    command=_list(st.sampled_from(["torchrun", "python", "sh", "-c", "-m", "torchrun x"])),
    args=_list(st.sampled_from(["--nnodes=2", "--standalone", "train.py", "a && torchrun $X"])),
    env=_list(_fields(name=st.sampled_from(["PET_NNODES", "RANK"]), value=scalars)),
)
_requirements = _list(_fields(key=scalars, operator=scalars, values=_list(scalars)))
_pod_spec = _fields(
    containers=_list(_container),
    initContainers=_list(_container),
    schedulingGates=_list(_fields(name=st.sampled_from([names.GATE, "other/gate"]))),
    nodeName=st.sampled_from(["", "node-1"]),
    schedulerName=st.sampled_from(["", "default-scheduler", "volcano"]),
    nodeSelector=_odd(st.dictionaries(st.text(max_size=3), scalars, max_size=2)),
    tolerations=_list(_fields(key=scalars, operator=scalars, value=scalars, effect=scalars)),
    hostNetwork=st.booleans(),
    overhead=_amounts,
    affinity=_fields(
        nodeAffinity=_fields(
            requiredDuringSchedulingIgnoredDuringExecution=_fields(
                nodeSelectorTerms=_list(
                    _fields(matchExpressions=_requirements, matchFields=_requirements)
                )
            )
        )
    ),
)
_types = sorted({type_ for kind in KINDS.values() for type_ in kind.types})
_replica_specs = _odd(
    st.dictionaries(
        st.sampled_from([*_types, "worker", "a~b/c"]),
        _fields(
            replicas=st.integers(min_value=0, max_value=4),
            template=_fields(metadata=_metadata, spec=_pod_spec),
        ),
        max_size=3,
    )
)
_patched = _fields(metadata=_metadata)
_of_train_jobs = {
    "suspend": st.booleans(),
    "managedBy": st.sampled_from(["", "trainer.kubeflow.org/trainjob-controller", "other/system"]),
    "runtimePatches": _list(
        _fields(
            manager=st.sampled_from([names.RUNTIME_PATCH, "kueue.x-k8s.io/manager"]),
            trainingRuntimeSpec=_fields(
                template=_fields(
                    metadata=_metadata,
                    spec=_fields(
                        replicatedJobs=_list(
                            _fields(
                                name=st.sampled_from(["node", "launcher"]),
                                template=_fields(spec=_fields(template=_patched)),
                            )
                        )
                    ),
                )
            ),
        )
    ),
}
_conditions = _list(_fields(type=scalars, status=scalars, lastTransitionTime=scalars))

odd_jobs = st.fixed_dictionaries(
    {"kind": st.sampled_from([*KINDS])},
    optional={
        "metadata": _metadata,
        "spec": _fields(
            runPolicy=_fields(
                suspend=st.booleans(),
                managedBy=st.sampled_from(["", names.TRAINING_OPERATOR, "other/system"]),
            ),
            **{**{kind.replica_specs: _replica_specs for kind in KINDS.values()}, **_of_train_jobs},
        ),
        "status": _fields(conditions=_conditions),
    },
)
_pod_status = _fields(
    conditions=_list(
        _fields(
            type=st.sampled_from(["PodResizePending", "PodResizeInProgress", "PodScheduled"]),
            reason=st.sampled_from(["Deferred", "Error", "Unschedulable"]),
            message=scalars,
        )
    ),
    containerStatuses=_list(_fields(name=_trainers, resources=_resources)),
)
odd_pods = st.fixed_dictionaries(
    {}, optional={"metadata": _metadata, "spec": _pod_spec, "status": _pod_status}
)
odd_nodes = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _metadata,
        "spec": _fields(unschedulable=st.booleans(), taints=_list(_fields(key=scalars))),
        "status": _fields(allocatable=_amounts),
    },
)
odd_policies = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _metadata,
        "spec": _fields(
            weight=st.integers(),
            settings=_strings,
            namespaceSelector=_fields(matchLabels=_strings, matchExpressions=_requirements),
            placement=_fields(bindTimeout=scalars, releaseAfter=scalars, assumedBurst=scalars),
        ),
    },
)

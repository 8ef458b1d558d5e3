"""TrainJob of Kubeflow Trainer 2: its templates are in a JobSet that Trainer renders from the job.

Trainer renders the JobSet while the job is suspended, so kfext plans from the JobSet. kfext changes
templates only by its entry of runtimePatches. Trainer accepts a change of the entry while the job
is suspended, and together with the resume. JobSet merges the keys of the entry into its templates,
so kfext can overwrite such a key later but never remove it.

Source: trainer 2.3.0 pkg/apis/trainer/v1alpha1, pkg/runtime; jobset 0.12.0 api/jobset/v1alpha2.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfext.model.bounds import MAX_REPLICA_TYPES, bounded, bounded_name, kfext_annotations
from kfext.model.kinds.job_kind import (
    EVERY_TYPE,
    Env,
    HostedPod,
    Items,
    JobKind,
    Raw,
    Rendezvous,
    Resource,
    Scaling,
    TemplateSource,
    value_in,
    with_value,
)
from kfext.model.podspec import container_named
from kfext.model.tolerant import index_in, mapping, member, sequence, text
from kfext.names import COLOCATION, PLAN_GENERATION, RUNTIME_PATCH

if TYPE_CHECKING:
    from kfext.model.job import TrainingJob
    from kfext.model.replica_group import ReplicaGroup

_JOBSET = "jobset.sigs.k8s.io/"
_JOBSET_UID = f"{_JOBSET}jobset-uid"
_JOB_INDEX = f"{_JOBSET}job-index"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""An annotation: JobSet adds affinity to the pods, and creates the first pod alone."""
_POD_TEMPLATE = ("template", "spec", "template")
"""The path of the pod template in a replicated job."""
_JOBSET_CHANGE = ("trainingRuntimeSpec", "template")
"""The path of the change to the JobSet in an entry of runtimePatches."""
_MARK = {COLOCATION: "preferred"}
"""The annotation that marks the pods of a job that admission has not seen."""
_PLACEMENT_FIELDS = ("nodeSelector", "affinity", "tolerations")
"""The fields of a pod spec in runtimePatches that decide on the placement."""
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of the replicated job of a runtime that Trainer changes by `spec.trainer`."""
_RENDEZVOUS_PORT = 29500
"""The port of torchrun's store, which Trainer declares without a name."""
_PORT_VARIABLE = "PET_MASTER_PORT"
_NODE = "node"
"""The replicated job, and its container, that trains; with MPI, `launcher` starts the training."""
_EDITS = (
    (f"{_PORT_VARIABLE} is the job's port", "all ranks meet there, and Trainer's port is fixed"),
)


class TrainJob(JobKind):
    """A TrainJob: its replica types are the replicated jobs of its JobSet."""

    name = "TrainJob"
    group = "trainer.kubeflow.org"
    version = "v1alpha1"
    plural = "trainjobs"
    provider = "Kubeflow Trainer 2.2.1 or later"
    operator = "trainer.kubeflow.org/trainjob-controller"
    rendered = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
    replica_specs = "runtimePatches"
    types = ()
    training_types = (_NODE, "launcher")
    rank_zero = ("launcher", _NODE)
    container = _NODE
    restart = "OnFailure"
    job_label = f"{_JOBSET}jobset-name"
    type_label = f"{_JOBSET}replicatedjob-name"
    index_label = "batch.kubernetes.io/job-completion-index"
    suspend_path = ("suspend",)
    recreates = False
    written_env = frozenset({"PET_MASTER_ADDR", _PORT_VARIABLE})
    one_network = True

    def templates(self, spec: Raw) -> Raw:
        """Return the first replicated jobs by name; with InOrder each depends on the previous."""
        templates: dict[str, Any] = {}
        in_order = member(spec, ("startupPolicy", "startupPolicyOrder")) == "InOrder"
        exclusive, before = _EXCLUSIVE in _annotations(spec), tuple[Raw, ...]()
        listed = sequence(spec.get("replicatedJobs"))[: MAX_REPLICA_TYPES + 1]
        for replicated in map(mapping, listed):
            job = mapping(member(replicated, ("template", "spec")))
            retries = job.get("backoffLimit") != 0
            annotations = _annotations(mapping(replicated.get("template")))
            templates[text(replicated.get("name"))] = {
                "replicas": job.get("parallelism"),
                "completions": job.get("completions"),
                "jobs": replicated.get("replicas"),
                "template": job.get("template"),
                "restartPolicy": "OnFailure" if retries else "Never",
                "dependsOn": before if in_order else replicated.get("dependsOn"),
                "exclusive": exclusive or _EXCLUSIVE in annotations,
            }
            before = (replicated,)
        return templates

    def template_source(self, spec: Raw) -> TemplateSource:
        """Return the runtime that the job names."""
        reference = mapping(spec.get("runtimeRef"))
        kind = text(reference.get("kind")) or "ClusterTrainingRuntime"
        resource = Resource(self.group, self.version, f"{kind.lower()}s")
        namespaced = kind == "TrainingRuntime"
        return TemplateSource(kind, text(reference.get("name")), resource, namespaced)

    def rendered_from(self, spec: Raw, source: Raw) -> Raw:
        """Return the JobSet that Trainer renders from the runtime with the job's changes to it."""
        runtime, trainer = mapping(source.get("spec")), mapping(spec.get("trainer"))
        template = mapping(runtime.get("template"))
        jobset = {**mapping(template.get("spec")), "metadata": template.get("metadata")}
        jobs = map(mapping, sequence(jobset.get("replicatedJobs")))
        rendered = (_render(job, trainer, mapping(runtime.get("mlPolicy"))) for job in jobs)
        return {**jobset, "replicatedJobs": [_apply_patches(job, spec) for job in rendered]}

    def template_annotations(self, spec: Raw) -> Sequence[Raw]:
        """Return the annotations of each template, from kfext's entry or a JobSet."""
        added = sequence(member(_entry(spec), (*_JOBSET_CHANGE, "spec", "replicatedJobs")))
        written = [_annotations(mapping(member(item, _POD_TEMPLATE))) for item in added]
        return written or super().template_annotations(spec)

    def unsupported(self, replica_spec: Raw) -> str:
        """Return the unsupported part; Trainer itself does not render such replicated jobs."""
        if replica_spec["jobs"] not in (None, 1):
            return "several jobs"
        if replica_spec["exclusive"]:
            return "the annotation exclusive-topology of JobSet"
        successive = replica_spec["completions"] not in (None, replica_spec["replicas"])
        return "pods that run one after the other" if successive else ""

    def template_changes(self, changes: Mapping[str, Any], *, written: Raw) -> dict[str, Any]:
        """Return the change to kfext's entry of runtimePatches, which has annotations only.

        The annotations for every type are repeated in each template, because JobSet does not pass
        them on to pods. JobSet refuses to change an affinity after its creation.
        """
        template = mapping(member(_entry(written), _JOBSET_CHANGE))
        everywhere = _annotations(template)
        if EVERY_TYPE in changes:  # a copied manifest may have the entry of another job
            wanted = {**dict.fromkeys(everywhere), **_annotations(changes[EVERY_TYPE]["template"])}
            change: dict[str, Any] = {"metadata": {"annotations": wanted}, "spec": None}
        else:
            present = {
                text(mapping(item).get("name")): _annotations(mapping(member(item, _POD_TEMPLATE)))
                for item in sequence(member(template, ("spec", "replicatedJobs")))
            }
            patches = {}
            for key, of_type in sorted(changes.items()):
                wanted = {**_MARK, **everywhere, **_annotations(of_type["template"])}
                metadata = {"annotations": _to_write(wanted, present=present.get(key, {}))}
                patches[key] = {"template": {"spec": {"template": {"metadata": metadata}}}}
            change = {"spec": {"replicatedJobs": Items("name", patches)}}
        entry = {"trainingRuntimeSpec": {"template": change}}
        return {self.replica_specs: Items("manager", {RUNTIME_PATCH: entry})}

    def kept_changes(self, written: object) -> object:
        """Return the managers of all entries, and the annotations of kfext's entry."""
        return [
            {
                "manager": bounded_name(mapping(entry).get("manager")),
                **_bounded_entry(mapping(entry)),
            }
            for entry in sequence(written)
        ]

    def owner_of(self, owner: Raw, labels: Mapping[str, str]) -> str:
        """Return the uid of the JobSet of a pod that a batch Job controls, else an empty text."""
        of_job = owner.get("apiVersion") == "batch/v1" and owner.get("kind") == "Job"
        return text(labels.get(_JOBSET_UID)) if of_job else ""

    def create_failures(self, job: "TrainingJob") -> Iterable[str]:
        """Yield the selectors of Trainer's event for the JobSet and of the batch Jobs' events."""
        yield f"regarding.uid={job.uid},reason=TrainJobResourcesCreationFailed"
        for group in job.groups:
            yield f"regarding.kind=Job,regarding.name={job.name}-{group.type}-0,reason=FailedCreate"

    def takes_part(self, metadata: Raw) -> bool:
        """Return whether the template was marked, because a pod does not name its TrainJob."""
        return not {COLOCATION, PLAN_GENERATION}.isdisjoint(mapping(metadata.get("annotations")))

    def replica_of(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Return the replicated job and the completion index that the labels of a pod name."""
        return super().replica_of(labels) if labels.get(_JOB_INDEX, "0") == "0" else None

    def pod_labels(
        self, job: str, type_: str, index: int, *, types: Sequence[str]
    ) -> Mapping[str, str]:
        """Return the labels that JobSet and Job set, without the labels that have a uid."""
        return {
            self.job_label: job,
            self.type_label: type_,
            _JOB_INDEX: "0",
            self.index_label: str(index),
            "batch.kubernetes.io/job-name": f"{job}-{type_}-0",
        }

    def pod_name(self, job: str, type_: str, index: int) -> str:
        """Return the prefix of the name of the pod of a replica; a random suffix follows."""
        return f"{job}-{type_}-0-{index}"

    def index_in_name(self, pod: str, *, job: str, type_: str) -> int | None:
        """Return the index in the name JOB-TYPE-0-INDEX with a random suffix, or None."""
        prefix = f"{job}-{type_}-0-"
        index, _, suffix = pod.removeprefix(prefix).partition("-")
        return index_in(index) if pod.startswith(prefix) and suffix.isalnum() else None

    def conditions(self, status: Raw) -> Iterable[Raw]:
        """Yield the conditions; Running is true while all pods of a replicated job are ready."""
        for condition in super().conditions(status):
            complete = condition.get("type") == "Complete"
            yield {**condition, "type": "Succeeded"} if complete else condition
        jobs = map(mapping, sequence(status.get("jobsStatus")))
        if any(job.get("ready") not in (None, 0) for job in jobs):
            yield {"type": "Running", "status": "True"}

    def started(self, status: Raw) -> object:
        """Return the time of the last resume; the deadline counts from that time."""
        for condition in super().conditions(status):
            if condition.get("type") == "Suspended" and condition.get("status") == "False":
                return condition.get("lastTransitionTime")
        return None

    def trainer_status(self, status: Raw) -> Raw:
        """Return the field that Trainer serves with its feature gate TrainJobStatus."""
        return mapping(status.get("trainerStatus"))

    def is_own_port(self, port: Raw) -> bool:
        """Return whether a declared port is the port of torchrun's store."""
        return port.get("containerPort") == _RENDEZVOUS_PORT and not port.get("name")

    def scaling(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Scaling:
        """Return that the number of pods never changes: Trainer refuses it."""
        return Scaling(fixed="the number of nodes of a TrainJob cannot change once it is created")

    def rendezvous(self, spec: Raw, groups: "Sequence[ReplicaGroup]", *, job: str) -> Rendezvous:
        """Return a rendezvous at the first pod; an obstacle if its runtime sets no port."""
        nodes = mapping(self.templates(spec).get(_NODE))
        pod = {} if any(group.excess for group in groups) else mapping(nodes.get("template"))
        named = container_named(mapping(pod.get("spec")), self.container)
        env = sequence(named[1].get("env")) if named else ()
        port_known = any(mapping(variable).get("name") == _PORT_VARIABLE for variable in env)
        if port_known or sum(group.replicas for group in groups) <= 1:
            return Rendezvous()
        return Rendezvous(obstacle="its runtime does not set the port at which its pods meet")

    def port_offset(self, job: "TrainingJob", type_: str, index: int) -> int | None:
        """Return 0 for the first node, where the ranks meet, else None."""
        return 0 if (type_, index) == (_NODE, 0) else None

    def edits_on_host(self, job: "TrainingJob") -> Sequence[tuple[str, str]]:
        """Return the edits on the pods of a job on the host network, each with its reason."""
        return _EDITS

    def listens_on(self, pod: HostedPod, env: Env) -> int | None:
        """Return the job's port for the first node, else None."""
        return pod.base if (pod.type, pod.index) == (_NODE, 0) else None

    def edited_env(self, pod: HostedPod, env: Env) -> Env:
        """Return the variables with the port at which the ranks meet, if they have one."""
        if not value_in(env, _PORT_VARIABLE):
            return env
        return with_value(env, _PORT_VARIABLE, str(pod.base))


def _pod_count(trainer: Raw, policy: Raw, *, trains: bool, is_mpi_node: bool) -> object:
    """Return the number of pods of a replicated job; None means the number in its runtime.

    Source: trainingruntime.go and the plugin mpi of Trainer 2.3.0. With MPI the job's numNodes is
    for the replicated job `node`, minus one if the launcher trains too.
    """
    nodes, mpi = trainer.get("numNodes"), policy.get("mpi")
    if mpi is None:
        return nodes or policy.get("numNodes") or 1
    if is_mpi_node and type(nodes) is int:
        return max(nodes - 1, 1) if mapping(mpi).get("runLauncherAsNode") else nodes
    return (policy.get("numNodes") or 1) if trains else None


def _render(replicated: Raw, trainer: Raw, policy: Raw) -> Raw:
    """Return a replicated job of a runtime as Trainer renders it."""
    trains = member(replicated, ("template", "metadata", "labels", _STEP)) == "trainer"
    is_mpi_node = "mpi" in policy and replicated.get("name") == _NODE
    if not (trains or is_mpi_node):
        return replicated
    nodes = _pod_count(trainer, policy, trains=trains, is_mpi_node=is_mpi_node)
    as_node = is_mpi_node and mapping(policy.get("mpi")).get("runLauncherAsNode")
    size = mapping(trainer.get("resourcesPerNode")) if trains or as_node else {}
    torch = "torch" in policy
    template = mapping(member(replicated, _POD_TEMPLATE))
    pod = mapping(template.get("spec"))
    variables = [{"name": _PORT_VARIABLE, "value": str(_RENDEZVOUS_PORT)}] if torch else []
    containers = []
    for container in map(mapping, sequence(pod.get("containers"))):
        if container.get("name") == _NODE:
            written = mapping(container.get("resources"))
            resources = {
                kind: {**mapping(written.get(kind)), **mapping(size.get(kind))}
                for kind in ("requests", "limits")
            }
            env = [*sequence(container.get("env")), *variables]
            container = {**container, "resources": resources, "env": env}  # noqa: PLW2901
        containers.append(container)
    job = {
        **mapping(member(replicated, ("template", "spec"))),
        "template": {**template, "spec": {**pod, "containers": containers}},
    }
    if nodes is not None:
        job |= {"parallelism": nodes, "completions": nodes}
    return {**replicated, "template": {**mapping(replicated.get("template")), "spec": job}}


def _apply_patches(replicated: Raw, spec: Raw) -> Raw:
    """Return a rendered replicated job after the runtimePatches for the placement of its pods."""
    patch: Raw = {}
    for entry in sequence(spec.get("runtimePatches")):
        for item in sequence(member(entry, (*_JOBSET_CHANGE, "spec", "replicatedJobs"))):
            if mapping(item).get("name") == replicated.get("name"):
                patch = _merge(patch, mapping(member(item, (*_POD_TEMPLATE, "spec"))))
    placement = {key: patch[key] for key in _PLACEMENT_FIELDS if key in patch}
    job = mapping(member(replicated, ("template", "spec")))
    template = mapping(job.get("template"))
    pods = {**template, "spec": _merge(mapping(template.get("spec")), placement)}
    patched = {**mapping(replicated.get("template")), "spec": {**job, "template": pods}}
    return {**replicated, "template": patched}


def _merge(base: Raw, patch: Raw) -> Raw:
    """Return an object after a strategic merge patch that merges objects and replaces lists."""
    merged = dict(base)
    for key, value in patch.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _entry(spec: Raw) -> Raw:
    """Return kfext's entry of runtimePatches in the spec of a TrainJob; empty if there is none."""
    entries = map(mapping, sequence(spec.get("runtimePatches")))
    return next((entry for entry in entries if entry.get("manager") == RUNTIME_PATCH), {})


def _annotations(holder: Raw) -> Raw:
    """Return the annotations of a template, or of a change to it; None removes a value."""
    return mapping(member(holder, ("metadata", "annotations")))


def _to_write(annotations: Raw, *, present: Raw) -> dict[str, Any]:
    """Return the annotations to write: a removed key is overwritten if it was ever written."""
    values = {key: "" if value is None else value for key, value in annotations.items()}
    return {key: value for key, value in values.items() if value or key in present}


def _bounded_entry(entry: Raw) -> dict[str, Any]:
    """Return the part of kfext's entry that patches need; empty for other entries."""
    if entry.get("manager") != RUNTIME_PATCH:
        return {}
    template = mapping(member(entry, _JOBSET_CHANGE))
    replicated = [
        {
            "name": bounded_name(mapping(item).get("name")),
            "template": {
                "spec": {"template": _bounded_metadata(mapping(member(item, _POD_TEMPLATE)))}
            },
        }
        for item in sequence(member(template, ("spec", "replicatedJobs")))[:MAX_REPLICA_TYPES]
    ]
    parts = {
        **_bounded_metadata(template),
        **({"spec": {"replicatedJobs": replicated}} if replicated else {}),
    }
    return {"trainingRuntimeSpec": {"template": parts}}


def _bounded_metadata(holder: Raw) -> dict[str, Any]:
    return {"metadata": {"annotations": dict(bounded(kfext_annotations(_annotations(holder))))}}

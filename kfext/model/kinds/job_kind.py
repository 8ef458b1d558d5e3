"""The properties of a kind of training job: each kind has one adapter.

Code outside this folder asks the adapter and never compares kinds. The defaults fit a kind with
pods on the pod network and a fixed number of workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kfext.model.podspec import with_port
from kfext.model.tolerant import index_in, mapping, member, sequence, text
from kfext.names import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    TRAINING_GROUP,
    TRAINING_OPERATOR,
)

if TYPE_CHECKING:
    from kfext.model.job import TrainingJob
    from kfext.model.replica_group import ReplicaGroup

WORKER = "Worker"
"""The replica type that may have a changing number of replicas; every kind has the same name."""

Env = list[dict[str, Any]]
"""The field `env` of a container."""
Raw = Mapping[str, Any]
"""A JSON object."""
EVERY_TYPE = ""
"""The key of changes to all replica types, including types that are not rendered yet."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API server: `plural` is its name in URLs."""

    group: str
    version: str
    plural: str


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The object that an operator renders into the templates of a job.

    `kind`, `name`: its kind and name. `namespaced`: whether it is in the namespace of the job.
    """

    kind: str
    name: str
    resource: Resource
    namespaced: bool


@dataclass(frozen=True, slots=True)
class Items:
    """Changes to the objects of a list, by the value of each object's member `key`."""

    key: str
    changes: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Scaling:
    """The possible sizes of a job, in workers.

    `elastic`: whether workers can join and leave while the job runs.
    `any_start`: whether the job can start with any size.
    `fixed`: why the job cannot train with a different size, as a clause; empty if it can.
    `restarts_all`: whether a change restarts the processes of all workers, even if only some join.
    `fewest`: the fewest workers of an elastic job.
    `most`: the most workers that the job allows; 0 if it sets no maximum.
    `autoscaled`: whether the operator makes a HorizontalPodAutoscaler for the job.
    `needs`: what an inelastic job needs to become elastic, as words of a message.
    """

    elastic: bool = False
    any_start: bool = False
    fixed: str = ""
    restarts_all: bool = True
    fewest: int = 1
    most: int = 0
    autoscaled: bool = False
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How the pods of a job find each other.

    `dynamic`: whether the pods elect rank zero, so that any worker may be rank zero.
    `at_worker`: whether the pods meet at the first worker, and not without it.
    `obstacle`: why the pods cannot meet on the host network; empty if they can.
    `alike`: why two pods on one node must not both use the host network; empty if they may.
    """

    dynamic: bool = False
    at_worker: bool = False
    obstacle: str = ""
    alike: str = ""


@dataclass(frozen=True, slots=True)
class ElasticSpec:
    """The new spec that makes a job elastic.

    `spec`: the new spec.
    `renamed`: the old and the new key of the renamed replica type, or None.
    `changes`: the other changes to the spec, as a merge patch.
    `folded`: the replica type that was folded into the workers; empty if none was.
    `meets_by`: the new rendezvous of the job, in words.
    """

    spec: Raw
    renamed: tuple[str, str] | None
    changes: dict[str, Any]
    folded: str
    meets_by: str


@dataclass(frozen=True, slots=True)
class HostedPod:
    """A new pod on the host network.

    `name`, `job`: the names of the pod and of its job.
    `type`, `index`: its replica type in lower case, and its index; empty and -1 without labels.
    `base`: the first port of its job.
    """

    name: str
    job: str
    type: str
    index: int
    base: int


@runtime_checkable
class JobKind(Protocol):
    """A kind of training job.

    `name`: the kind, as in an object's `kind`.
    `group`, `version`, `plural`: its API group and version, and the name of the resource in URLs.
    `provider`: the software that installs the kind, with its versions, in words.
    `operator`: the operator of the kind, as managedBy names it; it also runs jobs without that.
    `rendered`: the resource with the templates that the operator renders from a job; None means
        that the job itself has the templates.
    `replica_specs`: the field of the spec through which templates are changed: the replica types,
        each with its template, or patches of the rendered object.
    `types`: the replica types in rank order; the others connect to the first. It is empty for a
        kind that allows any name for a type; their order is the order of the rendered object.
    `training_types`: the replica types with pods that train.
    `rank_zero`: the replica types with a first pod that may be rank 0, which prints the progress;
        the likeliest type first.
    `container`: the name of the training container in each pod.
    `restart`: the default restartPolicy of a replica type.
    `none_by_default`: the replica types with no pods by default; others have one pod.
    `unnumbered`: the replica types with a single pod that has no index in its labels and name.
    `port`: the name of the training container's port, where replicas find each other; empty if the
        operator declares none.
    `port_number`: the number that the operator declares for that port if a template does not.
    `job_label`, `type_label`, `index_label`: the labels of pods with the name of their job, their
        replica type, and their index.
    `suspend_path`: the field of the spec that suspends a job, beside managedBy and
        activeDeadlineSeconds.
    `recreates`: whether the operator soon recreates deleted pods. Otherwise kfext suspends the job.
    `written_env`: the variables that the operator itself writes into templates.
    `port_in_templates`: whether the operator derives the addresses of all pods from the port that
        the templates declare.
    `port_path`: the field of the spec with the port of a rendezvous at the first worker.
    `one_network`: whether all pods must be on the same network to reach each other.
    `across_nodes`: what a job on the host network of several nodes needs besides kfext's edits, as
        a clause; empty if it needs nothing.
    `buffers`: whether the operator lets Python buffer its output in blocks.
    `yields_gpu`: whether the hook can make the framework yield on a GPU.
    """

    name: str
    plural: str
    replica_specs: str
    types: tuple[str, ...]
    group: str = TRAINING_GROUP
    version: str = "v1"
    provider: str = "the training-operator 1.8 or 1.9"
    operator: str = TRAINING_OPERATOR
    rendered: Resource | None = None
    job_label: str = JOB_NAME
    type_label: str = REPLICA_TYPE
    index_label: str = REPLICA_INDEX
    recreates: bool = True
    written_env: frozenset[str] = frozenset()
    training_types: tuple[str, ...]
    rank_zero: tuple[str, ...]
    container: str
    restart: str
    none_by_default: tuple[str, ...] = ()
    unnumbered: tuple[str, ...] = ()
    port: str = ""
    port_number: int = 0
    suspend_path: tuple[str, ...] = ("runPolicy", "suspend")
    port_in_templates: bool = False
    port_path: tuple[str, ...] = ()
    one_network: bool = False
    across_nodes: str = ""
    buffers: bool = True
    yields_gpu: bool = False

    @property
    def api_version(self) -> str:
        """The API group and version, as in an object's `apiVersion`."""
        return f"{self.group}/{self.version}"

    def policy_field(self, name: str) -> str:
        """Return the path, for messages, of a field beside `suspend`."""
        return ".".join((*self.suspend_path[:-1], name))

    def suspend(self, suspended: bool) -> dict[str, Any]:
        """Return the change to a spec, as a merge patch, that suspends or resumes its job."""
        change: dict[str, Any] = {self.suspend_path[-1]: suspended}
        for parent in reversed(self.suspend_path[:-1]):
            change = {parent: change}
        return change

    def as_created(self, type_: str, pod_spec: Raw, *, specs: Raw) -> Raw:
        """Return the pod spec that the operator creates from the template of a replica type.

        `specs`: the replica types of the job. The default adds the port. An adapter adds everything
        else that counts for placement: init containers and their requests. Never raises.
        """
        if not self.port:
            return pod_spec
        return with_port(
            pod_spec, container=self.container, name=self.port, number=self.port_number
        )

    def templates(self, spec: Raw) -> Raw:
        """Return the replica types by key, each with its `replicas`, `template` and restartPolicy.

        `spec`: the spec of the job or, with `metadata`, of its rendered object. Never raises.
        """
        return mapping(spec.get(self.replica_specs))

    def template_annotations(self, spec: Raw) -> Sequence[Raw]:
        """Return the annotations of each template in the spec of a job or its rendered object."""
        types = self.templates(spec).values()
        return [mapping(member(type_, ("template", "metadata", "annotations"))) for type_ in types]

    def template_source(self, spec: Raw) -> TemplateSource | None:
        """Return the object that the operator renders a job with this spec from, or None."""
        return None

    def rendered_from(self, spec: Raw, source: Raw) -> Raw:
        """Return the spec, with `metadata`, of the rendered object, where it matters for placement.

        `spec`: the spec of the job. `source`: the object that `template_source` names.
        """
        return {}

    def unsupported(self, replica_spec: Raw) -> str:
        """Return the unsupported part of a replica type, in words; empty if it is supported."""
        return ""

    def template_changes(self, changes: Mapping[str, Any], *, written: Raw) -> dict[str, Any]:
        """Return the change to a spec, as a merge patch, that changes its replica types.

        `changes`: the changes by replica type, or for EVERY_TYPE. `written`: the old spec.
        """
        return {self.replica_specs: dict(changes)}

    def kept_changes(self, written: object) -> object:
        """Return the part of the field `replica_specs` that patches need besides the templates."""
        return written

    def owner_of(self, owner: Raw, labels: Mapping[str, str]) -> str:
        """Return the uid that a pod states for its job; empty for a pod of another kind.

        `owner`: the owner reference of the pod's controller. `labels`: the labels of the pod.
        """
        known = owner.get("apiVersion") == self.api_version and owner.get("kind") == self.name
        return text(owner.get("uid")) if known else ""

    def create_failures(self, job: "TrainingJob") -> Iterable[str]:
        """Yield the field selectors of events about pods of a job that could not be created."""
        yield f"regarding.uid={job.uid},reason=FailedCreatePod"

    def takes_part(self, metadata: Raw) -> bool:
        """Return whether kfext may handle a new pod of such a job; `metadata`: its metadata."""
        return True

    def replica_of(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Return the type, in lower case, and the index that the labels of a pod name, or None."""
        type_ = labels.get(self.type_label, "").lower()
        unnumbered = type_ in map(str.lower, self.unnumbered)
        index = 0 if unnumbered else index_in(labels.get(self.index_label, ""))
        return None if self.job_label not in labels or index is None else (type_, index)

    def pod_labels(
        self, job: str, type_: str, index: int, *, types: Sequence[str]
    ) -> Mapping[str, str]:
        """Return the labels that the operator puts on a replica's pod; all types in lower case."""
        leads = self.is_leader(type_, index, types=types)
        numbered = type_ not in map(str.lower, self.unnumbered)
        return {
            JOB_NAME: job,
            REPLICA_TYPE: type_,
            **({REPLICA_INDEX: str(index)} if numbered else {}),
            OPERATOR_NAME: f"{self.name.lower()}-controller",
            **({JOB_ROLE: "master"} if leads else {}),
        }

    def pod_name(self, job: str, type_: str, index: int) -> str:
        """Return the name of a replica's pod, or its prefix; `type_` is in lower case."""
        unnumbered = type_ in map(str.lower, self.unnumbered)
        return f"{job}-{type_}" if unnumbered else f"{job}-{type_}-{index}"

    def index_in_name(self, pod: str, *, job: str, type_: str) -> int | None:
        """Return the index in the name of a pod of a job, or None for a name of another form.

        `type_` is in lower case. Two jobs of a kind never have pods of the same name.
        """
        prefix = f"{job}-{type_}-"
        return index_in(pod.removeprefix(prefix)) if pod.startswith(prefix) else None

    def conditions(self, status: Raw) -> Iterable[Raw]:
        """Return the conditions of a job's status, with the training-operator's condition types."""
        return map(mapping, sequence(status.get("conditions")))

    def started(self, status: Raw) -> object:
        """Return the time of the last start in the status of a job."""
        return status.get("startTime")

    def trainer_status(self, status: Raw) -> Raw:
        """Return the progress that the program has posted to the operator; empty before a post."""
        return {}

    def is_own_port(self, port: Raw) -> bool:
        """Return whether a declared port is the operator's own."""
        return port.get("name") == self.port

    def is_leader(self, type_: str, index: int, *, types: Sequence[str]) -> bool:
        """Return whether the operator marks a replica as the master; all types in lower case."""
        leading = {leader.lower() for leader in self.rank_zero if leader != WORKER}.intersection(
            types
        )
        return type_ in leading or (not leading and (type_, index) == (WORKER.lower(), 0))

    def scaling(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Scaling:
        """Return the possible sizes of a job. Never raises."""
        return Scaling(fixed=f"the number of workers of {self.name}s cannot change")

    def rendezvous(self, spec: Raw, groups: "Sequence[ReplicaGroup]", *, job: str) -> Rendezvous:
        """Return the rendezvous of a job with the name `job`. Never raises."""
        return Rendezvous(obstacle=f"kfext does not know which ports the pods of {self.name}s use")

    def lacks_elasticity(self, spec: Raw) -> bool:
        """Return whether a job could be made elastic and its user has not decided about that."""
        return False

    def elastic_spec(
        self, job: "TrainingJob", spec: Raw, *, least: int, most: int
    ) -> ElasticSpec | str:
        """Return the spec of a job with `least` to `most` training pods, or why it stays fixed.

        Called only for a job that `lacks_elasticity`. Never raises.
        """
        return f"kfext cannot make {self.name}s elastic"

    def port_offset(self, job: "TrainingJob", type_: str, index: int) -> int | None:
        """Return the offset of a replica's port on the host network from the job's base, or None.

        `type_` is in lower case. The offset is the same for any number of workers.
        """
        return None

    def edits_on_host(self, job: "TrainingJob") -> Sequence[tuple[str, str]]:
        """Return the edits on the pods of a job on the host network, each with its reason."""
        return ()

    def listens_on(self, pod: HostedPod, env: Env) -> int | None:
        """Return the port that no other pod on the node may use, or None.

        `env`: the variables of the training container, as the operator wrote them.
        """
        return None

    def edited_env(self, pod: HostedPod, env: Env) -> Env:
        """Return the variables of a container, edited so that the pods meet on the host network.

        The edits depend only on the pod and the base port, so a job's pods agree on addresses.
        """
        return env


def value_in(env: Env, name: str) -> str:
    """Return the value of a variable; the last entry with the name counts, as in a container."""
    values = (
        text(variable.get("value")) for variable in reversed(env) if variable.get("name") == name
    )
    return next(values, "")


def with_value(env: Env, name: str, value: str) -> Env:
    """Return the variables with a value set; it replaces earlier entries with the name."""
    others = [variable for variable in env if variable.get("name") != name]
    return [*others, {"name": name, "value": value}]


def with_default(env: Env, name: str, **source: Any) -> Env:
    """Return the variables with an entry added, unless the user has set it."""
    present = any(variable.get("name") == name for variable in env)
    return env if present else [*env, {"name": name, **source}]

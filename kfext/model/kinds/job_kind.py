"""What kfext needs to know of a kind of training job: each kind answers it in one adapter.

Everything outside this folder asks the adapter and never compares kinds. The defaults fit a kind
with pods that stay on the pod network and a number of workers that never changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kfext.model.podspec import with_port
from kfext.model.tolerant import text

if TYPE_CHECKING:
    from kfext.model.job import TrainingJob
    from kfext.model.replica_group import ReplicaGroup

WORKER = "Worker"
"""The replica type, of every kind, with a number of replicas that may change."""

Env = list[dict[str, Any]]
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scaling:
    """Which numbers of workers a job can have.

    `elastic`: whether workers can come and go while the job runs.
    `any_start`: whether the job can start with any number of workers.
    `fixed`: why only the present number of workers can train, as a part of a sentence; empty if
        another number can.
    `restarts_all`: whether a change restarts the processes of all workers, even if only some come.
    `fewest`: the fewest workers that an elastic job runs with.
    `most`: the most workers that the job allows, 0 if it does not say.
    `autoscaled`: whether the operator makes a HorizontalPodAutoscaler for the job.
    `needs`: what would make an inelastic job elastic, as a part of a sentence.
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

    `dynamic`: whether the pods choose rank zero themselves, so that any worker may be rank zero.
    `at_worker`: whether the pods meet at the first worker, and not without it.
    `obstacle`: why the pods cannot meet on the network of their nodes, empty if they can.
    `alike`: why two pods on one node must not both use its network, empty if they may.
    """

    dynamic: bool = False
    at_worker: bool = False
    obstacle: str = ""
    alike: str = ""


@dataclass(frozen=True, slots=True)
class ElasticSpec:
    """The spec of a job that was made elastic.

    `spec`: the new spec.
    `renamed`: the key of a replica type before and after; None: no type has another key.
    `changes`: the other changes of the spec, as a merge patch.
    `folded`: the replica type that was folded into the workers, empty if none was.
    `meets_by`: the rendezvous that the job starts with now, in words.
    """

    spec: Raw
    renamed: tuple[str, str] | None
    changes: dict[str, Any]
    folded: str
    meets_by: str


@dataclass(frozen=True, slots=True)
class HostedPod:
    """A new pod that will use the network of its node.

    `name`, `job`: the names of the pod and of its job.
    `type`, `index`: its replica type in lower case, and its index; empty and -1 if its labels name
        no replica.
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
    `plural`: the name of the resource in URLs.
    `replica_specs`: the field of the spec that holds the replica types, each with its template. A
        release marks the job and each of these templates.
    `types`: the replica types in rank order; the others connect to the first.
    `trains`: the replica types with pods that train.
    `rank_zero`: the replica types with a first pod that may be rank zero, the likeliest type first.
        Rank zero prints the progress.
    `container`: the name of the training container in each pod.
    `restart`: the restartPolicy of a replica type that states none.
    `none_by_default`: the replica types without pods if they state no number; others have one pod.
    `unnumbered`: the replica types of a single pod that has no index, neither in a label nor in its
        name.
    `port`: the name of the port of that container at which replicas find each other; empty if the
        operator declares none.
    `port_number`: the number that the operator declares for that port if a template does not.
    `suspend_path`: the field of the spec that suspends a job.
    `port_in_templates`: whether the operator derives the addresses of all pods from the port that
        the templates declare.
    `port_path`: the field of the spec with the port of a rendezvous at the first worker.
    `one_network`: whether all pods must be on the same network to reach each other.
    `across_nodes`: what jobs on the host network of several nodes need beside kfext's edits, as a
        part of a sentence; empty if nothing.
    `buffers`: whether the operator lets Python write its output in blocks.
    `yields_gpu`: whether the hook can make the framework give way on a GPU.
    """

    name: str
    plural: str
    replica_specs: str
    types: tuple[str, ...]
    trains: tuple[str, ...]
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

    def suspend(self, suspended: bool) -> dict[str, Any]:
        """Return the change of a spec, as a merge patch, that suspends or resumes its job."""
        change: dict[str, Any] = {self.suspend_path[-1]: suspended}
        for parent in reversed(self.suspend_path[:-1]):
            change = {parent: change}
        return change

    def as_created(self, type_: str, pod_spec: Raw, *, specs: Raw) -> Raw:
        """Return the pod spec of a template as the operator creates the pods of a replica type.

        `specs`: the replica types of the job. The default adds the port. An adapter adds what else
        counts where a pod is placed: init containers and their requests. Never raises.
        """
        if not self.port:
            return pod_spec
        return with_port(
            pod_spec, container=self.container, name=self.port, number=self.port_number
        )

    def is_leader(self, type_: str, index: int, *, types: Sequence[str]) -> bool:
        """Return whether the operator marks a replica as the master; `types`: of the job.

        All types are in lower case.
        """
        leading = {leader.lower() for leader in self.rank_zero if leader != WORKER}.intersection(
            types
        )
        return type_ in leading or (not leading and (type_, index) == (WORKER.lower(), 0))

    def scaling(self, spec: Raw, groups: "Sequence[ReplicaGroup]") -> Scaling:
        """Return which numbers of workers a job can have. Never raises."""
        return Scaling(fixed=f"the workers of {self.name}s cannot come and go")

    def rendezvous(self, spec: Raw, groups: "Sequence[ReplicaGroup]", *, job: str) -> Rendezvous:
        """Return how the pods of a job with the name `job` find each other. Never raises."""
        return Rendezvous(obstacle=f"kfext does not know which ports the pods of {self.name}s use")

    def lacks_elasticity(self, spec: Raw) -> bool:
        """Return whether a job could be made elastic and its user has not decided that."""
        return False

    def made_elastic(
        self, job: "TrainingJob", spec: Raw, *, least: int, most: int
    ) -> ElasticSpec | str:
        """Return the spec of a job with `least` to `most` training pods, or why it stays fixed.

        Called only for a job that `lacks_elasticity`. Never raises.
        """
        return f"kfext cannot make {self.name}s elastic"

    def port_offset(self, job: "TrainingJob", type_: str, index: int) -> int | None:
        """Return the offset of a replica's port on the host network from the job's base, or None.

        `type_` is in lower case. The offset does not depend on the number of workers, so that a job
        may grow.
        """
        return None

    def edits_on_host(self, job: "TrainingJob") -> Sequence[tuple[str, str]]:
        """Return the edits on the pods of a job on the host network, each with its reason."""
        return ()

    def listens_on(self, pod: HostedPod, env: Env) -> int | None:
        """Return the port that no other pod on the node may have, or None.

        `env`: the variables of the training container, as the operator wrote them.
        """
        return None

    def edited_env(self, pod: HostedPod, env: Env) -> Env:
        """Return the variables of a container that make the pods meet on the host network.

        The edits follow only from the pod and the base of the job's ports, so that all pods of a
        job have the same addresses.
        """
        return env


def value_in(env: Env, name: str) -> str:
    """Return the value of a variable; the last entry of a name counts, as in a container."""
    found = (
        text(variable.get("value")) for variable in reversed(env) if variable.get("name") == name
    )
    return next(found, "")


def with_value(env: Env, name: str, value: str) -> Env:
    """Return the variables with one set; it replaces earlier entries of the name."""
    others = [variable for variable in env if variable.get("name") != name]
    return [*others, {"name": name, "value": value}]


def with_default(env: Env, name: str, **source: Any) -> Env:
    """Return the variables with one added, unless the user has set it."""
    present = any(variable.get("name") == name for variable in env)
    return env if present else [*env, {"name": name, **source}]

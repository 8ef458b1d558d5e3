"""What the volume claims of pods mean for their nodes, from the claims and volumes last seen.

kube-scheduler keeps a pod from the nodes that the volume of a bound claim excludes. It lets a pod
wait for a claim that is bound on its own. It chooses node and volume together for a claim whose
storage class waits for the first consumer; that is not modelled.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kfext.model.constraints import Constraints, VolumeConstraints
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.volume import StorageClass, Volume, VolumeClaim


class Volumes:
    """Claims, volumes and storage classes as last seen.

    `changed` is called with the namespace of the jobs for which something may have changed, empty
    for all namespaces.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._claims: dict[tuple[str, str], VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}

    def observe_claim(self, old: VolumeClaim | None, new: VolumeClaim | None) -> None:
        """Take in a claim as it stands; None for `new` when it is gone."""
        if new is not None:
            self._claims[new.namespace, new.name] = new
        elif old is not None:
            self._claims.pop((old.namespace, old.name), None)
        self._changed(_namespace(old, new))

    def observe_volume(self, old: Volume | None, new: Volume | None) -> None:
        """Take in a volume as it stands; None for `new` when it is gone."""
        if new is not None:
            self._volumes[new.name] = new
        elif old is not None:
            self._volumes.pop(old.name, None)
        self._changed(_namespace(old, new))

    def observe_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Take in a storage class as it stands; None for `new` when it is gone."""
        if new is not None:
            self._classes[new.name] = new
        elif old is not None:
            self._classes.pop(old.name, None)
        self._changed("")

    def claims(self) -> tuple[VolumeClaim, ...]:
        """Return every claim."""
        return tuple(self._claims.values())

    def volumes(self) -> tuple[Volume, ...]:
        """Return every volume."""
        return tuple(self._volumes.values())

    def classes(self) -> tuple[StorageClass, ...]:
        """Return every storage class."""
        return tuple(self._classes.values())

    def of_job(self, job: TrainingJob) -> TrainingJob:
        """Return a job with what its claims mean now; the same object if it has no claims."""
        if not claiming(job):
            return job
        groups = (
            replace(group, constraints=self._of(group.constraints, job.namespace))
            for group in job.groups
        )
        return replace(job, groups=tuple(groups))

    def of_pods(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """Yield pods with what their claims mean now, of which only a gated pod has any."""
        for pod in pods:
            if pod.constraints is None or not pod.constraints.claims:
                yield pod
            else:
                yield replace(pod, constraints=self._of(pod.constraints, pod.namespace))

    def _of(self, constraints: Constraints, namespace: str) -> Constraints:
        terms, pending, unmodelled = [], [], []
        for name in constraints.claims:
            claim = self._claims.get((namespace, name), VolumeClaim(namespace, name))
            storage_class = self._classes.get(claim.storage_class)
            volume = self._volumes.get(claim.volume)
            if claim.one_pod:
                unmodelled.append(f"volume claim {name}, which one pod at a time may use")
            elif storage_class is not None and storage_class.delayed and not claim.volume:
                unmodelled.append(f"volume claim {name}, which waits for its first consumer")
            elif not claim.bound or volume is None:
                pending.append(name)
            elif volume.terms is not None:
                terms.append(volume.terms)
            elif volume.zoned:
                unmodelled.append(f"volume claim {name}, whose volume names its zone by labels")
        found = VolumeConstraints(tuple(dict.fromkeys(terms)), tuple(pending), tuple(unmodelled))
        return replace(constraints, volumes=found)


def claiming(job: TrainingJob) -> bool:
    """Return whether any pod of a job has a volume claim."""
    return any(group.constraints.claims for group in job.groups)


def _namespace(old: VolumeClaim | Volume | None, new: VolumeClaim | Volume | None) -> str:
    return (new.namespace if new else "") or (old.namespace if old else "")

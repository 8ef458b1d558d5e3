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

ClaimKey = tuple[str, str]
"""The namespace and the name of a claim."""


class Volumes:
    """Claims, volumes and storage classes as last seen.

    `changed` is called with each claim that means something else than before.
    """

    def __init__(self, changed: Callable[[ClaimKey], None]) -> None:
        self._changed = changed
        self._claims: dict[ClaimKey, VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._naming: dict[str, set[ClaimKey]] = {}

    def observe_claim(self, old: VolumeClaim | None, new: VolumeClaim | None) -> None:
        """Take in a claim as it stands; None for `new` when it is gone."""
        if (seen := new or old) is None:
            return
        key = (seen.namespace, seen.name)
        before, known = self._meaning(*key), self._claims.pop(key, None)
        if known is not None and known.volume:
            self._naming[known.volume].discard(key)
            if not self._naming[known.volume]:
                del self._naming[known.volume]
        if new is not None:
            self._claims[key] = new
        if new is not None and new.volume:
            self._naming.setdefault(new.volume, set()).add(key)
        if self._meaning(*key) != before:
            self._changed(key)

    def observe_volume(self, old: Volume | None, new: Volume | None) -> None:
        """Take in a volume as it stands; None for `new` when it is gone."""
        if (seen := new or old) is None:
            return
        if new is not None:
            self._volumes[new.name] = new
        else:
            self._volumes.pop(seen.name, None)
        for key in self._naming.get(seen.name, ()):
            if seen.namespace in {"", key[0]}:
                self._changed(key)

    def observe_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Take in a storage class as it stands; None for `new` when it is gone."""
        if (seen := new or old) is None:
            return
        if new is not None:
            self._classes[new.name] = new
        else:
            self._classes.pop(seen.name, None)
        for key, claim in self._claims.items():
            if claim.storage_class == seen.name:
                self._changed(key)

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
        if not any(group.constraints.claims for group in job.groups):
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
        each = [self._meaning(namespace, name) for name in constraints.claims]
        found = VolumeConstraints(
            tuple(dict.fromkeys(terms for one in each for terms in one.terms)),
            tuple(name for one in each for name in one.pending),
            tuple(why for one in each for why in one.unmodelled),
        )
        return replace(constraints, volumes=found)

    def _meaning(self, namespace: str, name: str) -> VolumeConstraints:
        """Return what one claim means for the pods that use it."""
        claim = self._claims.get((namespace, name), VolumeClaim(namespace, name))
        storage_class = self._classes.get(claim.storage_class)
        volume = self._volumes.get(claim.volume)
        if claim.one_pod:
            why = f"volume claim {name}, which one pod at a time may use"
        elif storage_class is not None and storage_class.delayed and not claim.volume:
            why = f"volume claim {name}, which waits for its first consumer"
        elif not claim.bound or volume is None:
            return VolumeConstraints(pending=(name,))
        elif volume.terms is not None:
            return VolumeConstraints(terms=(volume.terms,))
        elif volume.zoned:
            why = f"volume claim {name}, whose volume names its zone by labels"
        else:
            return VolumeConstraints()
        return VolumeConstraints(unmodelled=(why,))


def claims_of(job: TrainingJob) -> frozenset[ClaimKey]:
    """Return the claims that decide where pods of a job may run: none once it has ended."""
    groups = () if job.finished else job.groups
    names = (name for group in groups for name in group.constraints.claims)
    return frozenset((job.namespace, name) for name in names)

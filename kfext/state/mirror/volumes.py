"""The nodes that the volume claims of pods allow, from the claims and volumes last seen.

kube-scheduler keeps a pod off the nodes that the volume of a bound claim excludes. A pod waits
until its claims with immediate binding are bound. If the storage class of a claim waits for the
first consumer, kube-scheduler chooses node and volume together; kfext does not model that.
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
    """Volume `claims`, and `volumes` and storage `classes` by name, as last seen.

    `changed` is called with each claim that may have new constraints.
    """

    def __init__(self, changed: Callable[[ClaimKey], None]) -> None:
        self._changed = changed
        self.claims: dict[ClaimKey, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self._claims_by_volume: dict[str, set[ClaimKey]] = {}

    def observe_claim(self, old: VolumeClaim | None, new: VolumeClaim | None) -> None:
        """Record the present version of a claim; `new` is None when the claim is gone."""
        if (seen := new or old) is None:
            return
        key = (seen.namespace, seen.name)
        before, earlier = self._resolve(*key), self.claims.pop(key, None)
        if earlier is not None and earlier.volume:
            self._claims_by_volume[earlier.volume].discard(key)
            if not self._claims_by_volume[earlier.volume]:
                del self._claims_by_volume[earlier.volume]
        if new is not None:
            self.claims[key] = new
        if new is not None and new.volume:
            self._claims_by_volume.setdefault(new.volume, set()).add(key)
        if self._resolve(*key) != before:
            self._changed(key)

    def observe_volume(self, old: Volume | None, new: Volume | None) -> None:
        """Record the present version of a volume; `new` is None when the volume is gone."""
        if (seen := new or old) is None:
            return
        if new is not None:
            self.volumes[new.name] = new
        else:
            self.volumes.pop(seen.name, None)
        for key in self._claims_by_volume.get(seen.name, ()):
            if seen.namespace in {"", key[0]}:
                self._changed(key)

    def observe_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Record the present version of a storage class; `new` is None when it is gone."""
        if (seen := new or old) is None:
            return
        if new is not None:
            self.classes[new.name] = new
        else:
            self.classes.pop(seen.name, None)
        for key, claim in self.claims.items():
            if claim.storage_class == seen.name:
                self._changed(key)

    def of_job(self, job: TrainingJob) -> TrainingJob:
        """Return a job with the present constraints of its claims."""
        if not any(group.constraints.claims for group in job.groups):
            return job
        groups = (
            replace(group, constraints=self._of(group.constraints, job.namespace))
            for group in job.groups
        )
        return replace(job, groups=tuple(groups))

    def of_pods(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """Yield pods with the present constraints of their claims; only a gated pod has claims."""
        for pod in pods:
            if pod.constraints is None or not pod.constraints.claims:
                yield pod
            else:
                yield replace(pod, constraints=self._of(pod.constraints, pod.namespace))

    def _of(self, constraints: Constraints, namespace: str) -> Constraints:
        by_claim = [self._resolve(namespace, name) for name in constraints.claims]
        volumes = VolumeConstraints(
            tuple(dict.fromkeys(terms for volumes in by_claim for terms in volumes.terms)),
            tuple(name for volumes in by_claim for name in volumes.pending),
            tuple(why for volumes in by_claim for why in volumes.unmodelled),
        )
        return replace(constraints, volumes=volumes)

    def _resolve(self, namespace: str, name: str) -> VolumeConstraints:
        claim = self.claims.get((namespace, name), VolumeClaim(namespace, name))
        storage_class = self.classes.get(claim.storage_class)
        volume = self.volumes.get(claim.volume)
        if claim.one_pod:
            why = f"volume claim {name}, which one pod at a time may use"
        elif storage_class is not None and storage_class.delayed and not claim.volume:
            why = f"volume claim {name}, which waits for its first consumer"
        elif not claim.bound or volume is None:
            return VolumeConstraints(pending=(name,))
        elif volume.terms is not None:
            return VolumeConstraints(terms=(volume.terms,))
        elif volume.zoned:
            why = f"volume claim {name}, with a volume that names its zone by labels"
        else:
            return VolumeConstraints()
        return VolumeConstraints(unmodelled=(why,))


def claims_of(job: TrainingJob) -> frozenset[ClaimKey]:
    """Return the claims that restrict the nodes of a job's pods; none after its end."""
    groups = () if job.finished else job.groups
    names = (name for group in groups for name in group.constraints.claims)
    return frozenset((job.namespace, name) for name in names)

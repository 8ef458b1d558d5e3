"""A job that another controller owns and waits for has pods from its creation on."""

from dataclasses import replace

import pytest

from kfext.core.lifecycle.steps import Pin, Release, Suspend
from kfext.sim.jobs import JobSpec
from kfext.sim.objects import LiveJob, Raw
from tests.unit.sim.bed import STATIC, Bed

OWNED = replace(STATIC, arrives=10.0, servers=0, cpu=1000, steps=100)
LOW = replace(OWNED, name="low", arrives=0.0, steps=60)


def wrap(raw: Raw) -> Raw:
    """The job `train` as its AppWrapper creates it; any other job as it is."""
    owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w"}
    owners = [{**owner, "controller": True}] if raw["metadata"]["name"] == "train" else []
    return {**raw, "metadata": {**raw["metadata"], "ownerReferences": owners}}


class Owned(Bed):
    """A cluster in which an AppWrapper creates the job `train`."""

    def submit(self, spec: JobSpec) -> LiveJob:
        admit, self.api.admit = self.api.admit, lambda raw: admit(wrap(raw))
        live = super().submit(spec)
        self.api.admit = admit
        return live


def written(bed: Bed) -> list[type]:
    return [type(write.step) for write in bed.driver.written if write.job == "train"]


@pytest.mark.parametrize("until", [60, 10**6], ids=["capacity is freed", "no capacity is freed"])
def test_an_owned_job_has_its_pods_and_is_never_suspended(until: int) -> None:
    bed = Owned(replace(LOW, steps=until), OWNED, a=2000)
    for at in range(20, 400, 10):
        job = bed.at(at).job()
        assert not job.job.suspend, at
        assert len(job.pods) == 2, at
    assert Suspend not in written(bed)
    freed = until == 60
    assert (Pin in written(bed), Release in written(bed)) == (freed, not freed)

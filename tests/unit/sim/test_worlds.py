"""The shipped worlds: drawn from a seed, with the load of their name."""

import pytest

from kfext.sim.gpus import GpuPace
from kfext.sim.worlds import WORLDS

LOADS = {name: float(name.split("-")[1]) for name in WORLDS if name.startswith(("cpu", "gpu"))}


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_is_always_the_same_world(name: str) -> None:
    assert WORLDS[name](7) == WORLDS[name](7)
    assert WORLDS[name](7) != WORLDS[name](8)


@pytest.mark.parametrize("name", WORLDS)
def test_each_job_fits_the_empty_nodes(name: str) -> None:
    for seed in range(20):
        world = WORLDS[name](seed)
        for job in world.jobs:
            assert job.pods <= sum(size.cpu // job.cpu for size in world.nodes.values())


@pytest.mark.parametrize("name", [name for name in LOADS if not name.startswith("gpu")])
def test_the_submitted_work_is_the_load_in_the_name(name: str) -> None:
    loads = []
    for seed in range(30):
        world = WORLDS[name](seed)
        work = sum(job.alone * job.pods for job in world.jobs)
        slots = sum(size.cpu for size in world.nodes.values()) / 1000
        loads.append(work / (slots * world.jobs[-1].arrives))
    # The last job comes a little before the end of the time, and jobs differ in their start.
    assert sum(loads) / len(loads) == pytest.approx(LOADS[name], rel=0.06)


@pytest.mark.parametrize("model", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_gpus_on_several_nodes_are_slower_than_on_one(model: str) -> None:
    pace = GpuPace(model, 512)
    assert pace.seconds(4, apart=True) > pace.seconds(4)
    assert pace.seconds(1, apart=True) == pace.seconds(1)
    assert pace.seconds(16) == pace.seconds(16, apart=True)

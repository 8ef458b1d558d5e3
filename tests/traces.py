"""The files of kfext that four scenarios visit; `python -m tests.traces` counts them by package.

A file counts if one of its functions is called. The code runs as it is, without stubs.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import click
import jsonpatch

import kfext
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.core.lifecycle.steps import Pin, Rescale, Resize, Step
from kfext.gpu.agent.card import SharedCard
from kfext.gpu.hook import words
from kfext.model.gpu import decode_terms
from kfext.model.namespace import Namespace
from kfext.names import GPU_TERMS, MANAGED
from kfext.sim.jobs import JobSpec, Pace, Style
from tests.gpu_builders import sharing
from tests.unit.gpu.agent.hooked import LOW, join_process
from tests.unit.resizing.bed import CpuBed
from tests.unit.sharing.stages import World
from tests.unit.sim.bed import GANG, LONG, Bed

(HOUSE,) = map(Path, kfext.__path__)
CONTEXT = ReviewContext(namespace=Namespace("", {MANAGED: "true"}), controller_alive=True)
PLAIN = JobSpec("train", "PyTorchJob", Style.GANG, 1.0, 3, Pace(1.0, 0.0, 0.0), 100)
_LONGEST = 4000.0
"""Simulated seconds within which a scenario must end."""
_SHARED_SECONDS = 60.0
"""Seconds within which an agent has measured what a low-priority job costs its busy neighbour."""

Call = tuple[Path, str]
"""The file of a function, and its name."""


def executed(act: Callable[[], object]) -> set[Call]:
    """Run `act`; return the functions that it calls, excluding code that runs on import."""
    called: set[tuple[str, str]] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            called.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        act()
    finally:
        sys.setprofile(before)
    return {(Path(file), name) for file, name in called}


def visited(act: Callable[[], object]) -> set[str]:
    """Return the files that `act` visits, such as `core/queue/order.py`, except the simulation."""
    files = {file for file, _ in executed(act) if file.is_relative_to(HOUSE)}
    paths = (file.relative_to(HOUSE) for file in files)
    return {path.as_posix() for path in paths if path.parts[0] != "sim"}


def plain() -> set[str]:
    bed = Bed(PLAIN, policy=None, late_writes=False, a=4000, b=4000)
    return visited(lambda: _until_pinned(bed))


def elastic() -> set[str]:
    bed = Bed(LONG, GANG, policy=None, late_writes=False, a=4000)
    return visited(lambda: _until(bed, Rescale))


def resize() -> set[str]:
    bed = CpuBed()
    bed.add("old", loss_half_life=30.0)
    bed.at(120)
    bed.add("new")
    return visited(lambda: _until(bed, Resize))


def share() -> set[str]:
    return visited(_share)


def _share() -> None:
    """Admit, place and pin a job that shares a GPU, beside a low-priority job."""
    builder = sharing("0.5", priority="high")
    builder.raw = jsonpatch.apply_patch(builder.raw, list(mutate_job(builder.raw, CONTEXT).ops))
    world = World(builder)
    world.step()
    world.create()
    world.reserve()
    assert isinstance(world.step(), Pin)
    (pod,) = world.pods.values()
    terms = decode_terms(pod["metadata"]["annotations"][GPU_TERMS])
    assert terms is not None
    card = SharedCard(0)
    card.reserve("GPU-1")
    high, low = join_process(card, "high", terms), join_process(card, "low", LOW)
    low.set_asking()
    now = 1.0
    while now < _SHARED_SECONDS:
        high.set_steps(now)
        high.set_busy(now)
        now += card.update(now)
    page = low.read().orders.page
    assert page is not None
    assert page[words.ALLOWANCE_NS], "its neighbour may do nothing"
    for name in ("high", "low"):
        card.withdraw(name)


def _until_pinned(bed: Bed) -> None:
    """Run until a pod has a pin; a gang that is born pinned has them from its creation."""
    while not any(
        live.pod.pinned_to for job in bed.api.jobs.values() for live in job.pods.values()
    ):
        bed.after(1)
        assert bed.clock.now < _LONGEST, "no pod is pinned"


def _until(bed: Bed, step: type[Step]) -> None:
    while not any(isinstance(write.step, step) for write in bed.driver.written):
        bed.after(1)
        assert bed.clock.now < _LONGEST, f"no {step.__name__}"


SCENARIOS: Mapping[str, Callable[[], set[str]]] = {
    "a plain job of three pods, from CREATE to its pins": plain,
    "an elastic job and a gang, from CREATE to fewer workers": elastic,
    "two jobs on one node, from the lines of their logs to a resize": resize,
    "a job that shares a GPU, from CREATE to the work that its neighbour may do": share,
}


def _package(path: str) -> str:
    first, *rest = path.split("/")
    return f"core/{rest[0].removesuffix('.py')}" if first == "core" else first.removesuffix(".py")


def main() -> None:
    """Print the number of files that each scenario visits, by package."""
    for scenario, trace in SCENARIOS.items():
        files = trace()
        packages = sorted(Counter(map(_package, files)).items())
        click.echo(f"{len(files):4} files: {scenario}")
        click.echo("     " + ", ".join(f"{package} {number}" for package, number in packages))


if __name__ == "__main__":
    main()

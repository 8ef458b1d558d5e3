"""A job that shares no GPU never runs a line of GPU sharing's own package."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import jsonpatch

import kfext.gpu
from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import Facts
from kfext.core.lifecycle.steps import Pin, Unsuspend
from kfext.gpu.rules.turns import Turns
from tests.builders import job
from tests.unit.sharing.test_path import World

(WING,) = map(Path, kfext.gpu.__path__)
HOUSE = WING.parent
FACTS = Facts(namespace_labels={names.MANAGED: "true"}, controller_alive=True)


def executed(act: Callable[[], object]) -> set[Path]:
    """Run `act`; return the files of the functions that it calls, without imports."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return set(map(Path, called))


def start_a_plain_job() -> None:
    """Admit, plan and pin a job of two pods."""
    made = job().worker(2, gpus=1)
    made.raw = jsonpatch.apply_patch(made.raw, list(mutate_job(made.raw, FACTS).ops))
    world = World(made)
    assert isinstance(world.step(), Unsuspend)
    assert not world.create(0)
    assert not world.create(1)
    step = world.step()
    assert isinstance(step, Pin)
    assert len(step.pins) == 2


def test_a_plain_job_goes_from_admission_to_its_pins_without_the_wing() -> None:
    files = executed(start_a_plain_job)
    rooms = {path.relative_to(HOUSE).parts[0] for path in files if path.is_relative_to(HOUSE)}
    assert {"core", "model", "state"} <= rooms
    assert {path for path in files if path.is_relative_to(WING)} == set()


def test_the_trace_shows_the_wing_where_it_is_executed() -> None:
    assert WING / "rules/turns.py" in executed(Turns)

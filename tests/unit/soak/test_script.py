"""The soak's script depends on its dice alone, and speaks of what is there."""

import random
from itertools import islice

import pytest

from e2e.soak.deeds import Deeds, Upsets
from e2e.soak.others import Others
from e2e.soak.roster import Roster
from e2e.soak.script import Action, Script
from e2e.soak.tenants import Tenants
from e2e.soak.trouble import Trouble

STEPS = 1500


def actions(seed: int, nodes: int = 12) -> list[Action]:
    roster = Roster([f"node-{number}" for number in range(nodes)])
    return list(islice(Script(random.Random(seed), roster), STEPS))


def test_one_seed_is_one_sequence() -> None:
    assert actions(7) == actions(7)
    assert actions(7) != actions(8)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_action_comes_and_somebody_carries_it_out(seed: int) -> None:
    names = {action.name for action in actions(seed)}
    actors = (Deeds, Upsets, Others, Tenants, Trouble)
    assert all(sum(hasattr(actor, name) for actor in actors) == 1 for name in names)
    assert len(names) == 39


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_is_brought_down_comes_back_before_another_goes(seed: int) -> None:
    down = None
    back = {"pause_controller": "continue_controller", "kill_webhook": "start_webhook"}
    for action in actions(seed):
        if action.name in {*back, "kill_controller"}:
            assert down is None
        if action.name in back:
            down = back[action.name]
        elif action.name == down:
            down = None


@pytest.mark.parametrize("seed", range(3))
def test_at_most_one_namespace_refuses_writes_and_not_for_ever(seed: int) -> None:
    refusing: list[str] = []
    for action in actions(seed):
        if action.name == "refuse_here":
            assert not refusing
            refusing.append(action.arguments[0])
        elif action.name == "admit_here":
            assert refusing == [action.arguments[0]]
            refusing.clear()


@pytest.mark.parametrize("seed", range(3))
def test_nobody_resumes_or_ends_a_job_of_a_tenant(seed: int) -> None:
    made = [action.arguments for action in actions(seed) if action.name == "submit_forged"]
    forged = {manifest["metadata"]["name"] for _, manifest in made}
    touched = [action for action in actions(seed) if forged & set(map(str, action.arguments))]
    assert {action.name for action in touched} <= {"drop_forged", "plant"}


@pytest.mark.parametrize("seed", range(3))
def test_most_nodes_stay_and_are_sound(seed: int) -> None:
    roster = Roster([f"node-{number}" for number in range(20)])
    for _ in islice(Script(random.Random(seed), roster), STEPS):
        assert len(roster.sound) >= 16
        assert len(roster.nodes) <= 20

"""The soak's script depends only on its seed, and names only existing objects."""

import random
from itertools import islice

import pytest

from e2e.soak.actions import ClusterActions, Disturbances
from e2e.soak.inventory import Inventory
from e2e.soak.pod_actions import PodActions
from e2e.soak.process_faults import ProcessFaults
from e2e.soak.script import Action, Script
from e2e.soak.tenants import Tenants

STEPS = 1500


def actions(seed: int, nodes: int = 12) -> list[Action]:
    inventory = Inventory([f"node-{number}" for number in range(nodes)])
    return list(islice(Script(random.Random(seed), inventory), STEPS))


def test_one_seed_is_one_sequence() -> None:
    assert actions(7) == actions(7)
    assert actions(7) != actions(8)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_action_occurs_and_is_carried_out(seed: int) -> None:
    names = {action.name for action in actions(seed)}
    actors = (ClusterActions, Disturbances, PodActions, Tenants, ProcessFaults)
    assert all(sum(hasattr(actor, name) for actor in actors) == 1 for name in names)
    assert len(names) == 41

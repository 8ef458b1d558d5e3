from dataclasses import fields

import pytest

from kfext.core.placement.limits import Limits, limits_of
from kfext.core.settings.resolve import resolve
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.model.policy import Placement, TrainingPolicy
from kfext.names import COLOCATION

NOTHING = limits_of(Settings(), excluded=())
SET: dict[str, tuple[Limits, object]] = {
    "one_node": (limits_of(Settings(colocation=Colocation.REQUIRED), excluded=()), True),
    "excluded": (limits_of(Settings(), excluded=["b", "a"]), ("b", "a")),
    "closed": (limits_of(Settings(), excluded=(), closed=[("a", 0)]), (("a", 0),)),
    "topology_keys": (
        limits_of(Settings(placement=Placement(topology_keys=("zone", "rack"))), excluded=()),
        ("zone", "rack"),
    ),
    "assumed": (
        limits_of(Settings(placement=Placement(assumed_requests={"cpu": 1})), excluded=()),
        (("cpu", 1),),
    ),
    "assumed_burst": (
        limits_of(Settings(placement=Placement(assumed_burst=500)), excluded=()),
        500,
    ),
}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_comes_from_somewhere_and_changes_the_key(name: str) -> None:
    limits, want = SET[name]
    assert getattr(limits, name) == want
    assert limits != NOTHING
    assert hash(limits) != hash(NOTHING)


STATED = {COLOCATION: "preferred"}
WHERE: dict[str, tuple[Settings, int | None]] = {
    "nowhere": (resolve({}, {}, TrainingPolicy()), 4000),
    "on the job": (resolve(STATED, {}, TrainingPolicy()), None),
    "on its namespace": (resolve({}, STATED, TrainingPolicy()), 4000),
    "in its policy": (resolve({}, {}, TrainingPolicy(settings=STATED)), 4000),
}


@pytest.mark.parametrize(("settings", "want"), WHERE.values(), ids=WHERE)
def test_what_pods_can_use_counts_unless_colocation_is_set(
    settings: Settings, want: int | None
) -> None:
    assert limits_of(settings, excluded=()).assumed_burst == want


ALLOWED: dict[str, tuple[Limits, list[str], bool]] = {
    "anywhere": (NOTHING, ["a", "b"], True),
    "one node, if required": (SET["one_node"][0], ["a", "a"], True),
    "not two, if one is required": (SET["one_node"][0], ["a", "b"], False),
}


@pytest.mark.parametrize(("limits", "nodes", "want"), ALLOWED.values(), ids=ALLOWED)
def test_which_nodes_a_whole_gang_may_have(limits: Limits, nodes: list[str], want: bool) -> None:
    assert limits.allow(nodes) is want

"""Between which namespaces a job gives workers for one that waits."""

from dataclasses import replace

import pytest

from kfext.model.label_selector import LabelSelector
from kfext.model.namespace import Namespace
from kfext.model.policy import PolicyChoice, TrainingPolicy
from kfext.names import MANAGED
from tests.unit.fluid.bed import GANG, LONG, Bed, scaled_bed, sizes

GIVER, WAITING = "giving", "waiting"


def across(of: Bed, *forbidding: str) -> Bed:
    """Show the planner two namespaces, and a policy for those that allow nothing across."""
    for name in (GIVER, WAITING):
        shown = Namespace(name, labels={MANAGED: "true", "name": name})
        of.planner.settings.observe_namespace(None, shown)
    for name in forbidding:
        within = PolicyChoice(parameters={"acrossNamespaces": 0})
        policy = TrainingPolicy(
            name, selector=LabelSelector({"name": name}), companion={"scale": within}
        )
        of.planner.settings.observe_policy(policy)
    return of


ACROSS: dict[str, tuple[str, tuple[str, ...], list[int]]] = {
    "both allow it": (WAITING, (), [2]),
    "that of the job that waits does not": (WAITING, (WAITING,), []),
    "that of the job that would give does not": (WAITING, (GIVER,), []),
    "within a namespace nothing has to be allowed": (GIVER, (GIVER,), [2]),
}


@pytest.mark.parametrize(("namespace", "forbidding", "given"), ACROSS.values(), ids=ACROSS)
def test_jobs_give_across_namespaces_only_if_both_allow_it(
    namespace: str, forbidding: tuple[str, ...], given: list[int]
) -> None:
    gang = replace(GANG, namespace=namespace)
    of = across(scaled_bed(replace(LONG, namespace=GIVER), gang), *forbidding).at(200)
    assert sizes(of) == given
    assert (of.job("gang").training.began is not None) == bool(given)

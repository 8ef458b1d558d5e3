"""Whether kfext places a job: admission, the controller and `plan -f` give the same answer."""

from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from kfext import names
from kfext.cli.plan import Forecast, sources_in
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.core.eligibility import not_placed
from kfext.core.lifecycle.steps import Release, Step, Unsuspend, Wait
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from kfext.model.verdict import Verdict
from tests.builders import Raw, job, ledger, node
from tests.trainjobs import replicated_job, train_job
from tests.unit.trainjob.test_path import RUNTIME, World

NOT_HELD, SUSPENDED, PLACED = "runs as on plain Kubernetes", "stays suspended", "is placed"
TEAM = Namespace("team", {names.MANAGED: "true"})
NODES = (node("a", cpu="8", gpus=2), node("b", cpu="8"))


class Answer(NamedTuple):
    """The fate of a job, and the reason if kfext does not place it."""

    fate: str
    reason: str = ""


class Case(NamedTuple):
    """A pod spec, and the answer for a job with each value of `colocation`.

    `nodes_decide`: whether the answer depends on the nodes, which admission does not see.
    """

    spec: Raw
    preferred: Answer
    required: Answer
    nodes_decide: bool = False


def devices(amounts: dict[str, str]) -> Raw:
    """Return the spec of a pod with one container that requests extended resources."""
    return {"containers": [{"name": "node", "resources": {"limits": amounts}}]}


HANDS_OFF = Answer(NOT_HELD, names.REASON_HANDS_OFF)
TOO_BIG = Answer(SUSPENDED, names.REASON_TOO_BIG)
CASES = {
    "no obstacle": Case({}, Answer(PLACED), Answer(PLACED)),
    "another scheduler places its pods": Case(
        {"schedulerName": "kai-scheduler"}, HANDS_OFF, HANDS_OFF
    ),
    "the default scheduler by name": Case(
        {"schedulerName": "default-scheduler"}, Answer(PLACED), Answer(PLACED)
    ),
    "a term that kfext does not model": Case(
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        Answer(NOT_HELD, names.REASON_UNMODELLED),
        Answer(SUSPENDED, names.REASON_UNMODELLED),
    ),
    "more tolerations than kfext reads": Case(
        {"tolerations": [{"key": f"k{number}"} for number in range(65)]},
        HANDS_OFF,
        Answer(SUSPENDED, names.REASON_HANDS_OFF),
    ),
    "a resource that no node lists, beside one of its domain that nodes list (HAMi)": Case(
        devices({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}), HANDS_OFF, HANDS_OFF, True
    ),
    "only a resource that no node lists, but that later nodes may list": Case(
        devices({"nvidia.com/mig-1g.5gb": "1"}), TOO_BIG, TOO_BIG, True
    ),
    "a resource of another domain that no node lists, but that later nodes may list": Case(
        devices({"nvidia.com/gpu": "1", "vpc.amazonaws.com/efa": "1"}), TOO_BIG, TOO_BIG, True
    ),
}


def answer_of(step: Step | None) -> Answer:
    """Return the answer in the first step of a held job."""
    if isinstance(step, Unsuspend):
        return Answer(PLACED)
    assert isinstance(step, Release | Wait), step
    assert step.verdict is not None
    return Answer(NOT_HELD if isinstance(step, Release) else SUSPENDED, step.verdict.reason)


def at_admission(case: Case, colocation: str) -> Answer:
    builder = job().worker(2, cpu="1", spec=case.spec).annotated(names.COLOCATION, colocation)
    context = ReviewContext(namespace=TEAM, controller_alive=True)
    result: Verdict = mutate_job(builder.raw, context).verdicts[0]
    if result.reason != names.REASON_HELD:
        return Answer(NOT_HELD, result.reason)
    why = case.required.reason if "kfext does not place it" in result.message else ""
    return Answer(SUSPENDED, why) if why else Answer(PLACED)


def once_rendered(case: Case, colocation: str) -> Answer:
    world = World(train_job(held=True, annotations={names.COLOCATION: colocation}), nodes=0)
    for each in NODES:
        world.planner.cluster.observe_node(None, each)
    rendered = replicated_job()
    rendered["template"]["spec"]["template"]["spec"] |= deepcopy(case.spec)
    world.render(rendered)
    return answer_of(world.step())


def plan(document: Raw, *sources: Raw) -> Answer:
    forecast = Forecast(Snapshot(nodes=NODES, namespaces={"team": TEAM}), now=1.0)
    known = sources_in([*sources], [document], home="team")
    result = forecast.submit(document, home="team", sources=known)
    fates = {"starts": PLACED, "not-held": NOT_HELD, "waits": SUSPENDED}
    return Answer(fates[result.outcome], "" if result.outcome == "starts" else result.reason)


def in_plan(case: Case, colocation: str) -> Answer:
    builder = job().worker(2, cpu="1", spec=case.spec).annotated(names.COLOCATION, colocation)
    metadata = {key: builder.raw["metadata"][key] for key in ("name", "annotations")}
    return plan({**builder.raw, "metadata": metadata})


def in_plan_from_its_runtime(case: Case, colocation: str) -> Answer:
    runtime: dict[str, Any] = deepcopy(RUNTIME)
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"] |= deepcopy(case.spec)
    return plan(train_job(annotations={names.COLOCATION: colocation}), runtime)


MOMENTS = (at_admission, once_rendered, in_plan, in_plan_from_its_runtime)


@pytest.mark.parametrize("colocation", ["preferred", "required"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_answer_is_the_same_at_each_moment(case: Case, moment: Any, colocation: str) -> None:
    want = getattr(case, colocation)
    if case.nodes_decide and moment is at_admission:
        want = Answer(PLACED)  # the webhook sees no nodes, so it holds the job for the controller
    assert moment(case, colocation) == want


def test_a_resource_with_a_restarting_device_plugin_still_counts_as_a_resource_of_nodes() -> None:
    both = {"nvidia.com/gpu": "2", "nvidia.com/memory": "9"}
    capacity = ledger(node("a", cpu="8", **both))
    capacity.set_node(node("a", cpu="8", gpus=2))
    training_job = (
        job().worker(2, spec=devices({"nvidia.com/gpu": "1", "nvidia.com/memory": "1"})).build()
    )
    assert not_placed(training_job, node_resources=capacity.resources) is None
    assert (
        not_placed(training_job, node_resources=ledger(node("a", cpu="8", gpus=2)).resources)
        is not None
    )

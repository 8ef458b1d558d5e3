"""`plan -f` predicts the controller's decision, on any snapshot.

A controller lives through a random history, to the end of its round. Then a job is planned with a
snapshot of that controller, and submitted to the controller: both give the same answer.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.cli.plan import NOT_HELD, STARTS, WAITS, Forecast
from kfext.core.lifecycle.steps import Release, Unsuspend
from kfext.state.planner.planner import outlooks
from kfext.state.planner.recording import planner_of, snapshot_of
from tests.unit.state.history import ACTS, CROWDED, History, admitted, jobs

acts = st.builds(
    lambda beginning, acts: [*beginning, *acts],
    st.sampled_from([(), CROWDED]),
    st.lists(st.sampled_from(ACTS), max_size=60),
)
Act = Callable[[History], None]
Answer = tuple[str, str, dict[str, str]]


def plan_answer(history: History, fields: dict[str, Any]) -> Answer:
    """Return the answer of `plan -f`: the outcome, the reason, and the node of each replica."""
    raw = admitted("asked", uid="", created=0, **fields).raw
    raw["metadata"] = {key: raw["metadata"][key] for key in ("name", "annotations", "namespace")}
    del raw["metadata"]["annotations"]["kfext.dev/held"]
    del raw["spec"]["runPolicy"]["suspend"]
    snapshot = snapshot_of(history.planner, history.moment)
    result = Forecast(snapshot, now=history.now).submit(raw, home="team")
    return result.outcome, result.reason, result.nodes


def controller_answer(history: History, fields: dict[str, Any]) -> Answer:
    """Return the controller's decision on the same job, in the same form."""
    history.put_job(admitted("asked", uid="planned-1", created=int(history.now), **fields).raw)
    step = outlooks(history.planner, history.moment)["planned-1"].step
    if isinstance(step, Unsuspend):
        places = step.plan.assignment.items()
        nodes = {f"asked-{key.type}-{key.index}": node for key, node in places}
        return STARTS, step.verdict.reason, nodes
    outcome = NOT_HELD if isinstance(step, Release) else WAITS
    return outcome, step.verdict.reason, {}  # type: ignore[union-attr]


@pytest.mark.histories
@settings(max_examples=100, deadline=None)
@given(data=st.data(), fields=jobs)
def test_plan_predicts_the_decision_of_the_controller(
    data: st.DataObject, fields: dict[str, Any]
) -> None:
    history = History(data)
    for act in data.draw(acts, label="acts"):
        note(act.__name__)
        act(history)
    history.opt_in()
    history.end_round()
    answer = plan_answer(history, fields)
    event(" ".join(answer[:2]))
    assert answer == controller_answer(history, fields)


class Script:
    """Stands for hypothesis in a History: returns the given values, in order."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)

    def draw(self, strategy: Any, label: str | None = None) -> Any:
        return self._values.pop(0)


def gang(workers: int, **more: Any) -> dict[str, Any]:
    fields = {"cpu": "1", "colocation": "", "network": "", "priority": "", "deadline": 0}
    return {"workers": workers, "elastic": False, "claim": "", "terms": None, **fields, **more}


AT_ONCE = 64
"""The most decisions of a tick: the first value that a History draws."""
DIVERGED: dict[str, tuple[Script, tuple[Act, ...], dict[str, Any]]] = {
    "a waiting job with a colocation that an edit made malformed": (
        Script(AT_ONCE, gang(10, colocation="required"), "job-1", (names.COLOCATION, "requierd")),
        (History.submit, History.catch_up, History.edit),
        gang(4),
    ),
    "pods that could be preempted, after a restart": (
        Script(AT_ONCE, gang(8), gang(4), AT_ONCE),
        (History.submit, History.submit, History.catch_up, History.restart),
        gang(2, priority="high"),
    ),
    "a reservation that was found before a job was deleted": (
        Script(AT_ONCE, gang(1), gang(1), gang(5, cpu="2"), gang(1), gang(1), gang(1), "job-1"),
        (*CROWDED, History.catch_up, History.delete),
        gang(1),
    ),
    "a job that was just started, and a refused write": (
        Script(2, gang(6), gang(6), gang(1), gang(1), gang(6), gang(1), 0, "refused"),
        (*CROWDED, History.tick, History.tick, History.write),
        gang(1),
    ),
}


@pytest.mark.parametrize(("script", "acts", "fields"), DIVERGED.values(), ids=DIVERGED.keys())
def test_plan_and_controller_agree_where_they_differed_in_the_past(
    script: Script, acts: tuple[Act, ...], fields: dict[str, Any]
) -> None:
    history = History(script)  # type: ignore[arg-type]
    for act in acts:
        act(history)
    assert plan_answer(history, fields) == controller_answer(history, fields)


@pytest.mark.histories
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_planner_from_a_snapshot_has_an_equal_snapshot(data: st.DataObject) -> None:
    history = History(data)
    for act in data.draw(acts, label="acts"):
        act(history)
    history.end_round()
    _check_second_snapshot(history)


def test_snapshots_are_equal_after_a_reservation_is_lost_in_an_opted_out_namespace() -> None:
    history = History(Script(AT_ONCE, gang(1, gpu="low"), "reservation-3"))  # type: ignore[arg-type]
    for act in (History.submit, History.catch_up, History.opt_out, History.end_round):
        act(history)
    history.lose_reservation()
    _check_second_snapshot(history)


def test_snapshots_are_equal_after_a_slot_of_a_finished_job_is_reserved_again() -> None:
    low, high = gang(1, gpu="low"), gang(1, gpu="high")
    history = History(Script(AT_ONCE, low, "job-1", high))  # type: ignore[arg-type]
    for act in (History.submit, History.catch_up, History.finish, History.catch_up):
        act(history)
    history.now += 301
    for act in (History.catch_up, History.submit, History.catch_up, History.end_round):
        act(history)
    _check_second_snapshot(history)


def _check_second_snapshot(history: History) -> None:
    first = snapshot_of(history.planner, history.moment)
    second = snapshot_of(planner_of(first, history.moment), history.moment)
    for field in type(first).__dataclass_fields__:
        assert _sorted(getattr(second, field)) == _sorted(getattr(first, field)), field


def _sorted(value: object) -> object:
    return sorted(value, key=repr) if isinstance(value, tuple) else value

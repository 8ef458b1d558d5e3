"""The decisions of ticks; their sequence does not depend on the length of a tick."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.claim import Claim, Claims
from kfext.core.lifecycle.steps import Step, Unsuspend
from kfext.model.moment import Moment
from kfext.model.pod import parse_pod
from kfext.state.planner.planner import MAX_DECISIONS, Planner
from kfext.state.planner.recording import planner_of as recorded_planner
from kfext.state.planner.recording import snapshot_of
from tests.builders import node
from tests.unit.state.history import ACTS, CLASSES, CROWDED, TEAM, History, admitted, jobs

NOW = Moment(wall=1000.0, monotonic=300.0)
SMALL = {"workers": 1, "cpu": "1", "colocation": "", "network": "", "elastic": False}
SMALL |= {"priority": "", "deadline": 0, "claim": "", "terms": None}


def planner_of(most: int, **nodes: str) -> Planner:
    planner = Planner(most=most)
    for priority_class in CLASSES.values():
        planner.queue.observe_class(None, priority_class)
    planner.settings.observe_namespace(None, TEAM)
    for name, cpu in nodes.items():
        planner.cluster.observe_node(None, node(name, cpu=cpu))
    return planner


def submit(planner: Planner, name: str, *, created: float, **fields: Any) -> None:
    planner.cluster.observe_job(admitted(name, uid=name, created=created, **fields).raw)


def decide_all(planner: Planner, now: Moment = NOW) -> list[tuple[str, Step]]:
    """Tick at one moment until no job is left to decide on; return the steps, each with its job."""
    steps = []
    for _ in range(1000):
        tick = planner.tick(now)
        assert not tick.failures
        steps += [(tracked.job.name, step) for tracked, step in tick.steps]
        if not tick.decided:
            return steps
    raise AssertionError("the decisions do not end")


@given(submitted=st.lists(st.tuples(jobs, st.integers(0, 999)), max_size=8))
def test_ticks_of_any_length_make_the_same_decisions_in_the_same_order(
    submitted: Sequence[tuple[dict[str, Any], int]],
) -> None:
    results = []
    for most in (1, 2, 64):
        planner = planner_of(most, a="8", b="4")
        for number, (fields, created) in enumerate(submitted):
            submit(planner, f"job-{number}", created=created, **fields)
        results.append(decide_all(planner))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("most", "want"), [(MAX_DECISIONS, 6), (8, 2), (1, 1)])
def test_a_tick_of_fewer_jobs_is_over_after_fewer_pods(most: int, want: int) -> None:
    """A lookahead, which has ticks of 8 jobs, must not block the event loop for longer."""
    planner = planner_of(most, a="8")
    for number in range(6):
        submit(planner, f"job-{number}", created=number, **{**SMALL, "workers": 2000})
    assert planner.tick(NOW).decided == want


@pytest.mark.histories
@given(data=st.data())
def test_ticks_of_any_length_make_the_same_decisions_after_any_history(data: st.DataObject) -> None:
    history = History(data)
    for act in (*CROWDED, *data.draw(st.lists(st.sampled_from(ACTS), max_size=15))):
        act(history)
    results = []
    for most in (1, 2, 64):
        planner = recorded_planner(snapshot_of(history.planner, history.moment), history.moment)
        planner._most = most
        for name in ("x", "y"):  # capacity is freed: the waiting jobs are decided on again
            planner.cluster.observe_node(None, node(name, cpu="3"))
        results.append(decide_all(planner, history.moment))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("most", [1, 2])
def test_a_new_job_ahead_of_the_undecided_jobs_is_decided_on_first(most: int) -> None:
    planner = planner_of(most, a="3")
    for created in (500, 501, 502):
        submit(planner, f"job-{created}", created=created, **SMALL)
    first = [tracked.job.name for tracked, _ in planner.tick(NOW).steps]
    submit(planner, "older", created=1, **SMALL)
    submit(planner, "urgent", created=999, **{**SMALL, "priority": "high"})
    later = decide_all(planner)
    assert first == ["job-500", "job-501"][:most]
    assert [name for name, step in later if isinstance(step, Unsuspend)] == ["urgent", "older"][
        : 3 - most
    ]


def test_a_tick_stops_after_a_number_of_decisions_and_counts_the_remainder() -> None:
    planner = planner_of(MAX_DECISIONS, a="4")
    for number in range(MAX_DECISIONS + 3):
        submit(planner, f"job-{number}", created=number, **SMALL)
    tick = planner.tick(NOW)
    assert (tick.decided, tick.remainder) == (MAX_DECISIONS, 3)


def test_a_tick_decides_on_fewer_jobs_if_these_are_large() -> None:
    planner = planner_of(MAX_DECISIONS, a="4")
    for number in range(10):
        submit(planner, f"job-{number}", created=number, **{**SMALL, "workers": 6000})
    tick = planner.tick(NOW)
    assert (tick.decided, tick.remainder) == (4, 6)
    assert sum(planner.tick(NOW).decided for _ in range(3)) == 6


def claim_reads(pods: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many claims are read while 20 shapes find no place and no reservation."""
    planner = planner_of(64, a="1")
    for number in range(pods):
        spec = {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "2"}}}]}
        metadata = {"namespace": "x", "name": f"p-{number}", "uid": f"p-{number}"}
        planner.cluster.observe_pod(None, parse_pod({"metadata": metadata, "spec": spec}))
    for number in range(20):
        fields = {**SMALL, "priority": "high", "colocation": "required"}
        submit(planner, f"job-{number}", created=number, **{**fields, "workers": number % 8 + 1})
    results: list[Claim] = []
    with monkeypatch.context() as counting:
        for method in ("get", "on", "with_any"):
            real = getattr(Claims, method)

            def count(self: Claims, *args: Any, real: Any = real, **named: Any) -> Any:
                answer = real(self, *args, **named)
                results.extend([answer] if isinstance(answer, Claim) else answer or ())
                return answer

            counting.setattr(Claims, method, count)
        counting.setattr(Claims, "all", lambda self: pytest.fail("copied all claims"))
        decide_all(planner)
    return len(results)


def test_a_tick_reads_no_more_claims_on_a_cluster_with_more_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert claim_reads(1000, monkeypatch) == claim_reads(10, monkeypatch)


def test_a_job_is_not_decided_on_while_its_step_is_being_written() -> None:
    planner = planner_of(64, a="4")
    submit(planner, "train", created=1, **SMALL)
    ((tracked, _),) = planner.tick(NOW).steps
    planner.cluster.mark("train")
    assert planner.tick(NOW).steps == ()
    planner.finish(tracked, NOW, refused=True)
    assert planner.tick(NOW).steps == ()
    assert planner.next_alarm() == NOW.monotonic + 1.0
    later = Moment(wall=NOW.wall + 1.0, monotonic=NOW.monotonic + 1.0)
    assert [type(step) for _, step in planner.tick(later).steps] == [Unsuspend]


def test_a_deleted_job_leaves_nothing_to_decide() -> None:
    planner = planner_of(64)
    submit(planner, "train", created=1, **SMALL)
    planner.tick(NOW)
    assert planner.cluster.jobs["train"].phase == names.QUEUED
    planner.cluster.forget_job("train")
    assert planner.tick(NOW).decided == 0
    assert planner.next_alarm() == float("inf")
    assert planner.queue.queued() == []


def test_the_message_of_a_waiting_job_names_the_present_free_capacity() -> None:
    planner = planner_of(MAX_DECISIONS, a="4")
    submit(planner, "large", created=1, **{**SMALL, "cpu": "5"})

    def message() -> str:
        decide_all(planner)
        verdict = planner.cluster.jobs["large"].verdict
        return verdict.message if verdict else ""

    assert "4 cpu" in message()
    submit(planner, "small", created=2, **SMALL)
    assert "4 cpu" in message()
    planner.refresh_messages()
    assert "3 cpu" in message()
    planner.refresh_messages()
    assert planner.tick(NOW).decided == 0

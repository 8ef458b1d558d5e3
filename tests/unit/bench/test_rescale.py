"""The benchmark of a rescale: its jobs, the observations of a run, and their analysis."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.bench.rescale.cases import CASES, PACE, Case, gang
from e2e.bench.rescale.parts import NotSeenError, Rescale, Story, story
from e2e.bench.rescale.tables import improvements_table, pause_table, work_table
from e2e.bench.rescale.watch import Pod, Sample
from e2e.harness.jobs import specs
from e2e.testbed.realnodes import cpu_budget

Object = dict[str, Any]
GANG = (Pod(None, True, False, False), Pod(0, True, False, False))
UNBOUND = (GANG[0], replace(GANG[1], bound=False))
STEPS = ("step 1/9 loss=1",)


def pods_of(body: Object) -> list[Object]:
    return [
        spec["template"]["spec"] for spec in specs(body).values() for _ in range(spec["replicas"])
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_job_fills_the_nodes_and_can_free_the_capacity_of_the_gang(case: Case) -> None:
    job_pods, gang_pods = pods_of(case.manifest(PACE, Path("/any"))), pods_of(gang(PACE))
    node = cpu_budget(2, 4)
    for pod in (*job_pods, *gang_pods):
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert node / 2 < int(container["resources"]["limits"]["cpu"].rstrip("m")) <= node
    assert len(job_pods) == 4
    assert case.pods - case.least == len(gang_pods) == 2
    assert {pod["terminationGracePeriodSeconds"] for pod in job_pods} == {case.grace}


def pods(runs: int, *, comes: int = 0, ends: int = 0) -> tuple[Pod, ...]:
    """Return workers: the first `runs` run, the next `comes` are new, the last `ends` end."""
    states = [(True, False)] * runs + [(False, False)] * comes + [(True, True)] * ends
    return tuple(
        Pod(index, bound=True, runs=running, ends=ending)
        for index, (running, ending) in enumerate(states)
    )


def run_of(changes: Mapping[int, Mapping[str, Any]], *, until: int) -> list[Sample]:
    """Return a sample for each second before `until`; a change holds from its second on."""
    now: dict[str, Any] = {"size": 4, "own": pods(4), "lines": ("step 1/9 loss=1",)}
    results = []
    for second in range(until):
        new = changes.get(second, {})
        now |= new
        results.append(Sample(float(second), **now))
    return results


TORCH: dict[int, dict[str, Any]] = {
    10: {"gang": UNBOUND},
    41: {"checkpoint_request": 1},
    44: {"size": 2, "own": pods(2, ends=2), "lines": ()},
    47: {"own": pods(2)},
    49: {"gang": GANG},
    55: {"lines": ("resumed at step 1 with world 3",)},
    56: {"lines": ()},
    60: {"lines": ("resumed at step 1 with world 2",)},
    61: {"lines": ()},
    62: {"lines": STEPS},
    80: {"gang": ()},
    145: {"reason": "Rescaling", "checkpoint_request": 2},
    147: {"size": 4, "own": pods(2, comes=2)},
    150: {"own": pods(4)},
    155: {"lines": ()},
    158: {"lines": ("resumed at step 9 with world 4",)},
    159: {"lines": STEPS},
}
"""The changes of a run, by second: the gang comes at 10 and is gone at 80."""


def test_a_run_is_divided_into_its_phases() -> None:
    assert story(run_of(TORCH, until=170), came=10, ended=80) == Story(
        Rescale(4, 2, 31, 3, 3, 13, 2, stood_still=19, usual=1),
        to_bind=2,
        growth=Rescale(2, 4, 65, 2, 3, 8, 1, stood_still=5, usual=1),
    )


def test_training_may_continue_before_the_removed_pods_are_deleted() -> None:
    changes = {**TORCH, 47: {}, 70: {"own": pods(2)}, 49: {}, 71: {"gang": GANG}}
    result = story(run_of(changes, until=170), came=10, ended=80)
    assert (result.shrink.pods, result.shrink.rendezvous, result.shrink.first_step) == (26, 0, 0)
    assert result.shrink.stood_still == 19
    assert result.to_bind == 1


def test_without_a_rendezvous_its_time_is_zero() -> None:
    changes: dict[int, dict[str, Any]] = {
        10: {"gang": UNBOUND},
        40: {"size": 2, "own": pods(2, ends=2)},
        42: {"own": pods(2)},
        45: {"gang": GANG},
        60: {"gang": ()},
        100: {"size": 4, "own": pods(2, comes=2)},
        104: {"own": pods(4)},
    }
    result = story(run_of(changes, until=120), came=10, ended=60)
    assert result.shrink == Rescale(4, 2, 30, 0, 2, 0, 0, stood_still=1, usual=1)
    assert result.growth == Rescale(2, 4, 40, 0, 4, 0, 0, stood_still=1, usual=1)


def test_a_later_longer_pause_does_not_belong_to_the_change() -> None:
    changes = {**TORCH, 158: {}, 159: {}, 190: TORCH[158], 191: TORCH[159]}
    result = story(run_of(changes, until=200), came=10, ended=80)
    assert (result.shrink.stood_still, result.growth.stood_still) == (19, 37)


def test_a_reason_still_shown_from_the_last_change_does_not_count_for_the_next() -> None:
    changes = {**TORCH, 44: {**TORCH[44], "reason": "Rescaling"}, 90: {"reason": "Shrunk"}}
    result = story(run_of(changes, until=170), came=10, ended=80)
    assert result.growth.idle == 65


@pytest.mark.parametrize(
    ("until", "unseen"),
    [(40, "kfext acted"), (46, "its pods had changed"), (61, "it had done a step"),
     (140, "kfext acted")],
)  # fmt: skip
def test_a_run_in_which_a_phase_was_not_seen_does_not_count(until: int, unseen: str) -> None:
    with pytest.raises(NotSeenError, match=unseen):
        story(run_of(TORCH, until=until), came=10, ended=80)


def stored(
    *, still: float = 5.0, checkpoint: float = 2.0, loss: float = 0.5, **changed: Any
) -> Object:
    shrink = Rescale(4, 2, 30, checkpoint, 2, 4, 1, still + 8, 0.2)
    growth = Rescale(2, 4, 62, checkpoint, 3, 4, 1, still, 0.4)
    gang_result = (
        {"story": Story(shrink, 1.5, growth).stored()} if changed.pop("disturbed", True) else {}
    )
    return {"loss": loss, "redone": 4, "lost": 0, "resumes": 2, **gang_result, **changed}


RUNS = {
    "torchrun": [stored(), stored(still=6), stored(still=7)],
    "torchrun, its own last call of 30 s": [stored(still=31), stored(still=30), stored(still=34)],
    "torchrun, saves only when it likes": [stored(checkpoint=12), stored(lost=1)],
    "TFJob, dynamic workers": [stored(loss=0.5), stored(loss=0.505)],
    "torchrun, undisturbed": [stored(disturbed=False, loss=0.5)],
    "TFJob, undisturbed": [stored(disturbed=False, loss=0.5)],
}


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows][1:]


def column(rows: Sequence[Sequence[str]], name: str) -> Sequence[str]:
    (result,) = (row for row in rows if row[0] == name)
    return result[1:]


def test_only_the_pauses_of_torchrun_have_a_target() -> None:
    judged = {(row[0], row[1].split(",")[0]): row[-1] for row in cells(pause_table(RUNS))}
    assert judged["torchrun", "in"] == "< 19 s: PASS"
    assert judged["torchrun", "out"] == "< 10 s: PASS"
    assert judged["torchrun, its own last call of 30 s", "in"] == "< 19 s: MISS"
    assert judged["torchrun, its own last call of 30 s", "out"] == "< 10 s: MISS"
    assert judged["TFJob, dynamic workers", "in"] == ""


def test_lost_work_and_a_different_loss_are_misses() -> None:
    rows = cells(work_table(RUNS))
    assert column(rows, "torchrun")[3:7] == ["== 0: PASS", "0.5000", "0.00 %", "<= 0.1 %: PASS"]
    assert column(rows, "torchrun, saves only when it likes")[3] == "== 0: MISS"
    assert column(rows, "TFJob, dynamic workers")[5:7] == ["1.00 %", "<= 2 %: PASS"]
    assert column(rows, "torchrun, undisturbed")[5:7] == ["", ""]


def test_the_gain_of_an_improvement_is_the_median_over_repeats() -> None:
    rows = cells(improvements_table(RUNS))
    assert [(row[1], row[-1]) for row in rows] == [("in", "26.0"), ("in", "5.0"), ("out", "5.0")]
    assert improvements_table({"torchrun": RUNS["torchrun"]}).count("\n") == 3

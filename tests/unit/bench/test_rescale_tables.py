"""The tables of the benchmark of a rescale, and which of its runs are stored."""

from collections.abc import Sequence
from typing import Any

from e2e.bench.report import spread
from e2e.bench.rescale.cases import CASES, PACE, QUICK_CASES, QUICK_PACE
from e2e.bench.rescale.measure import bench
from e2e.bench.rescale.parts import Rescale, Story
from e2e.bench.rescale.tables import bought_table, guard_table, pause_table, work_table

Object = dict[str, Any]


def stored(
    *, still: float = 5.0, checkpoint: float = 2.0, loss: float = 0.5, **more: Any
) -> Object:
    shrink = Rescale(4, 2, 30, checkpoint, 2, 4, 1, still + 8, 0.2)
    growth = Rescale(2, 4, 62, checkpoint, 3, 4, 1, still, 0.4)
    of_gang = {"story": Story(shrink, 1.5, growth).stored()} if more.pop("disturbed", True) else {}
    return {"loss": loss, "redone": 4, "lost": 0, "resumes": 2, **of_gang, **more}


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
    (found,) = (row for row in rows if row[0] == name)
    return found[1:]


def test_the_gangs_wait_is_reported_by_part_and_the_last_part_is_judged() -> None:
    rows = cells(guard_table(RUNS))
    assert len(rows) == 4
    assert column(rows, "torchrun") == [
        spread([30, 30], digits=1), "<= 35 s: PASS",
        spread([2, 2], digits=1), spread([2, 2], digits=1),
        spread([1.5, 1.5], digits=1), "<= 15 s: PASS", spread([35.5, 35.5], digits=1), "3",
    ]  # fmt: skip


def test_a_pause_has_a_row_for_each_way() -> None:
    rows = cells(pause_table(RUNS))
    assert [row[1] for row in rows[:2]] == ["in, 4 to 2", "out, 2 to 4"]
    assert [row[-3] for row in rows[:2]] == ["14.0 (13.0-15.0)", "6.0 (5.0-7.0)"]


def test_a_pause_is_judged_by_what_torchrun_takes_by_itself() -> None:
    judged = {(row[0], row[1].split(",")[0]): row[-1] for row in cells(pause_table(RUNS))}
    assert judged["torchrun", "in"] == "< 19 s: PASS"
    assert judged["torchrun", "out"] == "< 10 s: PASS"
    assert judged["torchrun, its own last call of 30 s", "in"] == "< 19 s: MISS"
    assert judged["torchrun, its own last call of 30 s", "out"] == "< 10 s: MISS"
    assert judged["TFJob, dynamic workers", "in"] == ""


def test_work_that_is_lost_and_a_loss_that_is_off_are_misses() -> None:
    rows = cells(work_table(RUNS))
    assert column(rows, "torchrun")[3:7] == ["== 0: PASS", "0.5000", "0.00 %", "<= 0.1 %: PASS"]
    assert column(rows, "torchrun, saves only when it likes")[3] == "== 0: MISS"
    assert column(rows, "TFJob, dynamic workers")[5:7] == ["1.00 %", "<= 2 %: PASS"]
    assert column(rows, "torchrun, undisturbed")[5:7] == ["", ""]


def test_runs_that_did_not_count_are_counted_also_beside_runs_that_were_stored_before() -> None:
    runs = {**RUNS, "torchrun": [stored(), stored(spoiled=2), stored(spoiled=1)]}
    rows = cells(work_table(runs))
    assert column(rows, "torchrun")[-1] == "3"
    assert column(rows, "TFJob, dynamic workers")[-1] == "0"


def test_what_an_improvement_bought_is_the_median_of_pairs() -> None:
    rows = cells(bought_table(RUNS))
    assert [(row[1], row[-1]) for row in rows] == [("in", "26.0"), ("in", "5.0"), ("out", "5.0")]
    assert bought_table({"torchrun": RUNS["torchrun"]}).count("\n") == 3


def test_quick_is_another_set_up_and_undisturbed_runs_come_once() -> None:
    full = bench(CASES, PACE, repeats=3)
    assert len(full.missing()) == 3 * 7 + 2
    full.measure(lambda repeat, name: stored())
    assert full.missing() == []
    assert len(bench(QUICK_CASES, QUICK_PACE, repeats=1).missing()) == 4

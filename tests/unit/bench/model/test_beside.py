"""kfext's rows beside the times of published schedulers, and the shape of published effects."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.bench.model import shapes
from e2e.bench.model.beside import rows, with_false_lengths
from kfext.sim.cluster import Ended, World
from kfext.sim.compare import Run
from kfext.sim.nodes import NodeSize
from tests.unit.sim.bed import GANG

JOBS = tuple(
    replace(GANG, name=f"job-{number}", arrives=0.0, trains=f"program-{number % 4}")
    for number in range(40)
)
WORLD = World({"node-0": NodeSize(2000), "node-1": NodeSize(2000)}, JOBS)


def test_a_fraction_of_the_jobs_has_an_unknown_or_a_false_length() -> None:
    misled = with_false_lengths(WORLD, fraction=0.5, seed=1)
    unknown = [job for job in misled.jobs if not job.trains]
    false = [
        job
        for job, true in zip(misled.jobs, JOBS, strict=True)
        if job.trains and job.trains != true.trains
    ]
    assert [job.shows_end for job in unknown] == [False] * len(unknown)
    assert 4 <= len(unknown) <= 16  # 10 of the 40 jobs are expected
    assert 3 <= len(false) <= 16  # 10 again, but one in four draws the job's own series
    assert with_false_lengths(WORLD, fraction=0.0, seed=1) == WORLD


def test_a_row_of_kfext_is_compared_with_published_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("e2e.bench.store.RUNS", tmp_path)
    world = World(WORLD.nodes, JOBS[:2])

    def published(arm: str, _number: int) -> Mapping[str, float] | None:
        return {"job-0": 200.0, "job-1": 1000.0} if arm == "theirs" else None

    result = rows(
        "Title",
        lambda _number: world,
        ("theirs", "gang"),
        numbers=(0, 1),
        published=published,
        against="theirs",
        modules=(),
    )
    title, _, head, _, theirs, gang = result.splitlines()
    assert title == "### Title, against theirs"
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, theirs, gang)]
    assert dict(zip(cells[0], cells[1], strict=True)) == {
        "SCHEDULER": "theirs",
        "MEAN s": "600",
        "CHANGE": "+0.0%",
        "95 %": "+0.0% to +0.0%",
        "P99 s": "1000",
        "MAKESPAN s": "1000",
        "USED": "-",
        "P99 STRETCH": "14.7",
        "WORST STRETCH": "15",
        "CHANGES": "-",
    }
    kfext = dict(zip(cells[0], cells[2], strict=True))
    assert kfext["CHANGE"].startswith("-")
    assert float(kfext["MEAN s"]) < 300
    assert kfext["USED"].endswith("%")


def run_of(*elapsed: float, ends: float, missing: int = 0) -> Run:
    jobs = {str(number): Ended(str(number), s, 0.0, s, 0.0) for number, s in enumerate(elapsed)}
    alone = {str(number): 1.0 for number in range(len(elapsed) + missing)}
    return Run(jobs, alone, makespan=ends, utilisation=0.5, changes=0)


EFFECTS = {"best job": -0.5, "mean": -0.2, "makespan": -0.1}


@pytest.mark.parametrize(("figure", "expected"), EFFECTS.items())
def test_an_effect_is_the_change_of_the_best_job_the_mean_or_the_makespan(
    figure: str, expected: float
) -> None:
    pair = run_of(50, 190, ends=180), run_of(100, 200, ends=200)
    assert shapes.FIGURES[figure](pair) == pytest.approx(expected)


VERDICTS: dict[str, tuple[Run, tuple[str, ...]]] = {
    "within a third": (run_of(60, ends=60), ("-40.0%", "PASS")),
    "too small": (run_of(70, ends=70), ("-30.0%", "MISS")),
    "too large": (run_of(30, ends=30), ("-70.0%", "MISS")),
    "it never ended": (run_of(60, ends=60, missing=1), ("-", "MISS: no run under both ended")),
}


@pytest.mark.parametrize(("run", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_a_rebuilt_scheduler_has_the_published_effect_within_a_third(
    run: Run, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stored:
        def find(self, arm: str, _seed: int, _luck: int) -> Run:
            return run if arm == "theirs" else run_of(100, ends=100)

    monkeypatch.setattr(shapes, "runs_of", lambda _world: Stored())
    effect = shapes.Effect("Paper", "threads-20", "theirs", "map", "mean", -0.5)
    monkeypatch.setattr(shapes, "PUBLISHED", (effect,))
    last = shapes.measure(Path(), quick=True).splitlines()[-1]
    assert tuple(cell.strip() for cell in last.split("|")[7:9]) == expected

"""Muri's table: reading its traces, schedules computed by hand, and its jobs as a CSV."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from e2e.bench.model.muri import measure
from e2e.bench.model.muri.replay import Ended, Figures, Scheduler, figures, replay
from e2e.bench.model.muri.shortest import srsf, srtf, take
from e2e.bench.model.muri.simulate_csv import jobs_csv, philly_csv
from e2e.bench.model.muri.tiresias import Tiresias
from e2e.bench.model.muri.trace import Cluster, Job, read_cluster, read_jobs
from kfext.errors import UserError

Make = Callable[[Cluster], Scheduler]
HEAD = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time"
NODES = "num_switch,num_node_p_switch,num_gpu_p_node\n1,8,8\n"


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\r\n".join([*lines, ""]), newline="")
    return path


def job(name: str, seconds: int, *, gpus: int = 1, at: float = 0.0, start: float = 0.0) -> Job:
    return Job(name, gpus, at, iterations=seconds, seconds=1.0, start=start)


def ends(make: Make, cluster: Cluster, *jobs: Job) -> dict[str, float]:
    return {ended.job.name: ended.at for ended in replay(jobs, make(cluster))}


def test_a_trace_is_read_in_order_of_arrival_and_in_seconds(tmp_path: Path) -> None:
    lines = ("b,16,2000,10,vgg19,200", "", "a,1,1000,5,dqn,490")
    assert read_jobs(write(tmp_path / "trace.csv", HEAD, *lines)) == (
        Job("a", 1, 1.0, iterations=5, seconds=490 * 1.015 / 1000, start=5),
        Job("b", 16, 2.0, iterations=10, seconds=200 * 1.015 / 1000, start=10),
    )
    assert read_cluster(write(tmp_path / "n8g8.csv", NODES)) == Cluster(nodes=8, gpus=8)


WRONG = {
    "a column that is missing": ([HEAD.replace("iterations", "steps")], "line 1 has no column it"),
    "a line that is too short": ([HEAD, "a,1,0,5"], "line 2 has fewer cells than line 1"),
    "a word for a number": (
        [HEAD, "a,1,soon,5,dqn,490"],
        "line 2: submit_time 'soon' is not a number from 0 on",
    ),
    "no iterations": ([HEAD, "a,1,0,0,dqn,490"], "line 2: iterations '0' is not a number from 1"),
    "an infinite time": ([HEAD, "a,1,0,5,dqn,inf"], "line 2: iteration_time 'inf' is not a num"),
    "an unknown model": (
        [HEAD, "a,1,0,5,dqn,490", "b,1,0,5,lenet,490"],
        "line 3: model_name 'lenet' is none of a2c, bert",
    ),
    "a wrong number of GPUs": (
        [HEAD, "a,3,0,5,dqn,490"],
        "line 2: num_gpu 3 is none of 1, 2, 4, 8, 16",
    ),
}


@pytest.mark.parametrize(("lines", "message"), WRONG.values(), ids=WRONG)
def test_an_error_in_a_trace_is_reported_with_file_and_line(
    tmp_path: Path, lines: Sequence[str], message: str
) -> None:
    path = write(tmp_path / "trace.csv", *lines)
    with pytest.raises(UserError) as error:
        read_jobs(path)
    assert str(error.value).startswith(f"{path}, {message}")


def test_the_error_names_a_file_that_is_missing_or_has_no_nodes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trace9\.csv cannot be read"):
        read_jobs(tmp_path / "trace9.csv")
    empty = write(tmp_path / "n8g8.csv", NODES.splitlines()[0])
    with pytest.raises(UserError, match=r"n8g8\.csv has no line 2"):
        read_cluster(empty)


TAKEN = {
    "the first node with capacity": ([1, 2, 2], 2, [1, 0, 2]),
    "a whole node": ([3, 4, 4], 4, [3, 0, 4]),
    "whole nodes": ([4, 1, 4, 4], 8, [0, 1, 0, 4]),
    "a whole node and GPUs of the first other node that has them": ([4, 1, 4], 6, [0, 1, 2]),
    "GPUs of a partly used node": ([2, 4, 4], 6, [0, 0, 4]),
    "too few GPUs on each other node": ([4, 1, 1], 6, None),
    "scattered GPUs": ([3, 3], 4, None),
    "too few whole nodes": ([4, 3, 3], 8, None),
    "too few GPUs": ([1, 0], 2, None),
}


@pytest.mark.parametrize(("free", "gpus", "after"), TAKEN.values(), ids=TAKEN)
def test_a_job_takes_whole_nodes_and_then_gpus_of_the_first_other_node_that_has_them(
    free: list[int], gpus: int, after: list[int] | None
) -> None:
    before = list(free)
    assert take(free, gpus, 4) == (after is not None)
    assert free == (before if after is None else after)


PAIR = (job("a", 50, gpus=2), job("b", 60), job("c", 60))
SCATTERED = (job("a", 10, gpus=2), job("b", 20, gpus=2), job("c", 30, gpus=2), job("d", 45))
SHORTEST: dict[str, tuple[Make, Cluster, Sequence[Job], dict[str, float]]] = {
    "a job with less to do stops another": (
        srtf, Cluster(1, 1), [job("a", 100), job("b", 10, at=10)], {"b": 20, "a": 110},
    ),
    "the finished work of a job counts": (
        srtf, Cluster(1, 1), [job("a", 100), job("b", 10, at=95)], {"a": 100, "b": 110},
    ),
    "SRTF does not count GPUs": (srtf, Cluster(1, 2), PAIR, {"a": 50, "b": 110, "c": 110}),
    "SRSF counts GPUs": (srsf, Cluster(1, 2), PAIR, {"b": 60, "c": 60, "a": 110}),
    # c waits for a although two GPUs are free, and d runs.
    "scattered GPUs keep a job waiting, and the next job runs": (
        srtf, Cluster(2, 3), SCATTERED, {"a": 10, "b": 20, "c": 40, "d": 45},
    ),
    # At second 10 a has done 5 s of work; when a ends, b has done 95 - 5 s.
    "a decision costs each continuing job a start, but not the job that ends": (
        srtf, Cluster(1, 2), [job("a", 100, start=5), job("b", 100, at=10, start=5)],
        {"a": 105, "b": 115},
    ),
    # At second 3 a has done nothing, at second 53 it has done 50 - 5 s of work.
    "nothing is done in less than a start": (
        srtf, Cluster(1, 2), [job("a", 100, start=5), job("b", 50, at=3)], {"b": 53, "a": 108},
    ),
    "jobs with ends that differ by a rounding error end together": (
        srtf, Cluster(1, 2),
        [job("a", 100, start=5), replace(job("b", 100, start=5), seconds=1 + 1e-11)],
        {"a": 100, "b": 100},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "cluster", "jobs", "expected"), SHORTEST.values(), ids=SHORTEST)
def test_the_job_with_the_least_remaining_work_goes_first(
    make: Make, cluster: Cluster, jobs: Sequence[Job], expected: dict[str, float]
) -> None:
    assert ends(make, cluster, *jobs) == pytest.approx(expected)


TIRESIAS: dict[str, tuple[Cluster, Sequence[Job], dict[str, float]]] = {
    "after 3,250 GPU-seconds a job goes behind newer jobs": (
        Cluster(1, 1), [job("a", 10_000), job("b", 100, at=1000)], {"b": 3350, "a": 10_100},
    ),
    # 3250 / 4 is 812.5, so a moves at second 813.
    "each GPU counts, in full seconds": (
        Cluster(1, 4), [job("a", 2000, gpus=4), job("b", 100)], {"b": 913, "a": 2100},
    ),
    # At second 6,550 b has attained 3,250 and goes behind a, which attains 7,200 at 10,450.
    "after 7,200 GPU-seconds it goes behind the second queue, too": (
        Cluster(1, 1), [job("a", 20_000), job("b", 5000, at=3300)], {"b": 12_200, "a": 25_000},
    ),
    # w waits before x does, but x fits beside r, so x runs.
    "in a queue a job that runs goes before a job that has waited longer": (
        Cluster(1, 2), [job("r", 50), job("w", 100, gpus=2, at=10), job("x", 100, at=20)],
        {"r": 50, "x": 120, "w": 220},
    ),
    "the nodes of free GPUs do not matter": (
        Cluster(2, 3), SCATTERED, {"a": 10, "b": 20, "c": 30, "d": 55},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cluster", "jobs", "expected"), TIRESIAS.values(), ids=TIRESIAS)
def test_the_job_that_has_attained_least_goes_first(
    cluster: Cluster, jobs: Sequence[Job], expected: dict[str, float]
) -> None:
    assert ends(Tiresias, cluster, *jobs) == pytest.approx(expected)


@pytest.mark.parametrize("make", [srtf, srsf, Tiresias])
def test_a_job_that_never_fits_is_an_error(make: Make) -> None:
    with pytest.raises(UserError, match="1 jobs need more GPUs than the cluster has"):
        ends(make, Cluster(2, 2), job("a", 10, gpus=8), job("b", 10))


def test_figures_are_the_mean_the_last_end_and_the_99th_percentile() -> None:
    ended = [Ended(job("a", 1, at=7), 7 + seconds) for seconds in range(1, 201)]
    assert figures(ended) == Figures(mean=100.5, makespan=207, p99=199)


def test_a_row_passes_within_two_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "muri" / "n8g8.csv", NODES)
    write(tmp_path / "muri" / "trace3.csv", HEAD, "a,1,0,1000,dqn,1000")  # ends at 1015
    published = {"trace3": {"SRTF": Figures(1000, 2000, 1036)}}
    monkeypatch.setattr("e2e.bench.model.muri.measure.PUBLISHED", published)
    lines = measure.measure(tmp_path, quick=True).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| trace3")]
    assert [[cell.strip(" |") for cell in row] for row in rows] == [
        ["trace3", "SRTF", "1000", "1015", "+1.50 %", "<= 2 %: PASS"],
        ["trace3", "SRTF", "2000", "1015", "-49.25 %", "<= 2 %: MISS"],
        ["trace3", "SRTF", "1036", "1015", "-2.03 %", "<= 2 %: MISS"],
    ]


def test_workers_in_the_csv_have_at_most_the_gpus_of_a_node(tmp_path: Path) -> None:
    lines = ("b,16,2000,10,vgg19,200", "a,1,1000,5,dqn,490")
    write(tmp_path / "muri" / "trace1.csv", HEAD, *lines)
    assert jobs_csv(tmp_path, "trace1").splitlines() == [
        "name,arrives,workers,seconds,gpus",
        "job-a,1,1,2,1",
        "job-b,2,2,2,8",
    ]


PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster",
    "2017-10-09 08:00:00,5.0,1,5.0,a",
    "2017-10-09 07:30:00,66.4,12,796.8,a",
    "2017-10-09 07:00:00,0.2,24,4.8,a",
    "2017-10-09 07:10:00,9.0,1,9.0,b",
    "2017-10-09 06:59:59,9.0,1,9.0,a",
    "",
)
SEVEN = datetime(2017, 10, 9, 7)


def test_the_jobs_of_a_virtual_cluster_in_a_period_are_chosen(tmp_path: Path) -> None:
    write(tmp_path / "pollux" / "philly.csv", *PHILLY)
    assert philly_csv(tmp_path, cluster="a", start=SEVEN, hours=1).splitlines() == [
        "name,arrives,workers,seconds,gpus",
        "job-4,0,3,1,8",
        "job-3,1800,2,66,6",
    ]


def test_the_error_names_a_virtual_cluster_without_jobs_and_a_wrong_time(tmp_path: Path) -> None:
    path = write(tmp_path / "pollux" / "philly.csv", *PHILLY, "later,1.0,1,1.0,c")
    with pytest.raises(UserError, match=r"philly\.csv has no job of cluster 'b' from 2017-10-09 0"):
        philly_csv(tmp_path, cluster="b", start=SEVEN, hours=0.1)
    with pytest.raises(UserError) as error:
        philly_csv(tmp_path, cluster="c", start=SEVEN, hours=1)
    assert str(error.value).startswith(f"{path}, line 8: timestamp 'later' is not a time")

"""Pollux's simulator, rebuilt: step times, time in the cluster, its schedulers, and its files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from e2e.bench.model.pollux.application import Application, Batch, Noise, seconds
from e2e.bench.model.pollux.cluster import Allocation, Job, Request, Scheduler, run
from e2e.bench.model.pollux.elastic import Elastic
from e2e.bench.model.pollux.goodput import SIZES
from e2e.bench.model.pollux.measure import measure
from e2e.bench.model.pollux.optimus import SINGLE, Optimus
from e2e.bench.model.pollux.step_time import Placement, Sample, StepTimes
from e2e.bench.model.pollux.tiresias import Tiresias
from e2e.bench.model.pollux.trace import jobs_csv
from kfext.errors import UserError


def samples(
    nodes: int, gpus: int, step: float, *, each: float = 0.0, sync: float = 0.0
) -> list[Sample]:
    """Return a measurement for each of the batches 10, 20 and 40 of a GPU.

    `each`: the seconds that ten training examples add.
    """
    return [Sample(nodes, gpus, local, step + each * local / 10, sync) for local in (10, 20, 40)]


TIMES = StepTimes(
    {
        (1,): samples(1, 1, 1.0, each=1.0),
        (1, 3): samples(2, 4, 4.0, each=1.0),
        (2, 2): samples(2, 4, 8.0, each=1.0),
        (4, 4): samples(2, 8, 10.0, each=1.0),
    },
    [
        sample
        for nodes, gpus, step in ((4, 4, 14), (4, 12, 20), (4, 16, 24), (8, 8, 30), (8, 32, 90))
        for sample in samples(nodes, gpus, step, each=1.0)
    ],
)


@pytest.mark.parametrize(
    ("placement", "local", "expected"),
    [
        pytest.param((1,), 20, 3.0, id="a step that was measured"),
        pytest.param((1,), 15, 2.5, id="linear between the batches of a GPU"),
        pytest.param((3, 1), 20, 6.0, id="a rotation is as fast"),
        pytest.param((1,), 41, np.nan, id="nothing above the largest batch"),
        pytest.param((1,) * 9, 10, np.nan, id="nothing on more nodes"),
        pytest.param((5, 4, 4), 10, np.nan, id="nothing with more GPUs"),
        # Four GPUs on two nodes take 4 or 8 s, so 6 s.
        pytest.param((1, 1, 2), 10, (6 + 14) / 2 + 1, id="linear over nodes, by mean placements"),
        pytest.param((2, 2, 2), 10, (10 + 14) / 2 + 1, id="linear over nodes and GPUs"),
        # 6 nodes and 14 GPUs lie in the triangle of (4, 16), (8, 8) and (8, 32) of the Delaunay
        # triangulation.
        pytest.param((3, 3, 2, 2, 2, 2), 10, 24 / 2 + 30 * 5 / 12 + 90 / 12 + 1, id="in triangles"),
    ],
)  # fmt: skip
def test_a_step_is_linear_between_measurements(
    placement: Placement, local: int, expected: float
) -> None:
    assert float(TIMES.of(placement, local).step) == pytest.approx(expected, nan_ok=True)


def model(
    name: str = "model",
    *,
    steps: Mapping[int, float] | None = None,
    ends: Sequence[float] = (100.0,),
    noisy: bool = False,
) -> Application:
    """Return a model with batches from 10 to 2560.

    `steps`: the seconds of a step by the number of GPUs, on the fewest nodes. `noisy`: a batch k
    times as large makes k times the progress in a step, and every pass takes the time of a step.
    Otherwise a larger batch makes no more progress, and only the last pass takes time.
    """
    placed = {}
    for gpus, step in (dict.fromkeys(SIZES, 1.0) | dict(steps or {})).items():
        nodes, sync = max(1, gpus // 4), 0.0 if noisy else step
        placed[(gpus // nodes,) * nodes] = samples(nodes, gpus, step, sync=sync)
    shape = (2, len(ends))
    return Application(
        name,
        StepTimes(placed, []),
        batches=np.array([10.0, 2560.0]),
        iterations=np.broadcast_to(np.array(ends), shape),
        sqr=np.full(shape, 0.0 if noisy else 1.0),
        var=np.full(shape, 1.0 if noisy else 0.0),
        ends=np.array(ends),
        least_local=10,
        most_local=40,
    )


def job(
    name: str,
    gpus: int = 1,
    allocation: Allocation = (),
    *,
    application: Application | None = None,
    service: int = 0,
    restarts: int = 0,
    batch: int = 160,
) -> Job:
    """Return a job that arrived at second 0; a job with GPUs has shown its noise."""
    made = Job(Request(name, 0, application or model(), gpus, batch), allocation, service=service)
    made.restarts = restarts
    made.noise = made.application.noise(batch, 0) if allocation else None
    return made


@pytest.mark.parametrize(
    ("batch", "gpus", "expected"),
    [
        pytest.param(80, 2, Batch(40, 0), id="each GPU has an equal fraction"),
        pytest.param(70, 4, Batch(18, 0), id="rounded up"),
        pytest.param(100, 2, Batch(25, 1), id="two passes if the fraction does not fit a GPU"),
        pytest.param(10, 1, Batch(10, 0), id="the smallest batch in one pass"),
        pytest.param(20, 1, Batch(10, 1), id="a larger batch of one GPU in two passes"),
        pytest.param(2560, 24, Batch(35, 2), id="no more than the largest batch"),
    ],
)
def test_a_batch_is_split_over_gpus_and_passes(batch: int, gpus: int, expected: Batch) -> None:
    assert model().batch(batch, gpus) == expected


def test_the_gain_of_a_larger_batch_depends_on_the_noise() -> None:
    assert float(Noise(sqr=1.0, var=3.0).gain(np.array(3.0))) == pytest.approx(2.0)


def test_only_the_last_pass_waits_for_gradients() -> None:
    times = StepTimes({(1,): samples(1, 1, 3.0, sync=1.0)}, []).of((1,), 10)
    assert float(seconds(times, 2)) == pytest.approx(2.0 + 2.0 + 3.0)


class Script:
    """A scheduler with a given allocation of the only job at each tick."""

    def __init__(self, *allocations: Allocation) -> None:
        self._allocations = [*allocations]

    def allocate(self, jobs: Sequence[Job], *, now: int) -> dict[str, Allocation]:
        first, *rest = self._allocations
        self._allocations = rest or [first]
        return {jobs[0].name: first}

    def batch(self, job: Job) -> Batch:
        return Batch(10, 0)


@pytest.mark.parametrize(
    ("submitted", "allocations", "expected"),
    [
        # From the tick at 60 s it starts for 30 s, and trains for 100.4 s: 190 - 5.
        pytest.param(5, [(0,)], 185, id="a job starts at a tick, and may end between two ticks"),
        pytest.param(61, [(0,)], 120 + 130 - 61, id="a job that came after a tick waits"),
        pytest.param(0, [(0,), (1,)], 190 + 30, id="other GPUs restart it"),
        pytest.param(0, [(0,), (), (0,)], 190 + 60 + 30, id="without GPUs it keeps its progress"),
    ],
)
def test_the_completion_time_of_a_job_in_a_cluster_with_ticks(
    submitted: int, allocations: list[Allocation], expected: int
) -> None:
    request = Request("a", submitted, model(ends=(50.2, 100.4)), 1, 10)
    assert run([request], Script(*allocations)) == {"a": expected}


def allocated(scheduler: Scheduler, *jobs: Job, now: int = 6000) -> dict[str, Allocation]:
    result = scheduler.allocate(jobs, now=now)
    return {name: allocation for name, allocation in result.items() if allocation}


def whole(*nodes: int) -> Allocation:
    return tuple(node for node in nodes for _ in range(4))


LONG = 16 * 3600


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param(
            [job("a", 2), job("b", 6)], {"a": (0, 0), "b": (1, 1, 1, 1, 2, 2)},
            id="each job takes the node with most free GPUs",
        ),
        pytest.param(
            [job("a", 2), job("b", 2, (0, 0))], {"a": (1, 1), "b": (0, 0)},
            id="a job that continues keeps its GPUs",
        ),
        pytest.param(
            [job("a", 62, (*whole(*range(15)), 15, 15)), job("b", 4), job("c", 2)],
            {"a": (*whole(*range(15)), 15, 15), "c": (15, 15)},
            id="a later job may train before a job that does not fit",
        ),
        pytest.param(
            [job("a", 64, whole(*range(16)), service=LONG), job("b", 1)], {"b": (0,)},
            id="a job with 16 GPU-hours is behind all others",
        ),
        pytest.param(
            [job("a", 64, whole(*range(16)), service=LONG - 1), job("b", 1)],
            {"a": whole(*range(16))},
            id="a job with fewer GPU-hours is not",
        ),
    ],
)  # fmt: skip
def test_tiresias_has_two_queues(jobs: list[Job], expected: dict[str, Allocation]) -> None:
    assert allocated(Tiresias(), *jobs) == expected


def test_the_second_queue_of_tiresias_is_in_the_order_of_demotion() -> None:
    tiresias = Tiresias()
    early, late = job("early", 64), job("late", 64, service=LONG)
    assert allocated(tiresias, late) == {"late": whole(*range(16))}
    early.service = LONG
    assert allocated(tiresias, early, late) == {"late": whole(*range(16))}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param(
            [job("a"), job("b", 1, (3,))], {"a": (0,), "b": (3,)},
            id="one GPU if more save nothing, and a job with as many as before keeps them",
        ),
        pytest.param(
            [job("a", 1, (3,), application=model(steps={1: 9, 2: 5, 3: 4, 4: 4}))],
            {"a": (0, 0, 0)},
            id="more GPUs while they shorten the steps",
        ),
        pytest.param(
            [job("a", application=model(SINGLE, steps={2: 0.5}))], {"a": (0,)},
            id="ncf is limited to one GPU",
        ),
        pytest.param(
            [job("a", batch=20, application=model(steps={1: 9, 2: 5, 3: 4}))], {"a": (0, 0)},
            id="each GPU needs the smallest batch of a GPU",
        ),
    ],
)  # fmt: skip
def test_optimus_allocates_gpus_that_save_time(
    jobs: list[Job], expected: dict[str, Allocation]
) -> None:
    assert allocated(Optimus(), *jobs) == expected


def test_optimus_allocates_a_gpu_where_it_cuts_most_remaining_time() -> None:
    steps = {1: 3, 2: 2, 3: 1.5, 4: 1.25}
    others = [job(f"other-{number}") for number in range(60)]
    # The remaining time counts from the end of the current epoch: 800 and 100; 1 in the last epoch.
    long = job("long", application=model(steps=steps, ends=(100.0, 900.0)))
    short = job("short", application=model(steps=steps, ends=(800.0, 900.0)))
    result = allocated(Optimus(), *others, long, short)
    assert (len(result["long"]), len(result["short"])) == (3, 1)
    long.epoch = 1
    result = allocated(Optimus(), *others, long, short)
    assert (len(result["long"]), len(result["short"])) == (1, 3)


NOISY = model(noisy=True)
"""A model that is twice as fast with twice the GPUs and twice the batch."""


@pytest.mark.parametrize(
    ("jobs", "now", "expected"),
    [
        pytest.param([job("a", application=NOISY)], 60, {"a": (0,)}, id="a new job has one GPU"),
        pytest.param(
            [job("a", 1, (5,), application=NOISY)], 600, {"a": (5, 5)},
            id="then at most twice as many, on the same node if possible",
        ),
        pytest.param(
            [job("a", 4, whole(5), application=NOISY)], 600, {"a": whole(0, 5)},
            id="whole nodes above four",
        ),
        pytest.param([job("a", 4, whole(5))], 600, {"a": whole(5)}, id="no GPU that adds no speed"),
        pytest.param(
            [job("a", 4, whole(5), application=NOISY, restarts=19)], 600, {"a": whole(5)},
            id="a job that has restarted often stays as it is",
        ),
        pytest.param(
            [job("a", 1, (5,), application=model(SINGLE, noisy=True))], 600, {"a": (5,)},
            id="ncf is limited to one GPU",
        ),
    ],
)  # fmt: skip
def test_the_elastic_scheduler_allocates_gpus_that_add_speed(
    jobs: list[Job], now: int, expected: dict[str, Allocation]
) -> None:
    assert allocated(Elastic(), *jobs, now=now) == expected


def test_the_elastic_scheduler_serves_a_slow_job_although_a_fast_job_gains_more() -> None:
    fast = job("fast", 32, whole(*range(8)), application=NOISY)
    slow = job("slow", 8, whole(8, 9), application=model(noisy=True, steps={12: 1.3, 16: 1.5}))
    result = allocated(Elastic(), fast, slow)
    assert {name: len(allocation) for name, allocation in result.items()} == {
        "fast": 48,
        "slow": 16,
    }


def test_the_elastic_scheduler_takes_gpus_for_a_waiting_job() -> None:
    holders = [
        job(f"holder-{number}", 16, whole(*range(4 * number, 4 * number + 4)), application=NOISY)
        for number in range(4)
    ]
    result = allocated(Elastic(), *holders, job("late", application=NOISY))
    assert len(result["late"]) == 1
    assert sorted(len(result[holder.name]) for holder in holders) == [12, 16, 16, 16]


def folder(data: Path, *, optimus: float = 190.0) -> Path:
    """Write a model, a workload of one job that takes 190 s, and results."""
    traces = data / "pollux/traces/model"
    traces.mkdir(parents=True)
    steps = [f"{gpus},{local},1.0,0.5" for gpus in (1, 2, 3, 4) for local in (10, 40)]
    steps += [f"11,{local},2.0,0.5" for local in (10, 40)]
    (traces / "placements.csv").write_text(
        "\n".join(["placement,local_bsz,step_time,sync_time", *steps])
    )
    (traces / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
    )
    for batch in (10, 40):
        (traces / f"validation-{batch}.csv").write_text(
            "progress,iteration,metric,grad_sqr,grad_var\n100,100,0,1,0\n"
        )
    (data / "pollux/workloads").mkdir()
    (data / "pollux/workloads/workload-6.csv").write_text(
        "name,time,application,num_replicas,batch_size\na-0,0,model,2,20\n"
    )
    (data / "pollux/expected").mkdir()
    for name, time in {"tiresias": 190.0, "optimus": optimus, "pollux": 190.0}.items():
        (data / f"pollux/expected/jobload_{name}_1.0.json").write_text(
            json.dumps({"jcts": {"workload-6": {"a-0": time}}})
        )
    return data


def test_the_tables_show_whether_published_and_rebuilt_times_agree(tmp_path: Path) -> None:
    result = measure(folder(tmp_path, optimus=380.0), quick=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.splitlines()]
    assert [[*row[:5], row[-1]] for row in rows if row and row[-1] in ("PASS", "MISS")] == [
        ["tiresias", "1.0", "mean s, workload-6", "190.0", "190.0", "PASS"],
        ["tiresias", "1.0", "jobs of workload-6 that agree", "1", "1", "PASS"],
        ["optimus", "1.0", "mean s, workload-6", "380.0", "190.0", "MISS"],
        ["optimus", "1.0", "jobs of workload-6 that agree", "1", "0", "MISS"],
        ["pollux", "1.0", "mean s / mean s of tiresias", "1.000", "1.000", "PASS"],
        ["pollux", "1.0", "mean s / mean s of optimus", "0.500", "1.000", "MISS"],
    ]


def test_a_workload_is_a_trace_for_kfext_simulate(tmp_path: Path) -> None:
    text = jobs_csv(folder(tmp_path), "workload-6")
    assert text == "name,arrives,workers,seconds,gpus\na-0,0,2,100,1\n"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        pytest.param("traces/model/placements.csv", None, "cannot be read", id="a missing file"),
        pytest.param(
            "traces/model/placements.csv", "placement\n1\n", "line 1 has no column local_bsz",
            id="a missing column",
        ),
        pytest.param(
            "traces/model/scalability.csv",
            "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,10,fast,0\n",
            "line 2: step_time 'fast' is not a number",
            id="a word for a number",
        ),
        pytest.param(
            "traces/model/validation-10.csv",
            "progress,iteration,grad_sqr,grad_var\n1,1,1\n",
            "line 2 has no grad_var",
            id="a short line",
        ),
        pytest.param(
            "workloads/workload-6.csv",
            "name,time,application,num_replicas,batch_size\na,0,other,1,10\n",
            "line 2: application 'other' is not one of model",
            id="an unknown model",
        ),
        pytest.param("expected/jobload_tiresias_1.0.json", "{}", "jcts", id="no results"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(
    tmp_path: Path, path: str, content: str | None, expected: str
) -> None:
    file = folder(tmp_path) / "pollux" / path
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(UserError, match=expected) as refused:
        measure(tmp_path, quick=True)
    assert str(file) in str(refused.value)

"""The jobs and nodes of a real cluster become a trace that `kfext simulate` reads."""

import csv

import pytest

from kfext import names
from kfext.errors import UserError
from kfext.model.job import TrainingJob
from kfext.sim.job_table import read_world
from kfext.sim.nodes import GPU_TYPE, MIB, NodeSize
from kfext.sim.trace import trace_of
from tests.builders import JobBuilder, job, moment, node

_GIB = 1024 * MIB


def member(number: int, *, created: float = 0.0, name: str = "train") -> JobBuilder:
    """Return a job of two pods, the member of the series `name` with this number."""
    builder = job(name=f"{name}-{number}", uid=f"uid-{name}-{number}").created(created)
    return builder.master(cpu="2", memory="4Gi").worker(1, cpu="1", memory="8Gi", gpus=1)


def ended(builder: JobBuilder, *, started: float, at: float, how: str = "Succeeded") -> TrainingJob:
    builder.raw["status"] = {"startTime": moment(started)}
    return builder.condition(how, since=at).build()


NODES = [
    node("a", cpu="8", memory="64Gi", gpus=4, labels={GPU_TYPE: "T4"}),
    node("b", cpu="8", memory="64Gi", gpus=4, labels={GPU_TYPE: "T4"}),
    node("c", cpu="16", memory="128Gi"),
    node("d", cordoned=True),
]


def test_a_trace_has_ended_jobs_and_other_jobs_of_their_series() -> None:
    first = ended(member(1, created=1000), started=1100, at=1400)
    failed = ended(member(2, created=1060), started=1100, at=1200, how="Failed")
    waiting, other = member(3, created=4600).build(), member(1, created=1010, name="other").build()
    trace = trace_of([waiting, failed, other, first], NODES)
    assert (trace.ended, trace.likely, trace.unknown, trace.hours) == (2, 1, 1, 1.0)
    world = read_world(trace.jobs, name="trace", nodes=trace.nodes)
    assert [job.arrives for job in world.jobs] == [0, 60, 3600]
    assert [row["seconds"] for row in csv.DictReader(trace.jobs.splitlines())] == [
        "300",
        "100",
        "200",
    ]
    assert {job.trains for job in world.jobs} == {"program-0"}
    assert [*world.nodes.values()] == [
        *[NodeSize(8000, 64 * _GIB, 4, "T4")] * 2,
        NodeSize(16_000, 128 * _GIB),
    ]


def test_a_job_keeps_its_name_and_gets_a_number_where_it_is_taken() -> None:
    long = "a" * 45 + ".b" + "c" * 20
    builders = [
        job(name=name, uid=f"uid-{number}").created(number).worker(1)
        for number, name in enumerate(("train", "train", long, long))
    ]
    trace = trace_of([ended(builder, started=10, at=20) for builder in builders], NODES)
    names_ = [job.name for job in read_world(trace.jobs, name="trace", nodes=trace.nodes).jobs]
    assert names_ == ["train", "train-2", "a" * 45, f"{'a' * 45}-2"]


def test_a_job_that_ends_in_the_second_of_its_start_takes_a_second() -> None:
    trace = trace_of([ended(member(1), started=10, at=10)], NODES)
    assert [row["seconds"] for row in csv.DictReader(trace.jobs.splitlines())] == ["1"]


def test_each_pod_counts_as_the_largest_of_its_job() -> None:
    trace = trace_of([ended(member(1), started=10, at=20)], NODES)
    (spec,) = read_world(trace.jobs, name="trace", nodes=trace.nodes).jobs
    assert (spec.pods, spec.cpu, spec.memory, spec.gpus) == (2, 2000, 8 * _GIB, 1)


def test_an_elastic_job_keeps_its_range_and_its_present_size() -> None:
    builder = job().created(0).worker(4, cpu="1").elastic().annotated(names.ELASTIC, "2-3")
    trace = trace_of([ended(builder, started=10, at=20)], NODES)
    (spec,) = read_world(trace.jobs, name="trace", nodes=trace.nodes).jobs
    assert (spec.workers, spec.bounds) == (4, (2, 4))


def test_a_trace_needs_jobs() -> None:
    with pytest.raises(UserError, match="there are no jobs: name another namespace"):
        trace_of([], NODES)


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([member(1).build()], id="no ended job"),
        pytest.param(
            [
                ended(member(1, name="one"), started=10, at=20),
                *(member(number, name=f"other-{'ab'[number]}").build() for number in range(2)),
            ],
            id="less than half",
        ),
    ],
)
def test_a_trace_needs_the_durations_of_half_of_the_jobs(jobs: list[TrainingJob]) -> None:
    with pytest.raises(UserError, match=f"of {len(jobs)} jobs are known, and a trace needs half"):
        trace_of(jobs, NODES)

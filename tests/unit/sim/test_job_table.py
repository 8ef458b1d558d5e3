"""A CSV of jobs becomes a world, or the error names the value, with an example."""

import pytest

from kfext.errors import UserError
from kfext.sim.arms import ARMS
from kfext.sim.cluster import World
from kfext.sim.job_table import MAX_JOBS, read_world
from kfext.sim.jobs import Saving, Style
from kfext.sim.nodes import MIB, NodeSize

HEAD = "name,arrives,kind,workers,servers,min,max,cpu,seconds"


def read(*lines: str, head: str = HEAD, nodes: str = "2x4000m") -> World:
    return read_world("\n".join([head, *lines]), name="jobs.csv", nodes=nodes)


def test_a_job_of_each_kind() -> None:
    world = read(
        "wide,60,PyTorchJob,4,,2,8,500,600",
        "servers,0,TFJob,2,1,1,4,,300",
        "rigid,30,,2,0,,,1000,120",
        "static,90,TFJob,2,1,,,,120",
        nodes="1x4000m, 2x2000m",
    )
    assert list(world.nodes.values()) == [NodeSize(4000), NodeSize(2000), NodeSize(2000)]
    jobs = {job.name: job for job in world.jobs}
    assert [*jobs] == ["servers", "rigid", "wide", "static"]
    assert {name: job.style for name, job in jobs.items()} == {
        "wide": Style.TORCHRUN,
        "servers": Style.SERVERS,
        "rigid": Style.GANG,
        "static": Style.GANG,
    }
    assert {name: (job.pods, job.cpu, job.bounds) for name, job in jobs.items()} == {
        "wide": (4, 500, (2, 8)),
        "servers": (3, 1000, (1, 4)),
        "rigid": (2, 1000, None),
        "static": (3, 1000, None),
    }
    for job, seconds in zip(world.jobs, (300, 120, 600, 120), strict=True):
        # leaders: the Master of a PyTorchJob, one of its requested workers
        assert job.steps * job.pace.seconds(job.workers + job.leaders) == pytest.approx(seconds)


def test_a_tfjob_without_servers_saves_on_request_if_it_may_change_its_size() -> None:
    elastic, rigid = read("a,0,TFJob,2,,1,4,,60", "b,1,TFJob,2,,,,,60").jobs
    assert (elastic.style, elastic.saving) == (Style.GANG, Saving.ON_REQUEST)
    assert (rigid.style, rigid.saving) == (Style.GANG, Saving.NEVER)


def test_few_columns_are_enough() -> None:
    (job,) = read("a,2,60", head="name, workers ,seconds").jobs
    assert (job.kind, job.arrives, job.pods) == ("PyTorchJob", 0, 2)


WRONG = {
    "a missing column": ("name,workers,second", [], "lacks the column 'seconds'"),
    "an unknown column": (f"{HEAD},cards", [], "an unknown column 'cards'; the columns are name"),
    "a file that is not CSV": (HEAD, ["a" * 140_000], "jobs.csv, line 2 is not CSV: field larger"),
    "a head that is not CSV": (f"{HEAD},{'a' * 140_000}", [], "line 1 is not CSV: field"),
    "a column twice": ("name,workers,workers,seconds", ["a,2,4,60"], "two columns 'workers'"),
    "no jobs": (HEAD, [], "no jobs"),
    "a name": (HEAD, ["A_b,0,,1,,,,,60"], "line 2: name 'A_b' is not a DNS label"),
    "a second job of a name": (HEAD, ["a,0,,1,,,,,60"] * 2, "line 3: an earlier job has the name"),
    "a kind": (HEAD, ["a,0,MPIJob,1,,,,,60"], "kind 'MPIJob' is none of PyTorchJob, TFJob"),
    "a word for a number": (HEAD, ["a,0,,two,,,,,60"], "workers 'two' is not a number from 1 to"),
    "a number that is too large": (HEAD, ["a,0,,999999999999,,,,,60"], "workers '9999"),
    "a number that is too long": (HEAD, ["a,0,,0000000005,,,,,60"], "workers '0000000005' is not"),
    "a number that is far too long": (HEAD, [f"a,0,,{'1' * 5000},,,,,60"], f"'{'1' * 40}' is not"),
    "less CPU than the least, 50m": (HEAD, ["a,0,,1,,,,49,60"], "cpu '49' is not a number from"),
    "a line end in a name": (HEAD, ['"a', 'b",0,,1,,,,,60'], "name 'a\\nb' is not a DNS label"),
    "a negative number": (HEAD, ["a,-1,,2,,,,,60"], "arrives '-1' is not a number from 0"),
    "no duration": (HEAD, ["a,0,,2,,,,,"], "a needs workers and seconds"),
    "too few cells": (HEAD, ["a,0,,2"], "a needs workers and seconds"),
    "too many cells": (HEAD, ["a,0,,2,,,,,60,7"], "line 2 has more cells than columns"),
    "servers of a PyTorchJob": (HEAD, ["a,0,,2,1,,,,60"], "servers 1 is for a TFJob, not"),
    "half a range": (HEAD, ["a,0,,2,,1,,,60"], "min 1 and max None must both be set"),
    "a range without the requested size": (HEAD, ["a,0,,4,,1,2,,60"], "min <= workers (4) <= max"),
    "more pods than capacity": (
        HEAD,
        ["a,0,,9,,,,,60"],
        "9 pods of 1000m, and the nodes hold 8: add",
    ),
    "a GPU type": (f"{HEAD},gpu_type", ["a,0,,1,,,,,60,T 4"], "gpu_type 'T 4' is not the value"),
    "a program": (f"{HEAD},program", ["a,0,,1,,,,,60,A"], "program 'A' is not a name"),
    "GPUs that no node has": (
        f"{HEAD},gpus",
        ["a,0,,1,,,,,60,1"],
        "a has 1 pods of 1000m/1xgpu, and the nodes hold 0: add nodes, e.g. --nodes 1x1000m",
    ),
}


@pytest.mark.parametrize(("head", "lines", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_named_with_the_allowed_values(
    head: str, lines: list[str], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        read(*lines, head=head)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "nodes",
    [
        *("", "4", "4x4000", "0x4000m", "4x4000m,", "1999x1m,2x1m"),
        *("1x1m/4", "1x1m/T4", "1x1m/8xT 4", "1x1m/8xT4/64Gi"),
    ],
)
def test_a_malformed_list_of_nodes_is_refused_with_an_example(nodes: str) -> None:
    with pytest.raises(UserError, match="4x4000m or 4x4000m,2x64000m/512Gi/8xV100"):
        read("a,0,,1,,,,50,60", nodes=nodes)


def test_a_csv_may_have_20_000_jobs() -> None:
    lines = [f"job-{number},0,,1,,,,50,60" for number in range(MAX_JOBS + 1)]
    assert len(read(*lines[:-1]).jobs) == MAX_JOBS
    with pytest.raises(UserError, match="20,000 jobs at most"):
        read(*lines)


def test_a_job_has_the_memory_and_gpus_of_its_line() -> None:
    (job, _) = read(
        "a,0,,2,,,,4000,60,8192,4,T4",
        "b,0,,1,,,,1000,60,,,",
        head=f"{HEAD},memory,gpus,gpu_type",
        nodes="1x8000m/64Gi/8xT4,1x8000m/32Gi/8xV100",
    ).jobs
    assert (job.memory, job.gpus, job.gpu_type) == (8192 * MIB, 4, "T4")


def test_pods_are_bound_where_their_memory_and_gpus_are_free() -> None:
    world = read(
        *("first,0,,2,,,,1000,300,,2,T4", "second,1,,1,,,,1000,300,,2,T4"),
        "large,2,,1,,,,1000,300,20480,,",
        head=f"{HEAD},memory,gpus,gpu_type",
        nodes="1x8000m/16Gi/4xT4,1x8000m/32Gi/8xV100",
    )
    cluster = ARMS["gang"](world, 0).at(60)
    nodes = {
        live.spec.name: [pod.pod.node_name for pod in live.pods.values()] for live in cluster.jobs
    }
    assert nodes == {"first": ["node-0", "node-0"], "second": [], "large": ["node-1"]}
    assert ARMS["kfext"](world, 0).run().over

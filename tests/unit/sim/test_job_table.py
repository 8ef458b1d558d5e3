"""A CSV of jobs becomes a world, or the user reads what is wrong and what is right."""

import pytest

from kfext.errors import UserError
from kfext.sim.cluster import World
from kfext.sim.job_table import MOST_JOBS, read_world
from kfext.sim.jobs import Saving, Style

HEAD = "name,arrives,kind,workers,servers,min,max,cpu,seconds"


def read(*lines: str, head: str = HEAD, nodes: str = "2x4000m") -> World:
    return read_world("\n".join([head, *lines]), name="jobs.csv", nodes=nodes)


def test_a_job_of_each_style() -> None:
    world = read(
        "wide,60,PyTorchJob,4,,2,8,500,600",
        "servers,0,TFJob,2,1,1,4,,300",
        "rigid,30,,2,0,,,1000,120",
        "static,90,TFJob,2,1,,,,120",
        nodes="1x4000m, 2x2000m",
    )
    assert list(world.nodes.values()) == [4000, 2000, 2000]
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
        assert job.steps * job.pace.seconds(job.workers + job.leaders) == pytest.approx(seconds)


def test_a_tfjob_without_servers_saves_on_request_if_it_may_change_its_size() -> None:
    elastic, rigid = read("a,0,TFJob,2,,1,4,,60", "b,1,TFJob,2,,,,,60").jobs
    assert (elastic.style, elastic.saving) == (Style.GANG, Saving.ON_REQUEST)
    assert (rigid.style, rigid.saving) == (Style.GANG, Saving.NEVER)


def test_few_columns_are_enough() -> None:
    (job,) = read("a,2,60", head="name, workers ,seconds").jobs
    assert (job.kind, job.arrives, job.pods) == ("PyTorchJob", 0, 2)


WRONG = {
    "a column": ("name,workers,second", [], "no column seconds"),
    "another column": (f"{HEAD},gpus", [], "an unknown column 'gpus'; the columns are name"),
    "what is not CSV": (HEAD, ["a" * 140_000], "jobs.csv, line 1 is not CSV: field larger"),
    "what is not CSV in the head": (f"{HEAD},{'a' * 140_000}", [], "line 0 is not CSV: field"),
    "a column twice": ("name,workers,workers,seconds", ["a,2,4,60"], "two columns 'workers'"),
    "no jobs": (HEAD, [], "no jobs"),
    "a name": (HEAD, ["A_b,0,,1,,,,,60"], "line 2: name 'A_b' is not a DNS label"),
    "a second job of a name": (HEAD, ["a,0,,1,,,,,60"] * 2, "line 3: a job before has the name"),
    "a kind": (HEAD, ["a,0,MPIJob,1,,,,,60"], "kind 'MPIJob' is none of PyTorchJob, TFJob"),
    "a word for a number": (HEAD, ["a,0,,two,,,,,60"], "workers 'two' is not a number from 1 to"),
    "a number that is too large": (HEAD, ["a,0,,999999999999,,,,,60"], "workers '9999"),
    "a number that is too long": (HEAD, ["a,0,,0000000005,,,,,60"], "workers '0000000005' is not"),
    "a number that is far too long": (HEAD, [f"a,0,,{'1' * 5000},,,,,60"], f"'{'1' * 40}' is not"),
    "less CPU than an init container": (HEAD, ["a,0,,1,,,,49,60"], "cpu '49' is not a number from"),
    "a line end in a name": (HEAD, ['"a', 'b",0,,1,,,,,60'], "name 'a\\nb' is not a DNS label"),
    "a negative number": (HEAD, ["a,-1,,2,,,,,60"], "arrives '-1' is not a number from 0"),
    "no length": (HEAD, ["a,0,,2,,,,,"], "a needs workers and seconds"),
    "too few cells": (HEAD, ["a,0,,2"], "a needs workers and seconds"),
    "too many cells": (HEAD, ["a,0,,2,,,,,60,7"], "line 2 has more cells than columns"),
    "servers of a PyTorchJob": (
        HEAD,
        ["a,0,,2,1,,,,60"],
        "servers 1 is for a TFJob, not",
    ),
    "half a range": (HEAD, ["a,0,,2,,1,,,60"], "min 1 and max None must both be given"),
    "a range without the wish": (HEAD, ["a,0,,4,,1,2,,60"], "min <= workers (4) <= max"),
    "more pods than room": (
        HEAD,
        ["a,0,,9,,,,,60"],
        "9 pods of 1000m, and the nodes hold 8: give",
    ),
}


@pytest.mark.parametrize(("head", "lines", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(head: str, lines: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        read(*lines, head=head)
    assert said in str(caught.value)


@pytest.mark.parametrize("nodes", ["", "4", "4x4000", "0x4000m", "4x4000m,", "999x1m,999x1m"])
def test_nodes_are_numbers_of_a_size(nodes: str) -> None:
    with pytest.raises(UserError, match="4x4000m or 4x4000m,2x8000m"):
        read("a,0,,1,,,,50,60", nodes=nodes)


def test_there_is_a_bound_on_jobs() -> None:
    lines = [f"job-{number},0,,1,,,,50,60" for number in range(MOST_JOBS + 1)]
    assert len(read(*lines[:-1]).jobs) == MOST_JOBS
    with pytest.raises(UserError, match="1,000 jobs at most"):
        read(*lines)

"""The benchmark where compute is a timed wait: its jobs, its loads, its scale and its tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from e2e.bench.__main__ import main
from e2e.bench.cluster import timed
from e2e.bench.cluster.run import Outcome, Story
from e2e.bench.cluster.timed import ALONE, CLAIMS, COMPANION, claims_table, messages_table
from e2e.bench.cluster.waiting import (
    FEW_WAITING,
    LOADS,
    MILLICORES,
    QUICK_LOADS,
    SLOTS,
    SLOWED,
    WAITING,
    WaitingJob,
    coming_at,
    slowed,
)
from e2e.bench.cluster.workload import GREEDILY, PLAIN, Arm
from e2e.harness.jobs import specs
from e2e.testbed.realnodes import cpu_budget, memory_budget
from e2e.testbed.realnodes.node import burst
from kfext import names
from kfext.model.quantity import parse_quantity

Object = dict[str, Any]
EACH_JOB = pytest.mark.parametrize("job", WAITING, ids=lambda job: job.name)
_GIB = 2**30


def manifest(job: WaitingJob, minutes: float = 10) -> Object:
    return job.manifest(minutes=minutes, scheduler="any", folder=Path("/any"))


def words(body: Object) -> dict[str, str]:
    """Return the options of a job's program."""
    (container,) = next(iter(specs(body).values()))["template"]["spec"]["containers"]
    options = container["command"][2:]
    return dict(zip(options[::2], options[1::2], strict=True))


def test_half_of_the_jobs_are_of_each_kind() -> None:
    kinds = [job.kind for job in WAITING]
    assert kinds.count("PyTorchJob") == kinds.count("TFJob") == len(WAITING) / 2


@EACH_JOB
def test_a_node_holds_two_pods_which_may_use_what_they_request(job: WaitingJob) -> None:
    types = specs(manifest(job))
    assert sum(spec["replicas"] for spec in types.values()) == job.pods <= SLOTS
    for spec in types.values():
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert resources["limits"]["cpu"] == f"{MILLICORES}m"
        assert pod["schedulerName"] == "any"
        memory = parse_quantity(resources["limits"]["memory"])
        assert 2 * MILLICORES <= cpu_budget(2, 4) < 3 * MILLICORES
        assert 2 * memory <= memory_budget(23 * _GIB, 4)


@EACH_JOB
def test_only_a_job_that_may_be_resized_says_so_and_runs_under_torchrun(job: WaitingJob) -> None:
    body = manifest(job)
    sizes = body["metadata"]["annotations"].get(names.ELASTIC)
    assert sizes == (f"{job.least}-{job.most}" if job.least < job.most else None)
    (container,) = next(iter(specs(body).values()))["template"]["spec"]["containers"]
    torchrun = job.kind == "PyTorchJob" and sizes is not None
    assert container["command"][0] == ("torchrun" if torchrun else "python3")


@EACH_JOB
def test_a_step_waits_as_long_as_it_computes_on_the_accelerator_times_k(job: WaitingJob) -> None:
    options = words(manifest(job))
    each = float(options["--least"]) / (job.asked if job.kind == "PyTorchJob" else 1)
    assert each == pytest.approx(job.trains.step_ms / 1000 * SLOWED, abs=1e-3)
    assert float(options["--message"]) == job.trains.megabytes


@EACH_JOB
def test_steps_shrink_with_the_minutes_but_two_are_left(job: WaitingJob) -> None:
    assert job.steps_of(10) == job.steps
    assert job.steps_of(5) == max(2, round(job.steps / 2))
    assert job.steps_of(0.01) == 2


@EACH_JOB
def test_each_job_waits_for_about_as_long(job: WaitingJob) -> None:
    assert 110 <= job.seconds(10) <= 140


@pytest.mark.parametrize("load", LOADS)
def test_jobs_come_at_the_load(load: float) -> None:
    coming = coming_at(load, WAITING, minutes=10)
    assert coming == coming_at(load, WAITING, minutes=10)
    assert {arrival.job for arrival in coming} == set(WAITING)
    work = sum(job.pods * job.seconds(10) for job in WAITING)
    span = work / (SLOTS * load)
    assert 0.7 * span < coming[-1].seconds <= span
    assert coming[0].seconds == 0


def test_each_load_has_arrivals_of_its_own() -> None:
    orders = [[arrival.job for arrival in coming_at(load, WAITING, minutes=10)] for load in LOADS]
    assert len({tuple(order) for order in orders}) == len(LOADS)
    assert set(QUICK_LOADS) <= set(LOADS)


@pytest.mark.parametrize("link", ["10gbit", "25gbit", "1gbit", "200mbit"])
def test_links_are_as_many_times_slower_as_waits_are_longer(link: str) -> None:
    bits = {"gbit": 1e9, "mbit": 1e6}[link[-4:]] * int(link[:-4])
    found = slowed(link)
    assert float(found.removesuffix("kbit")) * 1e3 * SLOWED == pytest.approx(bits, rel=1e-4)
    assert burst(found) > 0
    assert slowed("none") == "none"


@pytest.mark.parametrize(
    ("arguments", "link"),
    [pytest.param([], "10gbit", id="default"), pytest.param(["--link", "25gbit"], "25gbit")],
)
def test_the_command_line_gives_the_link(
    arguments: list[str], link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def measure(*, link: str, **_: object) -> str:
        given.append(link)
        return "measured"

    monkeypatch.setattr(timed, "measure", measure)
    done = CliRunner().invoke(main, ["cluster", "--compute", "wait", *arguments])
    assert (done.exit_code, given) == (0, [link]), done.output


def test_a_link_that_is_no_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="no rate"):
        slowed("fast")


_SMALL, _LARGE = FEW_WAITING[-1], FEW_WAITING[0]


def outcome(arm: Arm, *, small: float, large: float) -> Outcome:
    """Return a run of two jobs that took so many seconds, and used a tenth of their CPU."""
    stories = [
        Story(job, 0.0, started=0.0, whole=0.0, ended=seconds, outcome="Succeeded")
        for job, seconds in ((_SMALL, small), (_LARGE, large))
    ]
    for story in stories:
        story.homes = {"a": "n1", "b": "n1"}
        story.stepping = {"a": [0.0, 0.0, 100.0, 1.7]}
    reserved = {PLAIN.name: 50.0}.get(arm.name, 65.0)
    return Outcome(arm, stories, until=max(small, large), reserved=reserved, capacity=100.0)


def runs_at(load: float, *, large: float) -> timed.Runs:
    arms = {arm.name: [outcome(arm, small=100, large=large)] for arm in (ALONE, COMPANION)}
    return {
        load: {
            PLAIN.name: [outcome(PLAIN, small=100, large=200)],
            GREEDILY.name: [outcome(GREEDILY, small=100, large=120)],
            **arms,
        }
    }


def row(text: str, *cells: str) -> str:
    """Return the only row with these in its first cells."""
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in text.splitlines()]
    chosen = [found for found in rows if all(map(str.startswith, found, cells)) and found]
    (only,) = [found for found in chosen if len(found) > len(cells)]
    return " | ".join(only)


def test_a_figure_that_is_not_reached_is_a_miss_with_where_the_gain_begins() -> None:
    text = claims_table({**runs_at(0.5, large=198), **runs_at(0.8, large=100)})
    assert "timed wait" in text
    against_plain = row(text, "CMS-DL", ALONE.title, PLAIN.title)
    assert "-0.7 % (-0.7 to -0.7): MISS" in against_plain
    assert "-33.3 % (-33.3 to -33.3): MISS" in against_plain
    assert f"at load 0.8 from {_LARGE.megabytes:g} MB on" in against_plain


def test_a_figure_that_is_reached_at_one_load_is_a_pass_there() -> None:
    text = claims_table(runs_at(0.8, large=100))
    reserved = row(text, "DRAGON: utilisation")
    assert "+30.0 % (+30.0 to +30.0): PASS" in reserved
    assert "begins" not in reserved
    assert "MB on" not in reserved


def test_without_any_gain_it_begins_at_no_load() -> None:
    text = claims_table(runs_at(0.5, large=200))
    assert "at no load" in row(text, "DRAGON: elapsed")


def test_every_message_has_a_row_and_every_table_says_what_compute_is() -> None:
    runs = runs_at(0.5, large=100)
    text = messages_table(runs, (_SMALL, _LARGE))
    assert "timed wait" in text
    assert "-50.0 %" in row(text, _LARGE.trains.name)
    assert "+0.0 %" in row(text, _SMALL.trains.name)
    figures = timed.arms_table(runs[0.5], title="t")
    assert "CPU of sending: 10 % of a pod's at most, < 50 %: PASS" in figures
    assert "CPU utilisation" not in figures


def test_a_stored_run_is_the_run() -> None:
    run = outcome(COMPANION, small=100, large=150)
    assert Outcome.of(run.stored(), COMPANION, FEW_WAITING) == run


def test_every_published_figure_is_set_beside() -> None:
    assert sorted(claim.published.bound for claim in CLAIMS) == [
        -68.8, -65, -42.3, -41.5, -24.7, -18.0, -14.8, -12.3, 20,
    ]  # fmt: skip


def test_the_companion_acts_in_its_own_arm_only() -> None:
    assert ALONE.scale == {"mode": "off"}
    assert COMPANION.scale is not None
    assert COMPANION.scale["mode"] == "act"
    assert PLAIN.scale is None
    assert replace(ALONE, scale=None).managed

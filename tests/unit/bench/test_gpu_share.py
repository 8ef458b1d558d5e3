"""The benchmark of GPU sharing: its readings, results, and runs."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.gpu_share.group import EXCLUSIVE, MEMBERS, WAYS, GroupOutcome
from e2e.bench.gpu_share.processes import STEADY, Agent
from e2e.bench.gpu_share.run import (
    DEFAULT,
    EVERY,
    LOW_ALONE,
    Outcome,
    digests,
    ends,
    exclusive,
    gated,
    latencies,
    native,
    rates,
    work,
)
from e2e.bench.gpu_share.tables import (
    agreed,
    bound,
    cluster_table,
    group_table,
    losses_table,
    mapped,
    ratio,
    shares_table,
    wakes_table,
)
from kfext.gpu.hook import words
from tests.unit.gpu.agent.node import Job, until

MS = 10**6
TRACES: dict[str, tuple[list[str], list[tuple[float, float]]]] = {
    "the card is empty between two micro-steps": (
        [f"done {10 * MS} 0", f"pass {20 * MS}", f"done {25 * MS} {15 * MS}", f"pass {40 * MS}",
         f"done {44 * MS} {19 * MS}"],
        [(0.020, 0.025), (0.040, 0.044)],
    ),
    "the next one is let through before the last is done": (
        [f"done {1 * MS} 0", f"pass {2 * MS}", f"pass {3 * MS}", f"done {6 * MS} {5 * MS}",
         f"done {9 * MS} {3 * MS}"],
        [(0.002, 0.009)],
    ),
    "the thread that waits wakes late for the last one": (
        [f"done {1 * MS} 0", f"pass {2 * MS}", f"done {6 * MS} {3 * MS}"],
        [(0.002, 0.004)],
    ),
    "a micro-step that has not ended is left out": ([f"done {1 * MS} 0", f"pass {2 * MS}"], []),
    "nothing": ([], []),
}  # fmt: skip
NATIVE, GATED = native(0.8), gated(0.8)
ABSENT = ("aiohttp", "google.protobuf", "grpc", "kopf", "kubernetes", "msgspec", "yaml")


def test_a_step_counts_in_each_second_for_the_part_in_which_it_ran() -> None:
    ends = [0.0, 0.5, 1.0, 3.0, 3.5, 4.0]
    assert rates(ends, 0.0, 4.0) == pytest.approx([2.0, 0.5, 0.5, 2.0])
    assert rates(ends, 0.5, 2.7) == pytest.approx([1.25, 0.5])


@given(
    st.lists(st.floats(0.001, 0.9), min_size=30, max_size=60), st.floats(0, 1), st.integers(1, 5)
)
def test_no_step_is_counted_twice_and_none_is_lost(
    took: list[float], began: float, seconds: int
) -> None:
    ends = [sum(took[:count]) for count in range(len(took))]
    result = rates(ends, began, began + seconds)
    within = sum(began < end <= began + seconds for end in ends)
    assert len(result) == seconds
    assert abs(sum(result) - within) <= 1 + 1e-6


@pytest.mark.parametrize(("trace", "expected"), TRACES.values(), ids=TRACES.keys())
def test_the_times_at_which_the_card_had_work_of_low(
    trace: list[str], expected: list[tuple[float, float]]
) -> None:
    assert work(trace) == [pytest.approx(span) for span in expected]


def test_the_delay_of_the_blocking_thread_is_known_for_each_end() -> None:
    true = [0.010 * number for number in range(1, 200)]
    late = [0.002 if number % 3 else 0.0001 for number in range(1, 200)]
    passed = [0.0, *(later - earlier for earlier, later in pairwise(true))]
    drift = 1.0001  # the clock of the card is a bit faster
    trace = [
        f"done {int((end + delay) * 1e9)} {int(between * drift * 1e9)}"
        for end, delay, between in zip(true, late, passed, strict=True)
    ]
    result, wakes = ends(trace)
    assert result == pytest.approx([end + 0.0001 for end in true], abs=0.0002)
    assert wakes == pytest.approx([delay - 0.0001 for delay in late], abs=0.0002)


def test_high_waits_for_the_remaining_work_of_low() -> None:
    spans = [(1.0, 2.0), (3.0, 3.5)]
    assert latencies([0.5, 1.0, 1.75, 2.0, 2.5, 3.4, 9.0], spans) == pytest.approx(
        [0.0, 1.0, 0.25, 0.0, 0.0, 0.1, 0.0]
    )
    assert latencies([1.0], []) == [0.0]


def test_losses_are_equal_up_to_a_step_or_differ() -> None:
    losses = [float(number).hex() for number in range(3 * EVERY)]
    other = [*losses[: 2 * EVERY], (-1.0).hex(), *losses[2 * EVERY + 1 :]]
    longer, shorter = digests(losses), digests(losses[: EVERY + 1])
    assert agreed([longer, shorter, longer]) == (3 * EVERY, True)
    assert agreed([longer, shorter]) == (EVERY, True)
    assert agreed([longer, digests(other)]) == (3 * EVERY, False)
    assert agreed([longer]) == (0, True)


def test_an_interval_contains_the_ratio_and_grows_with_the_spread_of_repeats() -> None:
    steady = ratio([[4.0] * 10, [4.0] * 10], [[5.0] * 10, [5.0] * 10])
    assert (steady.value, steady.low, steady.high) == pytest.approx((0.8, 0.8, 0.8))
    noisy = ratio([[3.0] * 10, [5.0] * 10], [[5.0] * 10, [5.0] * 10])
    assert noisy.value == pytest.approx(0.8)
    assert noisy.low < 0.7
    assert noisy.high > 0.9
    loss = mapped(noisy, lambda part: 1 - part)
    assert loss.low < loss.value < loss.high
    assert mapped(steady, lambda part: 1 - part).percent() == "20.0 (20.0 to 20.0)"


@pytest.mark.parametrize(
    ("high", "low", "expected"), [(0.8, 1.0, 0.2), (0.5, 0.5, 1.0), (0.2, 0.5, 1.0)]
)
def test_low_can_have_the_time_that_high_leaves_and_no_more_than_alone(
    high: float, low: float, expected: float
) -> None:
    assert bound(high, low) == pytest.approx(expected)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_each_job_of_the_group_runs_once_and_one_of_high_priority_at_a_time(way: Any) -> None:
    assert sorted(member.name for line in way.lines for member in line) == sorted(
        member.name for member in MEMBERS
    )
    assert sum(any(member.high for member in line) for line in way.lines) == 1


def outcome(
    high: float | None, low: float | None, *, busy: float = 0.5, losses: str = "same"
) -> Outcome:
    made = {name: [rate] * 4 for name, rate in (("high", high), ("low", low)) if rate is not None}
    preempted = [0.001, 0.004] if len(made) > 1 else []
    cpu = dict.fromkeys(made, 0.3)
    same = {name: {str(EVERY): losses} for name in made}
    return Outcome(made, busy, cpu, 0.1, preempted, [0.002] * len(preempted), same, None, 900.0)


ALONE = {
    LOW_ALONE: [outcome(None, 10.0, busy=1.0)] * 2,
    exclusive(0.8): [outcome(5.0, None, busy=0.8)] * 2,
}


def cells(table: str) -> list[list[str]]:
    rows = table.splitlines()[4:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_a_row_has_the_loss_of_high_and_the_share_of_low() -> None:
    idle = {"high to low": 0.02, "low to low": 0.01, "high to high": 0.04}
    shared = replace(outcome(4.96, 1.9), idle=idle)
    runs = {**ALONE, NATIVE: [outcome(3.0, 4.0)] * 2, GATED: [shared] * 2}
    without, gate = cells(shares_table("card", runs, 0.8, STEADY, 4.0))
    assert without[1:4] == ["40.0 (40.0 to 40.0)", "40.0 (40.0 to 40.0)", "2.00 (2.00 to 2.00)"]
    assert without[13:] == ["10 (10-10)", "", ""]  # no target is for it
    assert gate[1:6] == [
        "0.8 (0.8 to 0.8)", "19.0 (19.0 to 19.0)", "0.95 (0.95 to 0.95)", "4.0", "4.0",
    ]  # fmt: skip
    assert gate[7:12] == ["900 (900-900)", "2.0", "2.0", "30 (30-30)", "30 (30-30)"]
    assert gate[14:] == ["0.10 / 0.05 / 0.00 / 0.20", "<= 1 %: PASS; >= 0.85: PASS"]
    runs[GATED] = [outcome(4.5, 1.0)] * 2
    (_, missed) = cells(shares_table("card", runs, 0.8, STEADY, 4.0))
    assert missed[15] == "<= 1 %: MISS; >= 0.85: MISS"


def test_a_row_has_the_delay_of_a_blocking_and_of_a_polling_thread() -> None:
    lines: list[dict[str, Any]] = [
        {"ms": 0.65, "blocks": [1750.2, 1800.0, 2000.0], "polls": [40.0, 60.0, 90.0]},
        {"gate_us": 12.0},
        {"optimizer_us": 500.0},
    ]
    shown = wakes_table("card", lines)
    assert cells(shown) == [["0.65", "1750", "1800", "2000", "40", "60", "90"]]
    assert "a gate takes 12" in shown


def test_a_row_has_the_figures_of_a_cluster_about_its_card() -> None:
    slot = {"status": {"card": "GPU-1"}}
    alone = SimpleNamespace(step=0.1, other=0.0, slot=slot, shown="high priority")
    gate = SimpleNamespace(step=0.101, other=None, slot=slot, shown="high priority, low priority")
    shown = cells(cluster_table("a GPU", {"alone": alone, "with the gate": gate}))
    assert shown[0][1:4] == ["100.0", "0.0", "0"]
    assert shown[1][1:] == ["101.0", "1.0", "unknown", "GPU-1", "high priority, low priority"]


def test_a_loss_that_differs_in_any_run_is_shown() -> None:
    same = {**ALONE, NATIVE: [outcome(3.0, 4.0)]}
    assert [row[3] for row in cells(losses_table("card", same))] == ["equal", "equal"]
    runs = {**ALONE, NATIVE: [outcome(3.0, 4.0, losses="other")]}
    assert [row[3] for row in cells(losses_table("card", runs))] == ["DIFFERENT: MISS"] * 2


def test_a_group_is_compared_with_one_job_at_a_time() -> None:
    runs = {
        EXCLUSIVE.name: [GroupOutcome({"a": 50.0, "b": 100.0}, 0.5)],
        "both": [GroupOutcome({"a": 60.0, "b": 70.0}, 0.7)],
    }
    _, both = cells(group_table("card", runs, 20.0))
    assert both[1:] == [
        "70 (70-70)", "-30 %", "65 (65-65)", "-13 %", "70 (70-70)", "+20",
        "<= -20 %: PASS; >= 10 points: PASS",
    ]  # fmt: skip
    assert group_table("card", {}, 20.0)


async def test_the_agent_sees_when_high_becomes_busy_and_when_low_has_chosen_its_places(
    tmp_path: Path,
) -> None:
    async with Agent(tmp_path).running() as agent:
        for name in ("high", "low"):
            agent.admit(name, DEFAULT.terms(high=name == "high"))
        high, low = (Job(f"{agent.folder(name)}/agent", name) for name in ("high", "low"))
        await until(lambda: low.agent_alive() and high.bells == 1)
        assert low.orders.micro_step() == pytest.approx(0.005)
        assert not agent.is_calibrated("low")
        low.page.words[words.LONGEST_NS] = 3 * MS
        low.page.words[words.HOOKED] = words.COARSE
        assert agent.is_calibrated("low")
        assert agent.longest_micro_step("low") == pytest.approx(0.003)
        low.page.words[words.MICRO_STEPS] = 7
        assert agent.micro_steps("low") == 7
        came = [5.0, 6.0]
        for at in came:
            high.page.words[words.BUSY] = 0
            high.page.words[words.CHANGED] = int(at * 1e9)
            high.page.words[words.BUSY] = 1
            await until(lambda at=at: agent.became_busy[-1:] == [at])  # type: ignore[misc]
        assert agent.became_busy == came
        agent.dismiss("high")
        await until(lambda: "high" not in {name for name, _ in agent._of_all()})


def test_the_benchmark_needs_no_part_of_the_agent_for_kubelet_or_the_api_server() -> None:
    hidden = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))"
    command = f"{hidden}; import e2e.bench.gpu_share.__main__"
    subprocess.run([sys.executable, "-c", command], check=True)

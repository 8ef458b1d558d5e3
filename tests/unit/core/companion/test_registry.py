"""Which policies hold for a job, and all policies together for hundreds of intervals."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.companion.cpu import RESIZED
from kfext.core.companion.operation import Outcome
from kfext.core.companion.policy import Advice, SignalPolicy
from kfext.core.companion.proposal import PodSizes, Proposal, Size
from kfext.core.companion.registry import chosen_policies, signal_policies
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.scale import SCALE
from kfext.core.companion.signals import Signals
from kfext.core.settings.resolve import settings_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.namespace import Namespace
from kfext.model.policy import Mode, PolicyChoice, parse_policy
from tests.builders import job
from tests.unit.core.companion.simulator import SECONDS, SIZE, Running, World, both, until

MANAGED = {names.MANAGED: "true"}
CPU_POLICIES = signal_policies(RESIZED)
ALL = {policy.name: "act" for policy in CPU_POLICIES}
SHOWN = dict.fromkeys(ALL, "observe")


def chosen(
    resize: str = "",
    *,
    companion: dict[str, Any] | None = None,
    default: str = "",
    managed: bool = True,
) -> dict[str, str]:
    """By name of a policy its mode, for a job with an annotation and a TrainingPolicy."""
    made = job().worker(2)
    if resize:
        made.annotated(names.RESIZE, resize)
    spec = {"companion": companion or {}, "settings": {"resize": default} if default else {}}
    settings = settings_of(
        made.build(),
        Namespace("team", MANAGED if managed else {}),
        [parse_policy({"metadata": {"name": "p"}, "spec": spec})],
    )
    return {name: choice.mode for name, choice in chosen_policies(settings).items()}


CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "without the setting, none": (chosen(), {}),
    "off, none": (chosen("off", default="cpu"), {}),
    "cpu, all of them act": (chosen("cpu"), ALL),
    "observe, all of them only show": (chosen("observe"), SHOWN),
    "what the administrator has switched off stays off": (
        chosen("cpu", companion={"resize": {"mode": "off"}, "shift": {"mode": "off"}}),
        {},
    ),
    "each policy has a mode of its own": (
        chosen("cpu", companion={"resize": {"mode": "observe"}}),
        {**ALL, "resize": "observe"},
    ),
    "a job that observes gets no policy that is off": (
        chosen("observe", companion={"shift": {"mode": "off"}, "resize": {"mode": "act"}}),
        {"resize": "observe"},
    ),
    "a policy that acts opts no job in": (chosen(companion={"resize": {"mode": "act"}}), {}),
    "a default of the administrator opts in": (chosen(default="cpu"), ALL),
    "nothing in a namespace that is not managed": (chosen("cpu", managed=False), {}),
    "a policy that is not known holds nowhere": (
        chosen("cpu", companion={"speed": {"mode": "act"}}),
        ALL,
    ),
}


@pytest.mark.parametrize(("found", "want"), CASES.values(), ids=CASES)
def test_which_policies_hold_for_a_job(found: dict[str, str], want: dict[str, str]) -> None:
    assert found == want


@pytest.mark.parametrize("resize", ["observe", "cpu"])
def test_the_parameters_of_the_administrator_are_kept(resize: str) -> None:
    spec = {"companion": {"resize": {"parameters": {"budget": 0.05}}}}
    settings = settings_of(
        job().annotated(names.RESIZE, resize).build(),
        Namespace("team", MANAGED),
        [parse_policy({"spec": spec})],
    )
    assert chosen_policies(settings)["resize"].parameters == {"budget": 0.05}


SOME = Range(1, 4)
OBSERVED = {"scale": PolicyChoice(Mode.OBSERVE, {"wait": 5.0, "unknown": 1.0})}
MODES: dict[str, tuple[Settings, Mode]] = {
    "a job that opts in is scaled": (Settings(elastic=SOME), Mode.ACT),
    "a job that does not is left alone": (Settings(), Mode.OFF),
    "and so is a job of a namespace that is not managed": (
        Settings(elastic=SOME, managed=False),
        Mode.OFF,
    ),
    "an administrator decides": (Settings(elastic=SOME, companion=OBSERVED), Mode.OBSERVE),
    "but not against the job": (Settings(companion=OBSERVED), Mode.OFF),
    "what is set for another policy does not count": (
        Settings(elastic=SOME, companion={"resize": PolicyChoice(Mode.OFF)}),
        Mode.ACT,
    ),
}


@pytest.mark.parametrize(("settings", "want"), MODES.values(), ids=MODES)
def test_the_mode(settings: Settings, want: Mode) -> None:
    assert SCALE.effective(settings).mode is want


def test_a_parameter_is_the_administrators_or_the_default() -> None:
    settings = Settings(companion=OBSERVED)
    assert SCALE.parameter(settings, "wait") == 5.0
    assert SCALE.parameter(settings, "idle") == SCALE.parameters["idle"].default == 10.0


GROWS: dict[str, Any] = {"work": 300.0, "converges": 60.0}


def grower_among(number: int, *, show_end: bool = True, **grower: Any) -> list[Running]:
    """One job that grows, and others that converged long before it came."""
    late: dict[str, Any] = {"arrives": 600.0 * number / 3, **GROWS, **grower}
    made = [
        *(Running(f"done-{at}", work=900.0, converges=5.0) for at in range(number - 1)),
        Running("grower", **late),
    ]
    return [replace(running, shows_end=show_end) for running in made]


@pytest.mark.parametrize("number", [2, 3, 10])
def test_the_job_that_grows_is_faster_within_the_bound_of_arithmetic(number: int) -> None:
    without, with_them = both(grower_among(number, show_end=False), CPU_POLICIES, intervals=400)
    gain = until(without.job("grower")) / until(with_them.job("grower"))
    bound = 2 * number / (number + 1)
    assert 0.9 * bound < gain <= bound


@pytest.mark.parametrize("number", [2, 3, 10])
@pytest.mark.parametrize("work", [300.0, 3000.0])
def test_no_other_job_loses_more_than_its_budget(number: int, work: float) -> None:
    made = grower_among(number, show_end=False, work=work, converges=work / 5)
    without, with_them = both(made, CPU_POLICIES, intervals=400)
    for at in range(number - 1):
        other = with_them.job(f"done-{at}")
        share = SIZE / number / 1000
        assert other.budget.lost <= 0.1 * other.budget.used + share * SECONDS
        # What it lost it has to make up at its share of the node; nothing else delays it.
        delay = until(other) - until(without.job(f"done-{at}"))
        assert delay <= other.budget.lost / share + 2 * SECONDS


@pytest.mark.parametrize("number", [2, 3, 10])
@pytest.mark.parametrize("work", [300.0, 3000.0], ids=["the last ends first", "the last ends last"])
def test_no_job_ends_later_if_all_show_how_far_they_are(number: int, work: float) -> None:
    made = grower_among(number, work=work, converges=work / 5)
    without, with_them = both(made, CPU_POLICIES, intervals=1000)
    for alone in without.jobs:
        assert until(with_them.job(alone.uid)) <= until(alone) + SECONDS


def test_of_jobs_that_can_fill_the_node_the_first_ends_much_sooner_and_none_later() -> None:
    made = [
        Running(f"j{at}", work=400.0, converges=5.0, arrives=30.0 * at, peak=SIZE)
        for at in range(3)
    ]
    without, with_them = both(made, CPU_POLICIES, intervals=100)
    ratios = [until(with_them.job(alone.uid)) / until(alone) for alone in without.jobs]
    assert ratios[0] < 0.8
    assert max(ratios) <= 1.0
    assert sum(ratios) < 0.9 * len(ratios)


def test_a_served_job_that_understates_what_it_takes_loses_its_turn() -> None:
    honest = Running("honest", work=300.0, converges=5.0, peak=SIZE)
    liar = Running("liar", work=900.0, converges=5.0, peak=SIZE, states=0.05)
    without, with_them = both([honest, liar], CPU_POLICIES, intervals=60)
    acted = [
        (proposal.job, proposal.serves)
        for acted in with_them.acted
        for proposal in acted
        if proposal.measure
    ]
    assert acted == [("honest", "liar"), ("liar", "honest")]
    lent = with_them.job("honest").budget.lent
    assert 0 < lent < 0.3 * honest.work
    assert until(with_them.job("honest")) < 1.15 * until(without.job("honest"))


def test_a_job_is_left_alone_once_its_budget_is_spent() -> None:
    endless = grower_among(3, show_end=False, work=3000.0, converges=600.0)
    _, world = both(endless, CPU_POLICIES, intervals=400)
    assert all(world.job(f"done-{at}").rests == {"resize"} for at in (0, 1))
    assert all(world.job(f"done-{at}").limit == SIZE for at in (0, 1))


def test_what_does_not_help_is_undone_once_and_never_tried_again() -> None:
    _, world = both(grower_among(3, show_end=False, useful=400), CPU_POLICIES, intervals=100)
    backs = [proposal for acted in world.acted for proposal in acted if proposal.rests]
    assert Outcome.FAILED in world.outcomes
    assert sorted(back.job for back in backs) == ["done-0", "done-1"]
    for at in (0, 1):
        assert world.job(f"done-{at}").limit == SIZE
        last = max(
            tick
            for tick, acted in enumerate(world.acted)
            if any(proposal.job == f"done-{at}" for proposal in acted)
        )
        assert any(proposal.rests for proposal in world.acted[last])


def flipped(policy: SignalPolicy) -> SignalPolicy:
    """A policy that takes from the jobs which it should serve, and gives nothing back."""

    def propose(signals: Signals) -> Advice:
        found = policy.propose(signals).proposals
        return Advice(tuple(turned(proposal, signals) for proposal in found if proposal.measure))

    def turned(proposal: Proposal, signals: Signals) -> Proposal:
        served = signals.job(proposal.serves)
        assert served is not None
        sizes = tuple(Size(pod.uid, limit=350) for pod in served.pods)
        return replace(
            proposal, job=proposal.serves, serves=proposal.job, change=PodSizes((sizes,))
        )

    return replace(policy, propose=propose)


@pytest.mark.parametrize("show_end", [True, False], ids=["in order of ends", "by growth"])
def test_resize_makes_the_growing_job_faster_and_with_its_sign_flipped_slower(
    *, show_end: bool
) -> None:
    made = grower_among(3, show_end=show_end)
    without, with_it = both(made, [RESIZE], intervals=100)
    _, with_its_opposite = both(made, [flipped(RESIZE)], intervals=100)
    took = [until(world.job("grower")) for world in (with_it, without, with_its_opposite)]
    assert took[0] < 0.9 * took[1] < 0.8 * took[2]


ARRIVALS = st.lists(
    st.builds(
        lambda work, converges, arrives, most: (work, converges, arrives, most),
        st.floats(20, 400),
        st.floats(2, 100),
        st.integers(0, 60).map(lambda at: 30.0 * at),
        st.sampled_from([SIZE, SIZE, 700, 200]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25)
@given(ARRIVALS, st.integers(0, 9))
# What gives CPU back is not carried out while the job is busy, and the others stop growing then.
@example(
    [
        (61.0, 2.0, 1050.0, 1400),
        (127.0, 2.0, 750.0, 1400),
        (165.0, 45.0, 840.0, 700),
        (188.0, 44.0, 780.0, 1400),
    ],
    3,
)
def test_X2_over_hundreds_of_intervals_a_job_has_one_operation_at_a_time(
    arrivals: list[tuple[float, float, float, int]], seed: int
) -> None:
    made = [Running(f"j{at}", *arrival) for at, arrival in enumerate(arrivals)]
    world = World(made, CPU_POLICIES, seed).run(300)
    undone = [
        (proposal.job, proposal.policy)
        for acted in world.acted
        for proposal in acted
        if proposal.rests
    ]
    assert len(undone) == len(set(undone))
    for acted in world.acted:
        assert len({proposal.job for proposal in acted}) == len(acted)
        assert [proposal.rank for proposal in acted] == sorted(proposal.rank for proposal in acted)
    for running in world.jobs:
        assert running.limit is None or 50 <= running.limit <= SIZE
        assert running.budget.lost <= 0.1 * running.budget.used + SIZE * 30 / 1000

"""What the demo claims holds of a round exactly if the round shows it."""

import pytest

from e2e.demo.claims import PodRun, Round, faster, half_gangs, one_after_the_other

BEGAN = 1000.0
SPEEDS = {
    "ahead by more than two runs of plain Kubernetes differ": ((100.0, 110.0), 70.0, True),
    "ahead by less than they differ": ((100.0, 140.0), 90.0, False),
    "just as far ahead as they differ": ((100.0, 100.0), 100.0, False),
    "behind": ((100.0, 101.0), 130.0, False),
}
GANGS = {
    "each holds a part": ((1, 1), (0, 0), True),
    "the first has all its pods": ((2, 0), (0, 0), False),
    "the second holds nothing": ((1, 0), (0, 0), False),
    "both have all their pods": ((2, 2), (0, 0), False),
    "one trains with a part of its pods": ((1, 1), (0, 5), False),
}
TURNS = {
    "the second runs after the first": ((2, 10), (10, 20), ("a", "b"), True),
    "the second runs before the first has ended": ((2, 10), (9, 20), ("a", "b"), False),
    "the first in the alphabet runs last": ((12, 20), (2, 11), ("a", "b"), True),
    "the second has not ended": ((2, 10), (12, 20), ("a",), False),
}


def pod(
    job: str,
    replica: str,
    *,
    node: str = "node-0",
    started: float | None = 2.0,
    ended: float = 10.0,
    trains: float | None = None,
) -> PodRun:
    """Return a pod that was created as the round began; times in seconds since then."""
    return PodRun(
        job,
        replica,
        node,
        BEGAN,
        None if started is None else BEGAN + started,
        BEGAN + ended,
        None if trains is None else BEGAN + trains,
    )


def a_round(
    *pods: PodRun,
    placed_by: str = "kfext",
    steps: dict[str, int] | None = None,
    step_ms: dict[str, float] | None = None,
    ended: tuple[str, ...] = (),
) -> Round:
    """Return a round."""
    return Round(placed_by, BEGAN, pods, steps or {}, step_ms or {}, ended)


@pytest.mark.parametrize(("plain", "kfext", "holds"), SPEEDS.values(), ids=SPEEDS.keys())
def test_kfext_is_faster_where_it_is(
    plain: tuple[float, float], kfext: float, *, holds: bool
) -> None:
    rounds = [a_round(step_ms={"ddp": time}) for time in plain]
    claim = faster("ddp", plain=rounds, kfext=a_round(step_ms={"ddp": kfext}))
    assert claim.holds is holds


def test_the_claim_gives_its_figures() -> None:
    rounds = [a_round(step_ms={"ddp": time}) for time in (190.0, 210.0)]
    claim = faster("ddp", plain=rounds, kfext=a_round(step_ms={"ddp": 120.0}))
    assert claim.said == (
        "ddp, kfext: 120 ms a step against 190 and 210 under plain Kubernetes "
        "(-40%; the two differ by 10%)"
    )


@pytest.mark.parametrize(("bound", "steps", "holds"), GANGS.values(), ids=GANGS.keys())
def test_half_gangs_are_those_that_hold_a_part_and_do_not_train(
    bound: tuple[int, int], steps: tuple[int, int], *, holds: bool
) -> None:
    pods = [
        pod(job, f"worker-{index}", node="node-0" if index < held else "")
        for job, held in zip("ab", bound, strict=True)
        for index in range(2)
    ]
    plain = a_round(*pods, steps=dict(zip("ab", steps, strict=True)))
    assert half_gangs(plain, seconds=30).holds is holds


@pytest.mark.parametrize(("first", "second", "over", "holds"), TURNS.values(), ids=TURNS.keys())
def test_gangs_run_one_after_the_other_where_they_do(
    first: tuple[int, int], second: tuple[int, int], over: tuple[str, ...], *, holds: bool
) -> None:
    pods = [
        pod(job, "master-0", started=begin, ended=end)
        for job, (begin, end) in zip("ab", (first, second), strict=True)
    ]
    kfext = a_round(*pods, steps={"a": 40, "b": 40}, ended=over)
    assert one_after_the_other(kfext).holds is holds


def test_a_gang_whose_pods_never_ran_is_no_turn() -> None:
    pods = (pod("a", "master-0"), pod("b", "master-0", node="", started=None, ended=30))
    kfext = a_round(*pods, steps={"a": 40, "b": 0}, ended=("a",))
    assert not one_after_the_other(kfext).holds

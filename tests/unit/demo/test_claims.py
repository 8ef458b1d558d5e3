"""What the demo claims holds of a round exactly if the round shows it, on busy machines too."""

import pytest

from e2e.demo.__main__ import conclude
from e2e.demo.claims import (
    TOO_BUSY,
    Claim,
    PodRun,
    Round,
    change,
    half_gangs,
    off_the_link,
    on_one_node,
    one_after_the_other,
    speed,
    together,
)

BEGAN = 1000.0
CHANGES = {
    "ahead by more than two runs of plain Kubernetes differ": ((100, 110), (70, 72), "-32%"),
    "ahead by less than they differ": ((100, 140), (90, 90), TOO_BUSY),
    "a machine at load 10": ((56, 90), (40, 40), TOO_BUSY),
    "ahead by less than two runs of kfext differ": ((100, 101), (60, 100), TOO_BUSY),
    "no difference at all": ((100, 100), (100, 100), TOO_BUSY),
    "behind, which is no secret": ((100, 101), (130, 130), "+29%"),
    "a job that did no step": ((100, 101), (), "no step"),
}
PLACES = {
    "each job on one node, and all have ended": ("node-0", ("ddp",), True),
    "a job on two nodes": ("node-1", ("ddp",), False),
    "a job that has not ended": ("node-0", (), False),
}
LINKS = {
    "a hundredth of the bytes": ("node-1", 2e9, 2e7, True),
    "a tenth": ("node-1", 2e9, 2e8, True),
    "more than a tenth": ("node-1", 2e9, 2.1e8, False),
    "plain Kubernetes happened to save them too": ("node-0", 3e6, 4e6, True),
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
    wire: float = 0.0,
) -> Round:
    """Return a round."""
    return Round(placed_by, BEGAN, pods, steps or {}, step_ms or {}, ended, wire)


@pytest.mark.parametrize(("plain", "kfext", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_a_speed_is_told_where_it_is_more_than_noise(
    plain: tuple[float, ...], kfext: tuple[float, ...], said: str
) -> None:
    assert change(plain, kfext) == said


def _times(*milliseconds: float) -> list[Round]:
    return [a_round(step_ms={"ddp": time}) for time in milliseconds]


def test_a_speed_is_told_with_its_figures_and_is_no_claim() -> None:
    assert speed("ddp", plain=_times(56, 90), kfext=_times(40, 44)) == (
        "ddp, kfext: 40 and 44 ms a step against 56 and 90 under plain Kubernetes: "
        f"{TOO_BUSY} (A/A 47% and 10%)"
    )
    assert conclude([Claim("places", holds=True)], ["speed: too busy to tell"]) == 0
    assert "-29% (A/A 12%)" in speed("ddp", plain=_times(60, 53), kfext=_times(40))


def test_a_claim_that_does_not_hold_ends_the_demo_with_1() -> None:
    assert conclude([Claim("places", holds=True), Claim("link", holds=False)], []) == 1


@pytest.mark.parametrize(("second", "ended", "holds"), PLACES.values(), ids=PLACES.keys())
def test_jobs_are_together_where_each_is_on_one_node_and_has_ended(
    second: str, ended: tuple[str, ...], *, holds: bool
) -> None:
    pods = (pod("ddp", "master-0"), pod("ddp", "worker-0", node=second))
    assert together([a_round(*pods, steps={"ddp": 40}, ended=ended)]).holds is holds


@pytest.mark.parametrize(("second", "usual", "sent", "holds"), LINKS.values(), ids=LINKS.keys())
def test_the_link_is_spared_where_a_tenth_of_the_bytes_is_left(
    second: str, usual: float, sent: float, *, holds: bool
) -> None:
    pods = (pod("ddp", "master-0"), pod("ddp", "worker-0", node=second))
    plain, kfext = (a_round(*pods, steps={"ddp": 40}, wire=wire) for wire in (usual, sent))
    assert off_the_link(plain=[plain], kfext=[kfext]).holds is holds


@pytest.mark.parametrize(
    ("nodes", "holds"), [(["node-0", "node-0"], True), (["node-0", "node-1"], False), ([], False)]
)
def test_a_train_job_is_on_one_node_where_it_is_and_has_succeeded(
    nodes: list[str], *, holds: bool
) -> None:
    assert on_one_node("ddp", {"plain": ["node-0", "node-1"], "kfext": nodes}).holds is holds


def test_half_gangs_are_told_by_what_of_each_gang_has_a_node() -> None:
    pods = [
        pod(job, f"worker-{index}", node="node-0" if index < held else "")
        for job, held in (("a", 1), ("b", 2))
        for index in range(2)
    ]
    plain = a_round(*pods, placed_by="plain Kubernetes", steps={"a": 0, "b": 5})
    assert half_gangs(plain, pods=2, seconds=30) == (
        "plain Kubernetes, after 30 s: 1 of 2 pods of a have a node, 0 steps are done; "
        "2 of 2 pods of b have a node, 5 steps are done"
    )


@pytest.mark.parametrize(("first", "second", "over", "holds"), TURNS.values(), ids=TURNS.keys())
def test_gangs_run_one_after_the_other_where_they_do(
    first: tuple[int, int], second: tuple[int, int], over: tuple[str, ...], *, holds: bool
) -> None:
    pods = [
        pod(job, "master-0", started=begin, ended=end)
        for job, (begin, end) in zip("ab", (first, second), strict=True)
    ]
    kfext = a_round(*pods, steps={"a": 40, "b": 40}, ended=over)
    assert one_after_the_other(kfext, pods=1).holds is holds


def test_a_gang_whose_pods_never_ran_is_no_turn() -> None:
    pods = (pod("a", "master-0"), pod("b", "master-0", node="", started=None, ended=30))
    kfext = a_round(*pods, steps={"a": 40, "b": 0}, ended=("a",))
    assert not one_after_the_other(kfext, pods=1).holds


def test_a_gang_that_ran_without_one_of_its_pods_is_no_gang() -> None:
    pods = (pod("a", "master-0"), pod("a", "worker-0", node="", started=None))
    kfext = a_round(*pods, steps={"a": 40}, ended=("a",))
    assert not one_after_the_other(kfext, pods=2).holds

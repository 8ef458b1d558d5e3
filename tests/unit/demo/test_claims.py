"""A claim of the demo holds only if the measured rounds show it beyond the noise."""

import pytest

from e2e.demo.claims import (
    TOO_BUSY,
    PodRun,
    Round,
    change,
    off_the_link,
    one_after_the_other,
    together,
)

BEGAN = 1000.0
CHANGES = {
    "faster by more than two runs of plain Kubernetes differ": ((100, 110), (70, 72), "-32%"),
    "faster by less than they differ": ((100, 140), (90, 90), TOO_BUSY),
    "a machine at load 10": ((56, 90), (40, 40), TOO_BUSY),
    "faster by less than two runs of kfext differ": ((100, 101), (60, 100), TOO_BUSY),
    "no difference at all": ((100, 100), (100, 100), TOO_BUSY),
    "slower, which is shown too": ((100, 101), (130, 130), "+29%"),
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


@pytest.mark.parametrize(("plain", "kfext", "claim"), CHANGES.values(), ids=CHANGES.keys())
def test_a_speed_is_claimed_where_it_exceeds_the_noise(
    plain: tuple[float, ...], kfext: tuple[float, ...], claim: str
) -> None:
    assert change(plain, kfext) == claim


@pytest.mark.parametrize(("second", "ended", "holds"), PLACES.values(), ids=PLACES.keys())
def test_jobs_are_colocated_where_each_is_on_one_node_and_has_ended(
    second: str, ended: tuple[str, ...], *, holds: bool
) -> None:
    pods = (pod("ddp", "master-0"), pod("ddp", "worker-0", node=second))
    assert together([a_round(*pods, steps={"ddp": 40}, ended=ended)]).holds is holds


@pytest.mark.parametrize(("second", "usual", "sent", "holds"), LINKS.values(), ids=LINKS.keys())
def test_the_link_is_spared_where_at_most_a_tenth_of_the_bytes_remains(
    second: str, usual: float, sent: float, *, holds: bool
) -> None:
    pods = (pod("ddp", "master-0"), pod("ddp", "worker-0", node=second))
    plain, kfext = (a_round(*pods, steps={"ddp": 40}, wire=wire) for wire in (usual, sent))
    assert off_the_link(plain=[plain], kfext=[kfext]).holds is holds


@pytest.mark.parametrize(("first", "second", "ended", "holds"), TURNS.values(), ids=TURNS.keys())
def test_gangs_run_in_sequence_where_each_ends_before_the_next(
    first: tuple[int, int], second: tuple[int, int], ended: tuple[str, ...], *, holds: bool
) -> None:
    pods = [
        pod(job, "master-0", started=begin, ended=end)
        for job, (begin, end) in zip("ab", (first, second), strict=True)
    ]
    kfext = a_round(*pods, steps={"a": 40, "b": 40}, ended=ended)
    assert one_after_the_other(kfext, pods=1).holds is holds

"""Rounds of the demo as they were seen, for its tests."""

from e2e.demo.claims import PodRun, Round

BEGAN = 1000.0


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

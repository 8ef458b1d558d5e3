"""Migrate: a job on more nodes than necessary is brought together once nodes have room.

A job on several nodes is slower, by what its messages cost. So a move pays if what the job saves
until its end is more than the move costs: the job saves its work, stops, and starts elsewhere.
Source of the aim: SpeCon (Mao et al., 2020), which moves jobs off crowded nodes.
"""

from collections.abc import Collection

from kfext import names
from kfext.core.settings.values import NEVER
from kfext.core.words import listed
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.running.policy import Condition, Parameter, Policy
from kfext.state.running.proposal import Move, Proposal, Rank

MIGRATED = Condition(
    names.MOVED,
    "Move",
    names.REASON_MOVE_REFUSED,
    frozenset(
        {
            *(names.REASON_MOVING, names.REASON_TOGETHER, names.REASON_STAYS),
            *(names.REASON_AWAITS_CHECKPOINT, names.REASON_NO_CHECKPOINT),
            *(names.REASON_WOULD_MIGRATE, names.REASON_MOVE_REFUSED, names.REASON_TOO_EARLY),
            *(names.REASON_STANDS_DOWN, names.REASON_NO_SHARED_VOLUME),
        }
    ),
)
"""Whether kfext has moved a job."""
SPREAD_SPEED = 0.85
"""The speed of a job on several nodes, as a part of its speed on one. On two nodes 0.92 to 1.0 was
published for ResNet-101, MobileNet and Inception, 0.33 to 0.9 for AlexNet and VGG-16, which send
more (Gao et al., Chronus, SoCC 2021, model_info.json of its artifact)."""
MARGIN = 2.0
"""A move must save this many times what it costs, because both are estimates."""
INTERVAL_SECONDS = 30.0
"""Seconds between two moves in the cluster."""
REST_SECONDS = 600.0
"""Seconds between two moves of one job."""
MIGRATE = Policy(
    name="migrate",
    effect="brings the pods of a running job together on fewer nodes, from a checkpoint, once "
    "there is room that no job waits for",
    condition=MIGRATED,
    max_mode=lambda settings: Mode.OFF if settings.migrate == NEVER else Mode.ACT,
    evidence="| `spread-0.8`: jobs that fit no single node, `migrate` |",
    parameters={
        "spreadSpeed": Parameter(
            SPREAD_SPEED,
            0.05,
            1.0,
            "the speed of a job on several nodes, as a part of its speed on one node",
        ),
    },
)


def together(
    job: str,
    *,
    now: Collection[str],
    to: Collection[str],
    left: float | None,
    cost: float,
    speed: float,
) -> Proposal | Verdict:
    """Return the proposal to bring a job together, or why it stays.

    `now`, `to`: the nodes of its pods, and better nodes; no better nodes: there is no room.
    `left`: the seconds that it has left at its present speed, None without a known end.
    `cost`: the seconds that a move costs it. `speed`: as SPREAD_SPEED.
    """
    are = f"its pods are on {listed(sorted(set(now)), of='nodes')}"
    if not to:
        return Verdict(names.REASON_STAYS, f"{are}; no better place has room for all of them")
    if left is None:
        message = f"{are}; it does not show how far it is, so it is not known what a move saves"
        return Verdict(names.REASON_STAYS, message)
    saves = left * (1 - speed)
    goes = listed(sorted(set(to)), of="nodes")
    gain = f"saves about {saves:.0f} s and costs about {cost:.0f} s"
    if saves <= MARGIN * cost:
        message = f"{are}; a move to {goes} {gain}, and must save {MARGIN:g} times what it costs"
        return Verdict(names.REASON_STAYS, message)
    return Proposal(
        policy=MIGRATE.name,
        job=job,
        change=Move(),
        reason=f"{are}; there is room for all on {goes}, and a move {gain}",
        rank=Rank.MOVE,
    )

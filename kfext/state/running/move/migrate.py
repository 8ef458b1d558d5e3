"""The policy `migrate`: a job on more nodes than necessary moves to fewer nodes with capacity.

A job on several nodes is slower, because its pods communicate over the network. A move pays if the
time that it saves until the end of the job exceeds its cost: the job saves its work, stops, and
starts on other nodes.
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
"""The speed of a job on several nodes, as a fraction of its speed on a single node. The published
values for two nodes are 0.92 to 1.0 for ResNet-101, MobileNet and Inception, and 0.33 to 0.9 for
AlexNet and VGG-16, which send more data (Gao et al., Chronus, SoCC 2021, `model_info.json` of its
artifact)."""
MARGIN = 2.0
"""A move must save this many times its cost, because both are estimates."""
INTERVAL_SECONDS = 30.0
"""The least time between two moves in the cluster."""
REST_SECONDS = 600.0
"""The least time between two moves of one job."""
MIGRATE = Policy(
    name="migrate",
    effect="moves a running job to fewer nodes, from a checkpoint, once these have capacity that "
    "no job waits for",
    condition=MIGRATED,
    max_mode=lambda settings: Mode.OFF if settings.migrate == NEVER else Mode.ACT,
    evidence="| `spread-0.8`: jobs that fit no single node, `migrate` |",
    parameters={
        "spreadSpeed": Parameter(
            SPREAD_SPEED,
            0.05,
            1.0,
            "the speed of a job on several nodes, as a fraction of its speed on one node",
        )
    },
)


def move_or_stay(
    job: str,
    *,
    now: Collection[str],
    better: Collection[str],
    remaining: float | None,
    cost: float,
    speed: float,
) -> Proposal | Verdict:
    """Return the proposal to move a job to fewer nodes, or the reason to stay.

    `job`: its uid. `now`: the present nodes of its pods. `better`: the nodes of a better placement;
    empty means that none has capacity. `remaining`: the seconds to its end at its present speed;
    None means unknown. `cost`: the seconds that a move costs. `speed`: as SPREAD_SPEED.
    """
    are = f"its pods are on {listed(sorted(set(now)), noun='nodes')}"
    if not better:
        return Verdict(names.REASON_STAYS, f"{are}; no better nodes have capacity for all of them")
    if remaining is None:
        message = f"{are}; its remaining time is unknown, so a move may not pay"
        return Verdict(names.REASON_STAYS, message)
    saves = remaining * (1 - speed)
    goes = listed(sorted(set(better)), noun="nodes")
    gain = f"saves about {saves:.0f} s and costs about {cost:.0f} s"
    if saves <= MARGIN * cost:
        message = f"{are}; a move to {goes} {gain}, and must save {MARGIN:g} times its cost"
        return Verdict(names.REASON_STAYS, message)
    return Proposal(
        policy=MIGRATE.name,
        job=job,
        change=Move(),
        reason=f"{are}; there is capacity for all on {goes}, and a move {gain}",
        rank=Rank.MOVE,
    )

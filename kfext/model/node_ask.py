"""What a job has asked the autoscaler for, a part of the job's state."""

from dataclasses import dataclass

from kfext.model.scale_state import state_number
from kfext.model.tolerant import mapping


@dataclass(frozen=True, slots=True)
class NodeAsk:
    """The asks of a job for new nodes since its gang was last whole. Times are epoch seconds.

    `number`: how many asks began.
    `since`: when the open ask began; 0.0: none is open.
    `workers`: the workers in the open ask; 0: all that the job requests.
    `again_at`: when the next ask may begin, after an ask that got no nodes.
    """

    number: int = 0
    since: float = 0.0
    workers: int = 0
    again_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the job waits for nodes that it has asked for."""
        return self.since > 0

    def encode(self) -> dict[str, object]:
        """Return what is written on the job, without empty values."""
        values = {
            "number": self.number,
            "since": round(self.since, 3),
            "workers": self.workers,
            "againAt": round(self.again_at, 3),
        }
        return {key: value for key, value in values.items() if value}


def decode_ask(raw: object) -> NodeAsk:
    """Return the asks in a JSON object, without what is damaged. Never raises."""
    found = mapping(raw)
    return NodeAsk(
        number=int(state_number(found.get("number"))),
        since=state_number(found.get("since")),
        workers=int(state_number(found.get("workers"))),
        again_at=state_number(found.get("againAt")),
    )

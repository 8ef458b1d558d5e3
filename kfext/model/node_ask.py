"""A job's requests for nodes to the autoscaler, as recorded in the job's state."""

from dataclasses import dataclass

from kfext.model.scale_state import state_number
from kfext.model.tolerant import mapping


@dataclass(frozen=True, slots=True)
class NodeAsk:
    """A job's requests for nodes since its gang was last complete. Times are epoch seconds.

    `number`: the number of requests so far.
    `since`: the time of the open request; 0.0 if there is none.
    `workers`: the number of workers that it is for; 0 stands for the whole requested size.
    `again_at`: the earliest time of the next request, after a request that brought no nodes.
    """

    number: int = 0
    since: float = 0.0
    workers: int = 0
    again_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the job waits for requested nodes."""
        return self.since > 0

    def encode(self) -> dict[str, object]:
        """Return the non-empty values as a JSON object."""
        values = {
            "number": self.number,
            "since": round(self.since, 3),
            "workers": self.workers,
            "againAt": round(self.again_at, 3),
        }
        return {key: value for key, value in values.items() if value}


def decode_ask(raw: object) -> NodeAsk:
    """Return the requests in a JSON object, without damaged values. Never raises."""
    written = mapping(raw)
    return NodeAsk(
        number=int(state_number(written.get("number"))),
        since=state_number(written.get("since")),
        workers=int(state_number(written.get("workers"))),
        again_at=state_number(written.get("againAt")),
    )

"""Steps that jobs of low priority make although they have to wait, so that their collectives live.

What they cost the job of high priority comes in one of its steps, or in few, and then not for half
a minute. To what times the steps it looks like an evaluation, so it is added up here.
"""

from kfext.gpu.rules.ladder import PATIENCE

TICKET_SECONDS = 30.0
"""At its gate, after which a job may make one step."""


class Tickets:
    """The tickets of one card.

    `budget`: the part of its speed that the job of high priority may lose.

    Call `note` and then `due` for each job of low priority, some times in a second.
    """

    def __init__(self, *, budget: float) -> None:
        self._budget = budget
        self._since: dict[str, float] = {}
        self._given: set[str] = set()
        self._repaid = 0.0

    def over(self, now: float) -> bool:
        """Return whether the last steps have cost more than the budget of the time since then."""
        return now < self._repaid

    def note(self, name: str, *, worked: float, intruded: float, waits: bool, now: float) -> None:
        """Take in what a job has done since the last call: seconds of work, and of intrusion.

        `waits`: it stands at its gate.
        """
        if name in self._given and intruded > 0:
            owed = max(self._repaid, now) + intruded / self._budget
            self._repaid = min(owed, now + PATIENCE)  # one long step alone is no lasting loss
        if worked > 0 or not waits:
            self._since[name] = now
            if waits:
                self._given.discard(name)

    def due(self, name: str, now: float) -> bool:
        """Return whether a job may make one more step now."""
        if now - self._since.setdefault(name, now) < TICKET_SECONDS:
            return False
        self._since[name] = now
        self._given.add(name)
        return True

    def remove(self, name: str) -> None:
        """Forget a job."""
        self._since.pop(name, None)
        self._given.discard(name)

"""Steps that low-priority jobs make although they have to wait, so that their collectives live.

Such a step slows only one or few steps of the high-priority job, and then none for half a minute.
To the meter of steps that looks like an evaluation, so the cost is added up here.
"""

from kfext.gpu.rules.ladder import PATIENCE

TICKET_SECONDS = 30.0
"""After this time at its gate a job may make one step."""


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
        """Return whether the last tickets cost more than the budget of the time since then."""
        return now < self._repaid

    def note(self, name: str, *, worked: float, intruded: float, waits: bool, now: float) -> None:
        """Record what a job has done since the last call: seconds of work, and of intrusion.

        `waits`: it waits at its gate.
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

"""What others than honest users do: policies, strangers and tenants, of the dice alone."""

import random
from dataclasses import dataclass
from typing import Any

from e2e.soak import forgeries
from e2e.soak.manifests import PINNED
from e2e.soak.roster import WILD, Roster

NAMESPACES = ("soak-a", "soak-b", "soak-quota")
REFUSED = ("pods", "pins", "patches", "jobs")
"""What the API server may refuse: new pods; of kfext, pins of pods, all its patches of pods, and
of jobs."""
_LIMITS = (("6", "24Gi"), ("12", "8Gi"))


@dataclass
class Mischief:
    """The arguments of each action; the names are those of Others and Tenants."""

    dice: random.Random
    roster: Roster

    def __post_init__(self) -> None:
        self._step = self._made = 0

    def _new(self, what: str) -> str:
        self._made += 1
        return f"{what}-{self._made}"

    # --- admission --------------------------------------------------------------------------------

    def _refuse_here(self) -> tuple[Any, ...]:
        namespace = self.dice.choice(NAMESPACES)
        self.roster.refusing.append(namespace)
        return namespace, self.dice.choice(REFUSED)

    def _admit_here(self) -> tuple[Any, ...]:
        return (self.roster.refusing.pop(),)

    def _limit(self) -> tuple[Any, ...]:
        namespace = self.dice.choice([one for one in NAMESPACES if one not in self.roster.limits])
        self.roster.limits.append(namespace)
        return namespace, *self.dice.choice(_LIMITS)

    def _unlimit(self) -> tuple[Any, ...]:
        return (self.roster.limits.pop(self.dice.randrange(len(self.roster.limits))),)

    # --- strangers --------------------------------------------------------------------------------

    def _pin_stranger(self) -> tuple[Any, ...]:
        pod = (self.dice.choice((*NAMESPACES, WILD)), self._new("stranger"))
        self.roster.strangers.append(pod)
        return *pod, self.dice.choice(self.roster.nodes), self.dice.choice(PINNED)

    def _drop_stranger(self) -> tuple[Any, ...]:
        return self.roster.strangers.pop(self.dice.randrange(len(self.roster.strangers)))

    def _pin_gated(self) -> tuple[Any, ...]:
        return self.dice.random(), self.dice.choice(self.roster.nodes)

    def _resize(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.roster.alive)
        return *self.roster.jobs[name], name, self.dice.random(), self.dice.random() < 0.5

    # --- tenants ----------------------------------------------------------------------------------

    def _forge(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.roster.alive)
        mark = self.dice.choice(forgeries.MARKS)
        return *self.roster.jobs[name], name, mark, self.dice.choice(self.roster.nodes)

    def _submit_forged(self) -> tuple[Any, ...]:
        namespace = self.dice.choice((NAMESPACES[0], WILD))
        how, kind = self.dice.choice(forgeries.HOW), self.dice.choice(("PyTorchJob", "TFJob"))
        name = self._new(how)
        self.roster.forged.append((namespace, kind, name))
        return namespace, forgeries.job(name, how, kind=kind, size=self.dice.randint(1, 4))

    def _drop_forged(self) -> tuple[Any, ...]:
        return self.roster.forged.pop(self.dice.randrange(len(self.roster.forged)))

    def _plant(self) -> tuple[Any, ...]:
        """Choose a job that kfext must not place, and nodes for it."""
        job = self.dice.choice(self.roster.unplaced)
        return *job, self.dice.sample(self.roster.nodes, 2)

    def _stray(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.roster.alive)
        victim = (*self.roster.jobs[name], name)
        pod = (WILD, self._new("stray"))
        self.roster.strays.append(pod)
        return *pod, victim

    def _drop_stray(self) -> tuple[Any, ...]:
        return self.roster.strays.pop(self.dice.randrange(len(self.roster.strays)))

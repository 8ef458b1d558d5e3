"""What is measured: the jobs on the card, and how they share it."""

from dataclasses import dataclass

from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP
from kfext.model.gpu import GpuShare

HIGH, LOW = "high", "low"
LOADS = (0.5, 0.8)
"""The parts of the time for which the job of high priority should keep the card busy."""
EXCLUSIVE, AGAIN, NATIVE = "exclusive", "exclusive again (A/A)", "native"
BUDGET, STRICT = "gate, budget 5 %, minimum 20 %", "gate, budget 2 %, minimum 20 %"
HOOKED = "exclusive, with the hook"
NO_BUDGET = 1.0
"""What high may lose so that nobody is ever shut out for it, and micro-steps are not shortened."""
_QUOTAS = (10, 5, 2)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How hooked jobs share: what low is promised, and high may lose; `micro_step` in seconds."""

    budget: float
    minimum: float
    micro_step: float = LONGEST_MICRO_STEP

    def terms(self, *, high: bool) -> GpuShare:
        """Return what a job of that priority is promised."""
        units = 50 if high else 30
        return GpuShare(units, high=high, loss_budget=self.budget, min_share=self.minimum)


DEFAULT = Sharing(budget=0.05, minimum=0.2)
"""That of kfext, where no annotation says otherwise."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One set-up. `u`: that of high, None if it is not there; `sharing`: None without the hook."""

    name: str
    u: float | None
    low: bool
    sharing: Sharing | None = None

    @property
    def title(self) -> str:
        """What tells it from all others."""
        return f"{self.name}, {'low alone' if self.u is None else f'u {self.u:g}'}"

    @property
    def jobs(self) -> tuple[str, ...]:
        """Who is on the card."""
        return (*([] if self.u is None else [HIGH]), *([LOW] if self.low else []))


LOW_ALONE = Arm(EXCLUSIVE, None, low=True)


def gate(milliseconds: float) -> str:
    """Return the name of the arm with micro-steps of that length."""
    return f"gate {milliseconds:g} ms"


def shared(u: float, *, quotas: tuple[float, ...] = _QUOTAS) -> list[Arm]:
    """Return the arms with both jobs."""
    return [
        Arm(NATIVE, u, low=True),
        *(gated(u, one) for one in quotas),
        Arm(BUDGET, u, low=True, sharing=DEFAULT),
    ]


def strict(u: float) -> Arm:
    """Return the one with both jobs whose user allows high to lose no more than the target."""
    return Arm(STRICT, u, low=True, sharing=Sharing(budget=0.02, minimum=0.2))


def gated(u: float, milliseconds: float) -> Arm:
    """Return the one with both jobs in which micro-steps are that long, and nothing else counts."""
    sharing = Sharing(NO_BUDGET, 0.0, milliseconds / 1000)
    return Arm(gate(milliseconds), u, low=True, sharing=sharing)


def figures(*, thorough: bool) -> list[Arm]:
    """Return all arms. `thorough`: also A/A, and micro-steps of 10 ms."""
    arms = [LOW_ALONE, *hooked_alone()]
    for u in LOADS:
        arms.append(Arm(EXCLUSIVE, u, low=False))
        arms += [Arm(AGAIN, u, low=False)] if thorough else []
        arms += [*shared(u), strict(u)] if thorough else shared(u, quotas=_QUOTAS[1:])
    return arms


def hooked_alone() -> list[Arm]:
    """Return those of one job that has the hook, and nobody to give way to."""
    return [
        Arm(HOOKED, None, low=True, sharing=DEFAULT),
        Arm(HOOKED, LOADS[0], low=False, sharing=DEFAULT),
    ]


def smoke() -> list[Arm]:
    """Return the fewest from which one sees that everything works."""
    u = LOADS[0]
    return [LOW_ALONE, Arm(EXCLUSIVE, u, low=False), *shared(u, quotas=(5,))[:2]]

"""Jobs with loss curves that share a node, with the companion and without."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kfext.core.companion.arbitration import Cadence, arbitrate, for_free_jobs
from kfext.core.companion.operation import WINDOWS_BEFORE, Outcome, Trial, begin_trial
from kfext.core.companion.policy import SignalPolicy
from kfext.core.companion.proposal import Measure, Proposal
from kfext.core.companion.signals import Budget, JobSignal, NodeSignal, Signals
from kfext.core.progress.course import GrowthList
from kfext.core.progress.reported import Reported
from kfext.model.policy import PolicyChoice
from tests.unit.core.companion.jobs import pod

SIZE = 1400
SECONDS = 30.0
CHANCE = 0.002
"""A gain of the loss that counts as noise."""


@dataclass
class Running:
    """A job of one pod. `work`, `converges`: core-seconds that it needs, and of a half-life.

    `most`: millicores that it can use; more do not make it faster beyond `useful`.
    `shows_end`: whether it prints how much of its work is left, and `states` what part of that.
    `peak`: the most that it has used.
    """

    uid: str
    work: float
    converges: float
    arrives: float = 0.0
    most: int = SIZE
    useful: int = SIZE
    shows_end: bool = True
    peak: int = 0
    states: float = 1.0
    limit: int | None = None
    done: float = 0.0
    use: int = 0
    ended: float | None = None
    growth: GrowthList = field(default_factory=GrowthList)
    budget: Budget = field(default_factory=Budget)
    rests: set[str] = field(default_factory=set)
    busy: bool = False
    history: dict[Measure, list[float | None]] = field(
        default_factory=lambda: {measure: [] for measure in Measure}
    )

    def live(self, now: float) -> bool:
        return self.arrives <= now and self.ended is None

    def loss(self) -> float:
        return math.exp2(-self.done / self.converges)


@dataclass
class World:
    """A node with jobs; `policies` act on them. `seed`: of the noise in what they report."""

    jobs: list[Running]
    policies: Sequence[SignalPolicy]
    seed: int = 0
    now: float = 0.0
    acted: list[tuple[Proposal, ...]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    trials: dict[str, Trial] = field(default_factory=dict)
    company: frozenset[str] = frozenset()

    def run(self, intervals: int) -> "World":
        random, cadences = Random(self.seed), {rule.name: Cadence() for rule in self.policies}
        pending: tuple[Proposal, ...] = ()
        for _ in range(intervals):
            self._carry_out(pending)
            self._work(random)
            signals = self._signals()
            self.now += SECONDS
            proposals = self._judged(signals)
            for policy in self.policies:
                due = cadences[policy.name].due(
                    signals.jobs, interval=lambda _: SECONDS, now=self.now
                )
                proposals += policy.propose(replace(signals, jobs=tuple(due))).proposals
            ripe = for_free_jobs(filter(self._ripe, proposals), signals)
            pending = arbitrate(ripe, signals).act
            self.acted.append(pending)
            for proposal in pending:
                self._begin(proposal)
                self.job(proposal.job).busy = random.random() < 0.3
        return self

    def _meet(self, live: Sequence[Running]) -> None:
        """Forget what was seen of jobs among others, as the controller does."""
        company = frozenset(job.uid for job in live)
        if company == self.company:
            return
        self.company, self.trials = company, {}
        for job in live:
            for values in job.history.values():
                values.clear()

    def _ripe(self, proposal: Proposal) -> bool:
        """Return whether enough has been seen to tell later what a proposal has brought."""
        if proposal.measure is None:
            return True
        seen = self.job(proposal.serves).history[proposal.measure]
        return proposal.expected is not None or len(seen) >= WINDOWS_BEFORE

    def _judged(self, signals: Signals) -> list[Proposal]:
        """Return what is to be undone; a trial without a gain stays until that is done."""
        self.trials = {uid: trial.with_window(signals) for uid, trial in self.trials.items()}
        outcomes = {uid: trial.outcome(signals) for uid, trial in self.trials.items()}
        self.outcomes += [
            outcome for outcome in outcomes.values() if outcome is not Outcome.RUNNING
        ]
        failed = [uid for uid, outcome in outcomes.items() if outcome is Outcome.FAILED]
        backs = [self.trials[uid].undo(signals) for uid in failed]
        for uid, outcome in outcomes.items():
            if outcome in {Outcome.GAINED, Outcome.MOOT}:
                del self.trials[uid]
        return [back for back in backs if back is not None]

    def _begin(self, proposal: Proposal) -> None:
        history = self.job(proposal.serves).history[proposal.measure] if proposal.measure else []
        trial = begin_trial(proposal, [value for value in history if value is not None])
        self.trials.pop(proposal.job, None)
        if trial is not None:
            self.trials[proposal.job] = trial

    def job(self, uid: str) -> Running:
        return next(job for job in self.jobs if job.uid == uid)

    def _carry_out(self, proposals: tuple[Proposal, ...]) -> None:
        for proposal in proposals:
            job = self.job(proposal.job)
            for stage in proposal.stages:
                for size in stage:
                    job.limit = size.limit
            if proposal.rests:
                job.rests.add(proposal.policy)

    def _work(self, random: Random) -> None:
        live = [job for job in self.jobs if job.live(self.now)]
        self._meet(live)
        equal = SIZE // max(1, len(live))
        uses = fair([min(job.most, job.limit or SIZE) for job in live], SIZE)
        unrestricted = fair([job.most for job in live], SIZE)
        lent = len(live) > 1 and all(job.shows_end for job in live)
        for job, use, share in zip(live, uses, unrestricted, strict=True):
            job.use, job.peak = use, max(job.peak, use)
            before = job.loss()
            job.done += min(job.use, job.useful) * SECONDS / 1000
            if job.done >= job.work:
                job.ended = self.now + SECONDS
            gain = before - job.loss()
            job.growth.take(gain if gain > CHANCE else 0.0, job.use / SIZE)
            cap = job.limit if job.limit is not None and job.limit < SIZE else None
            job.budget = job.budget.after(
                use=job.use,
                equal=share if lent else equal,
                cap=cap,
                seconds=SECONDS,
                lends=lent,
            )
            job.history[Measure.USE].append(float(job.use))
            rate = min(job.use, job.useful) / 100 * random.gauss(1, 0.01)
            job.history[Measure.RATE].append(rate)

    def _signals(self) -> Signals:
        return Signals(
            nodes={"n1": NodeSignal(SIZE)},
            jobs=tuple(self._signal(job) for job in self.jobs if job.live(self.now + SECONDS)),
        )

    def _signal(self, job: Running) -> JobSignal:
        busy, job.busy = job.busy, False
        rates = job.history[Measure.RATE]
        return JobSignal(
            job.uid,
            pods=(pod(f"{job.uid}-0", limit=job.limit, use=job.use if rates else None),),
            policies={policy.name: PolicyChoice() for policy in self.policies},
            rests=frozenset(job.rests),
            in_flight=busy,
            reported=Reported(
                state=job.growth.state, growth=job.growth.growth if len(rates) > 1 else None
            ),
            rate=rates[-1] if rates else None,
            left=job.states * (job.work - job.done) if job.shows_end else None,
            budget=job.budget,
            peak=job.peak,
        )


def fair(most: Sequence[int], size: int) -> list[int]:
    """Return what each uses of a size, at most as much as it can: max-min fair, as CFS is."""
    uses, free, rest = [0] * len(most), list(range(len(most))), size
    while free:
        bound = [at for at in free if most[at] <= rest // len(free)]
        for at in bound or free:
            uses[at] = min(most[at], rest // len(free))
        rest -= sum(uses[at] for at in bound or free)
        free = [at for at in free if at not in bound] if bound else []
    return uses


def both(
    jobs: Sequence[Running], policies: Sequence[SignalPolicy], *, intervals: int
) -> tuple[World, World]:
    """Return the same jobs after some intervals, without policies and with them."""

    def world(of: Sequence[SignalPolicy]) -> World:
        fresh = [
            Running(
                job.uid,
                job.work,
                job.converges,
                job.arrives,
                job.most,
                job.useful,
                job.shows_end,
                job.peak,
                job.states,
            )
            for job in jobs
        ]
        return World(fresh, of).run(intervals)

    return world(()), world(policies)


def until(job: Running) -> float:
    """Return how long a job took, infinite if it has not ended."""
    return math.inf if job.ended is None else job.ended - job.arrives

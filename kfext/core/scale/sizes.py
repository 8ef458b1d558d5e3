"""How many workers a job has, may have and should have."""

from dataclasses import dataclass

from kfext.core.elastic import fewest_workers, training_pods, with_workers, workers_of
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of workers of a job.

    `now`: how many it has.
    `least`, `most`: the fewest and the most that it may have.
    `asked`: how many its user asked for.
    """

    now: int
    least: int
    most: int
    asked: int

    @property
    def fulfilment(self) -> float:
        """How much the job has of what it asked for beyond its least; above 1 if it was grown.

        Source: Lin et al., DRAGON, CLOSER 2019, whose code measures against the most instead: a job
        that may grow far is then poor, and never gives.
        """
        return self.fulfilment_with(self.now)

    @property
    def surplus(self) -> int:
        """How many workers it can give."""
        return max(0, self.now - self.least)

    def fulfilment_with(self, workers: int) -> float:
        """Return the fulfilment that the job would have with so many workers."""
        if self.asked <= self.least:
            return 1.0 + workers - self.asked
        return (workers - self.least) / (self.asked - self.least)


def sizes_of(job: TrainingJob, allowed: Range, *, asked: int) -> Sizes:
    """Return the sizes of a job; `asked`: what its user asked for, 0 if that is what it has.

    The least is that of the job as its user asked for it, so a job that has grown may shrink again
    as far as before; it is all of them if the framework cannot run with fewer. The setting counts
    Master and Chief, which are never scaled, as well as workers.
    """
    now = workers_of(job)
    asked = asked or now
    masters = training_pods(job) - now
    most = max(asked, allowed.maximum - masters)
    if job.scaling.most > 0:
        most = min(most, job.scaling.most)
    least = min(fewest_workers(with_workers(job, asked), allowed), most)
    return Sizes(now=now, least=least, most=most, asked=asked)

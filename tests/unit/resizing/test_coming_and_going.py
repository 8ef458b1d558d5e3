"""Ten jobs that come and go on a node of one CPU, in virtual time: with the companion and without.

Each shows how far it is. What a pod used is known up to 20 s later, of each at another time.
"""

from functools import cache
from statistics import fmean

from kfext.model.cpu_use import CpuUse
from tests.unit.state.training_node import ROUND, TrainingNode

JOBS = {0: 40, 10: 82, 20: 24, 40: 22, 50: 66, 60: 23, 70: 86, 80: 34, 90: 25, 100: 44}
"""The work of each in core-seconds, by the second in which it comes."""
_APART = 20.0
"""Seconds between two measurements of a pod."""


class Crowd(TrainingNode):
    """`seconds`: how long each job took, by name. `idle`: the core-seconds that no job used."""

    def __init__(self, resize: str) -> None:
        super().__init__(size=1000)
        self.seconds: dict[str, float] = {}
        self.idle = 0.0
        self._resize = resize
        self._came: dict[str, float] = {}
        self._uses: dict[str, CpuUse] = {}
        self._before: dict[str, float] = {}

    def all_jobs(self) -> "Crowd":
        coming = [(at, f"job-{number}", takes) for number, (at, takes) in enumerate(JOBS.items())]
        while coming or self.trainings:
            while coming and coming[0][0] <= self.at:
                at, name, takes = coming.pop(0)
                self.submit(name, takes=takes, resize=self._resize)
                self._came[name] = at
            self.round()
            self.idle += ROUND * (1 - sum(one.use for one in self.trainings.values()) / 1000)
            for name, one in list(self.trainings.items()):
                if one.takes is not None and one.done >= one.takes:
                    self.seconds[name] = self.at - self._came[name]
                    self.finish(name)
                    self._act()  # what a job leaves is given to others at once
                    self._kubelet()
        return self

    def _measure(self) -> None:
        for name, one in self.trainings.items():
            phase = ROUND * (int(name[-1]) % 2)
            if (self.at - phase) % _APART == 0:
                cores = (one.done - self._before.get(name, 0.0)) / _APART
                self._before[name] = one.done
                if self.at - self._came[name] >= _APART:
                    self._uses[name] = CpuUse(cores, at=self.at, window=_APART)
        known = {
            self.pod(name).uid: self._uses[name] for name in self.trainings if name in self._uses
        }
        self.planner.progress.measured(known)


@cache
def crowd(resize: str) -> Crowd:
    return Crowd(resize).all_jobs()


def test_cpu_moves_to_each_of_the_short_ones() -> None:
    sooner = {
        name for name, took in crowd("cpu").seconds.items() if took < crowd("off").seconds[name]
    }
    assert sooner >= {"job-2", "job-3", "job-5", "job-7", "job-8", "job-9"}


def test_no_cpu_idles_beside_restricted_jobs() -> None:
    assert crowd("cpu").idle <= 0.01 * sum(JOBS.values())


def test_the_mean_job_ends_sooner_and_none_later() -> None:
    plain, ours = crowd("off").seconds, crowd("cpu").seconds
    assert fmean(ours.values()) <= 0.96 * fmean(plain.values())
    for name, took in ours.items():
        assert took <= plain[name] + ROUND, name

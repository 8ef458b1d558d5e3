"""Ten jobs that come and go on a simulated node with one CPU, with and without resize.

Each job shows its progress. The use of each pod is measured every 20 s, of half of them 10 s later.
"""

from dataclasses import replace
from functools import cache, partial
from statistics import fmean

from kfext.model.cpu_use import CpuUse
from kfext.sim.objects import LivePod
from tests.unit.resizing.bed import SCAN_SECONDS, CpuBed, one_worker_job

JOBS = {0: 40, 10: 82, 20: 24, 40: 22, 50: 66, 60: 23, 70: 86, 80: 34, 90: 25, 100: 44}
"""The core-seconds of each job, by the second of its arrival."""


_APART = 20.0
"""Seconds between two measurements of a pod."""


class Crowd(CpuBed):
    """A node with the ten jobs.

    `seconds`: how long each ended job took, by name. `idle`: the core-seconds that no job used.
    """

    def __init__(self, resize: str) -> None:
        super().__init__(size=1000)
        self.seconds: dict[str, float] = {}
        self.idle = 0.0
        self._resize = resize
        self._uses: dict[str, CpuUse] = {}
        self.driver.measure_seconds = SCAN_SECONDS
        self.driver.measure = self._measure

    def _measure(self, live: LivePod) -> CpuUse | None:
        name = live.job.spec.name
        its_turn = (self.clock.now - SCAN_SECONDS * (int(name[-1]) % 2)) % _APART == 0
        if its_turn and (use := self.driver.use_of(live)) is not None:
            self._uses[name] = use
        return self._uses.get(name)

    def run_all_jobs(self) -> "Crowd":
        """Run until all jobs have ended."""
        for number, (at, work) in enumerate(JOBS.items()):
            spec = one_worker_job(f"job-{number}", size=1000, work=work, resize=self._resize)
            self.clock.after(at, partial(self.submit, replace(spec, arrives=at)))
        while len(self.seconds) < len(JOBS):
            self.after(1)
            training = [live for live in self.jobs if live.training.speed]
            if len(training) == len(self.present):
                used = sum(live.training.share for live in training)
                self.idle += 1 - used if training else 0.0
            self.seconds = {name: ended.elapsed for name, ended in self.ended().items()}
        return self


@cache
def crowd(resize: str) -> Crowd:
    return Crowd(resize).run_all_jobs()


def test_each_short_job_ends_sooner_with_resize() -> None:
    plain, resized = crowd("off").seconds, crowd("cpu").seconds
    sooner = {name for name, took in resized.items() if took < plain[name]}
    assert sooner >= {"job-2", "job-3", "job-5", "job-7", "job-8", "job-9"}


def test_with_resize_at_most_one_percent_of_the_cpu_idles() -> None:
    assert crowd("cpu").idle <= 0.01 * sum(JOBS.values())


def test_with_resize_jobs_end_20_percent_sooner_on_average_and_none_later() -> None:
    plain, resized = crowd("off").seconds, crowd("cpu").seconds
    assert fmean(resized.values()) <= 0.8 * fmean(plain.values())
    for name, took in resized.items():
        assert took <= plain[name] + SCAN_SECONDS, name

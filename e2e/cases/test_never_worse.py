"""No job is worse off than without kfext, whatever terms its pods have.

Random jobs run in two equal worlds each. A job that is bound without kfext must be bound with kfext
at most three bindTimeouts later. No other test asserts a time.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from e2e.harness import odd_world
from e2e.harness.jobs import conditions
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.odd_jobs import HARD, NAME, OddJob, odd_job
from e2e.harness.space import Space
from e2e.soak.invariants import Limits

BIND_SECONDS = 5.0
"""bindTimeout and releaseAfter, as short as an administrator would set them."""
MORE_SECONDS = 3 * BIND_SECONDS
"""The additional time that a job may take to be bound with kfext."""
_PLAIN_SECONDS = 10.0
"""A job that is not bound within this time without kfext counts as never bound."""
_HALF_HELD_SECONDS = Limits(bind=BIND_SECONDS, create=30.0).gang
_POLL_SECONDS = 0.5
_AT_ONCE = 5
"""The number of jobs that run at the same time; each has nodes of its own."""


@dataclass
class Arm:
    """A job in one namespace.

    `bound`: how many seconds it took until all pods were bound, or None before. `half_held`:
    whether some pods are bound and others not, under a plan of kfext.
    """

    space: Space
    job: OddJob
    bound: float | None = None
    half_held: bool = False
    _seen: set[str] = field(default_factory=set)

    def submit(self) -> None:
        self.space.submit(self.job.manifest(self.space.name))
        if self.job.late:
            odd_world.make_late_claim(self.space)

    def observe(self, elapsed: float) -> None:
        """Record the state after `elapsed` seconds."""
        pods = self.space.pods(NAME)
        self._seen |= {pod["metadata"]["uid"] for pod in pods}
        used_nodes = [pod["spec"].get("nodeName") for pod in pods]
        if self.bound is None and len(pods) == self.job.pods and all(used_nodes):
            self.bound = elapsed
        self.half_held = any(used_nodes) and not all(used_nodes) and self._under_a_plan()

    def failed(self) -> bool:
        return "Failed" in conditions(self.space.job(NAME, self.job.kind))

    def _under_a_plan(self) -> bool:
        return self.space.plan(NAME, self.job.kind) is not None

    def preempted(self) -> list[str]:
        """Return the pods of the job that kube-scheduler preempted for another pod of the job."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.space.name}/events"
        events = [item for item in self.space.kube.items(path) if item.get("reason") == "Preempted"]
        return [
            str(event["regarding"]["name"])
            for event in events
            if event["regarding"].get("uid") in self._seen
            if any(
                uid in json.dumps(event.get("related", "")) + event["note"] for uid in self._seen
            )
        ]


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcome of a job.

    `plain` and `handled`: the seconds until it was bound, without kfext and with kfext; None means
    never. `wrong`: the respects in which it was worse off with kfext.
    """

    job: OddJob
    plain: float | None
    handled: float | None
    wrong: tuple[str, ...]
    account: str = ""

    def __str__(self) -> str:
        manifest = json.dumps(self.job.manifest("NAMESPACE"), indent=1)
        title = f"job {self.job.number} ({', '.join(self.job.asks)}): {'; '.join(self.wrong)}"
        return f"{title}\n{manifest}\n{self.account}"


def run(kfext: Kfext, job: OddJob, name: str) -> Pair:
    """Run a job in two namespaces with this name as a prefix, with kfext and without kfext."""
    with (
        _world(kfext, job, f"{name}-o", managed=True) as handled,
        _world(kfext, job, f"{name}-p", managed=False) as plain,
    ):
        arms = Arm(plain, job), Arm(handled, job)
        _watch(*arms)
        wrong = tuple(_wrong(*arms))
        account = f"{plain.account()}\n{handled.account()}" if wrong else ""
        return Pair(job, arms[0].bound, arms[1].bound, wrong, account)


def _watch(plain: Arm, handled: Arm) -> None:
    """Observe both arms until each is bound or its time is over."""
    began = time.monotonic()
    for arm in (plain, handled):
        arm.submit()
    while True:
        elapsed = time.monotonic() - began
        for arm in (plain, handled):
            arm.observe(elapsed)
        if plain.bound is not None:
            over = handled.bound is not None or elapsed > plain.bound + MORE_SECONDS
        else:
            held = handled.half_held and elapsed < _HALF_HELD_SECONDS
            over = elapsed > _PLAIN_SECONDS and not held
        if over:
            return
        time.sleep(_POLL_SECONDS)


def _wrong(plain: Arm, handled: Arm) -> Iterator[str]:
    """Yield each respect in which the job is worse off with kfext."""
    if plain.bound is not None and handled.bound is None:
        late = f"{plain.bound + MORE_SECONDS:.0f} s"
        yield f"bound after {plain.bound:.1f} s without kfext and not after {late} with it"
    if plain.bound is None and handled.half_held:
        yield f"some of its pods are bound and others wait for over {_HALF_HELD_SECONDS:.0f} s"
    if handled.failed() and not plain.failed():
        yield "failed with kfext only"
    if victims := handled.preempted():
        yield f"{', '.join(victims)} preempted by the job's own pods"


@contextmanager
def _world(kfext: Kfext, job: OddJob, name: str, *, managed: bool) -> Iterator[Space]:
    space = Space(kfext, name)
    try:
        space.create(managed=managed)
        if managed:
            seconds = f"{BIND_SECONDS:g}s"
            placement: Object = {"bindTimeout": seconds, "releaseAfter": seconds}
            space.policy(placement=placement)
        job.world.make(space)
        yield space
    finally:
        space.clean()
        job.world.remove(space)


@pytest.fixture
def classes(kfext: Kfext) -> Iterator[None]:
    odd_world.make_classes(kfext.kube)
    yield
    odd_world.remove_classes(kfext.kube)


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize(
    ("seed", "count"), [(1, len(HARD)), pytest.param(2, 200, marks=pytest.mark.long)]
)
def test_a_job_that_is_bound_without_kfext_is_bound_with_it(
    kfext: Kfext, seed: int, count: int
) -> None:
    def pair(number: int) -> Pair:
        return run(kfext, odd_job(seed, number), f"never-worse-{os.getpid()}-{seed}-{number}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pairs = list(pool.map(pair, range(count)))
    bound = sum(compared.plain is not None for compared in pairs)
    with_kfext = sum(compared.handled is not None for compared in pairs)
    print(f"of {count} jobs {bound} are bound without kfext and {with_kfext} with it")
    wrong = [str(compared) for compared in pairs if compared.wrong]
    assert not wrong, "\n\n".join(wrong)
    assert bound >= count * 3 // 4

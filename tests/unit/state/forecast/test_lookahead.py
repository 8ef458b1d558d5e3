"""The planner that runs ahead: the start of each job, and silent jobs (of unknown duration)."""

import math
from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.model.parameters import Fairness, Queueing
from kfext.model.policy import TrainingPolicy
from kfext.model.snapshot import FailedStart
from kfext.state.forecast.lookahead import Lookahead, _Lengths
from kfext.state.forecast.outset import outset_of
from tests.builders import node
from tests.unit.state.forecast.scene import NOW, Scene, elsewhere, ended, runs, waits
from tests.unit.state.history import ACTS, CROWDED, History


def ahead(scene: Scene, silent_seconds: float | None = None) -> Lookahead:
    scene.tick()
    outset = outset_of(scene.planner, scene.now)
    return finished(Lookahead(outset, silent_seconds=silent_seconds).run())


def finished(parts: Generator[None, None, Lookahead]) -> Lookahead:
    """Return the result of a generator, once it has run to its end."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def test_the_remaining_time_of_a_late_job_is_its_delay() -> None:
    scene = Scene(runs("first"), first=600)
    scene.tick()
    lengths = _Lengths(outset_of(scene.planner, scene.now))
    job = scene.planner.cluster.jobs["first"].job
    assert lengths.remaining(job, now=NOW) == 600
    lengths.ending["first"] = NOW + 600
    lefts = [lengths.remaining(job, now=NOW + later) for later in (0, 500, 600, 700)]
    assert lefts == [600, 100, 0, 100]


def starts_of(result: Lookahead) -> dict[str, float]:
    """Return the seconds until each job starts, by uid."""
    return {uid: start.at - NOW for uid, start in result.starts.items()}


def test_jobs_start_one_after_the_other() -> None:
    series = [waits(f"job-{n}", created=NOW - 3600 + n) for n in range(2, 6)]
    result = starts_of(ahead(Scene(runs("first"), ended("job-1", seconds=100), *series, first=50)))
    assert result == {"job-2": 50, "job-3": 150, "job-4": 250, "job-5": 350}


@pytest.mark.parametrize(
    ("silent_seconds", "starts"),
    [
        (None, {"head": 600, "next": 900}),
        (0.0, {"head": 600, "next": 601}),
        (math.inf, {"head": 600}),
    ],
)
def test_a_silent_job_lasts_for_the_given_time_or_for_300_seconds(
    silent_seconds: float | None, starts: dict[str, float]
) -> None:
    scene = Scene(runs("first"), waits("head"), waits("next", created=NOW - 60), first=600)
    assert starts_of(ahead(scene, silent_seconds)) == starts


def test_a_job_that_does_not_start_has_the_reason() -> None:
    large = waits("large", 9).annotated("kfext.dev/colocation", "required")
    result = ahead(Scene(runs("first"), large, first=600))
    assert not result.starts
    assert result.planner.cluster.jobs["large"].not_started_reason == "TooBig"


def test_jobs_start_in_the_order_of_the_usage_of_their_namespaces() -> None:
    """The namespace of the job that came first has used the cluster; the other has not."""
    jobs = waits("head"), elsewhere(waits("other", created=NOW - 60))
    scene = Scene(runs("first", 4), *jobs, first=600)
    assert starts_of(ahead(scene)) == {"head": 600, "other": 900}
    queue = Queueing(fairness=Fairness.USAGE, half_life=3600)
    scene.planner.settings.observe_policy(TrainingPolicy("all", queue=queue))
    assert starts_of(ahead(scene)) == {"other": 600, "head": 900}


@pytest.mark.parametrize(("doubted", "gets"), [("b", "c"), ("c", "b")])
def test_a_job_starts_on_a_doubted_node_only_if_it_fits_nowhere_else(
    doubted: str, gets: str
) -> None:
    scene = Scene(runs("first", 4), waits("head"), first=6000)
    scene.tick()
    for name in ("b", "c"):
        scene.planner.cluster.observe_node(None, node(name, cpu="4"))
    failures = [(doubted, f"job-{n}", "team", f"series-{n % 2}", NOW) for n in range(3)]
    scene.planner.starts.restore(FailedStart(*fields, cured=True) for fields in failures)
    outset = outset_of(scene.planner, scene.now)
    result = finished(Lookahead(outset, silent_seconds=math.inf).run())
    start = result.planner.cluster.jobs["head"].assumed
    assert start is not None
    assert list(start.nodes) == [gets]


def test_pods_to_be_created_do_not_stop_the_planning() -> None:
    """In a real cluster, more than 500 pods to create keep further jobs from starting."""
    many = [waits(f"job-{n}", 40, cpu="1m", created=NOW - 3600 + n) for n in range(30)]
    result = starts_of(ahead(Scene(runs("first", 4), *many, pods=5000, first=600)))
    assert result == {f"job-{n}": 600 for n in range(30)}


def test_a_lookahead_does_not_change_the_planner_of_the_cluster() -> None:
    scene = Scene(runs("first"), waits("head"), first=600)
    scene.tick()
    before = scene.planner.cluster.ledger.claims()
    ahead(scene)
    assert scene.planner.cluster.ledger.claims() == before
    assert scene.planner.cluster.jobs.keys() == {"first", "head"}


@pytest.mark.histories
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_lookahead_ends_after_any_history(data: st.DataObject) -> None:
    history = History(data)
    acts = st.lists(st.sampled_from(ACTS), max_size=40)
    for act in (*data.draw(st.sampled_from([(), CROWDED])), *data.draw(acts, label="acts")):
        act(history)
    history.end_round()
    outset = outset_of(history.planner, history.moment)
    for silent_seconds in (None, 0.0, math.inf):
        result = Lookahead(outset, silent_seconds=silent_seconds, arrivals=outset.arrivals)
        for parts, _ in enumerate(result.run()):
            assert parts < 5000  # many more than any history needs

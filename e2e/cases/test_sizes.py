"""Jobs of any size on the real API server: what is beyond a bound holds nobody else up."""

import pytest

from e2e.harness.jobs import workers
from e2e.harness.space import Space
from kfext import names

HUGE = 2**31 - 1
CPU = {"cpu": "1"}
REQUIRED = {names.COLOCATION: "required"}


def test_a_job_with_as_many_replicas_as_the_api_takes_is_not_held(space: Space) -> None:
    # On trial: the operator would try to create them.
    answer = space.try_submit(workers("huge", HUGE, each=CPU), query="?dryRun=All")
    assert answer.ok, answer.message
    (warning,) = answer.warnings
    assert f"{HUGE} pods, more than the 10000 that kfext handles" in warning
    assert answer.body["spec"]["runPolicy"]["suspend"] is False
    assert names.HELD not in answer.body["metadata"].get("annotations", {})


def test_a_required_job_with_so_many_waits_and_others_are_placed(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    space.submit(workers("huge", HUGE, each=CPU, annotations=REQUIRED))
    space.phase("huge", "Queued")
    view = space.view("huge")
    assert view["reason"] == names.REASON_HANDS_OFF
    assert f"{HUGE} pods, more than the 10000" in view["message"]
    space.submit(workers("small", 2, each=CPU))
    space.phase("small", "Placed")
    assert space.view("huge")["phase"] == "Queued"


def test_a_job_of_a_thousand_pods_that_fit_nowhere_is_answered_and_others_are_placed(
    space: Space,
) -> None:
    space.nodes(2, cpu="8", memory="64Gi")
    space.submit(workers("thousand", 1000, each=CPU))
    space.phase("thousand", "Queued")
    assert space.view("thousand")["reason"] == names.REASON_TOO_BIG
    space.submit(workers("small", 2, each=CPU))
    space.phase("small", "Placed")


@pytest.mark.long
def test_a_job_of_a_thousand_pods_is_placed_whole_on_the_fewest_nodes(space: Space) -> None:
    made = space.nodes(5, cpu="256", memory="640Gi", pods="210")
    space.submit(workers("thousand", 1000, each=CPU))
    space.patiently(lambda: space.view("thousand").get("phase") == "Placed", seconds=300)
    homes = space.homes("thousand")
    assert len(homes) == 1000
    assert set(homes.values()) == set(made)
    assert set(space.pins().values()) == {1}
    assert space.starts() == 1
    space.kube.delete(space.path("pytorchjobs", "thousand"))
    left = f"{space.path('pods')}?limit=1"  # a request that deletes so many at once takes too long
    space.patiently(lambda: not space.kube.items(left), seconds=300)

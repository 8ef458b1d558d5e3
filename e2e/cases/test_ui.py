"""The page of `kubectl kfext ui` shows the same before and after a restart of the controller."""

import asyncio

from e2e.harness.jobs import workers
from e2e.harness.space import Space
from kfext.cli.cluster import ClusterOptions
from kfext.cli.ui import cluster_source
from kfext.cli.ui_state import JobView

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


async def _shown(space: Space) -> list[JobView]:
    """Return the jobs of a namespace as the page would show them."""
    options = ClusterOptions(space.name, None, space.kfext.testbed.kubeconfig)
    async with options.connect() as client, cluster_source(client, options) as source:
        await source.ready()
        return list(source.jobs())


def test_the_page_shows_the_same_jobs_and_their_past_after_a_restart_of_the_controller(
    space: Space,
) -> None:
    space.nodes(1, cpu="8", memory="16Gi", gpu="4")
    space.submit(workers("runs", 4, each=GPU))
    space.phase("runs", "Placed")
    space.submit(workers("waits", 4, each=GPU))
    space.phase("waits", "Queued")
    before = {view.row["name"]: view for view in asyncio.run(_shown(space))}
    space.kfext.kill_controller()
    space.kfext.restart_killed_controller()
    space.kube.delete(space.path("pytorchjobs", "runs"))
    space.phase("waits", "Placed")
    space.until(lambda: len(asyncio.run(_shown(space))) == 1, "one job is shown")
    (after,) = asyncio.run(_shown(space))
    waited = before["waits"].history
    assert [entry["what"] for entry in before["runs"].history][-1] == "Placed"
    assert list(after.history[: len(waited)]) == list(waited)
    assert after.history[-1]["what"] == "Placed"
    assert [pods for _, pods in after.row["places"]] == [4]

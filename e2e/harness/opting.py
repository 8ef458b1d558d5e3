"""A namespace that opts in, or out again, while its jobs are at work."""

from e2e.harness.jobs import workers
from e2e.harness.look import suspended
from e2e.harness.space import Space
from kfext import names


def set_managed(space: Space, value: str | None) -> None:
    """Label the namespace, or take the label away, and wait until the webhooks know."""
    space.label({names.MANAGED: value})
    trial = workers("trial", 1, each={"cpu": "1"})
    space.until(
        lambda: suspended(space.try_submit(trial, query="?dryRun=All").body) is (value is not None),
        "the webhooks know the label",
    )

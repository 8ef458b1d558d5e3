"""What kopf watches, read as a whole.

kopf reports neither the end of its first list nor what was deleted before a new one.
"""

from kfext.controller.guard import guard
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.kube import paths
from kfext.kube.client import Client, Object
from kfext.model.kinds import KINDS
from kfext.model.policy import parse_policy
from kfext.model.tolerant import mapping
from kfext.state.planner import Planner


async def take_in(client: Client, planner: Planner) -> None:
    """Take in all policies and jobs that there are. Raises ApiError."""
    for raw in await client.list_all(paths.policies()):
        with guard("take in a policy", **_identity(raw)):
            planner.settings.observe_policy(parse_policy(raw))
    for kind in KINDS.values():
        async for raw in client.objects(paths.jobs(kind.plural)):
            with guard("take in a job", **_identity(raw)):
                planner.cluster.observe_job({"kind": kind.name, **raw})


async def forget_deleted(client: Client, planner: Planner, plan_writer: TrainingPlanWriter) -> None:
    """Forget the jobs and policies that are gone. Raises ApiError; then nothing is forgotten.

    What is known is noted first: a job that is created meanwhile is not in question.
    """
    jobs, policies = set(planner.cluster.jobs), {one.name for one in planner.settings.policies()}
    present: set[str] = set()
    for kind in KINDS.values():
        present |= await client.uids(paths.jobs(kind.plural))
    defined = {parse_policy(raw).name for raw in await client.list_all(paths.policies())}
    for uid in jobs - present:
        planner.cluster.forget_job(uid)
        plan_writer.forget(uid)
    for name in policies - defined:
        planner.settings.forget_policy(name)
    if policies - defined:
        planner.cluster.mark_queue()


def _identity(raw: Object) -> dict[str, object]:
    metadata = mapping(raw.get("metadata"))
    return {"name": metadata.get("name"), "namespace": metadata.get("namespace")}

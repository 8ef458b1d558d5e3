"""The rules on jobs with a number of workers that kfext may change."""

from collections.abc import Callable

from e2e.soak.capacity import Findings
from e2e.soak.facts import Cluster
from e2e.soak.gangs import plan_status, running_gangs, too_often
from e2e.soak.manifests import Change, has_opted_in, servers_of, size_range, workers_of
from e2e.soak.memory import Memory

REST_SECONDS = 10
"""Seconds between two changes of a job, by the policy in force."""
MAX_CHANGES = 16
"""The limit of changes of a job's size in two minutes: one per pause, a third more for people."""
_MAX_UNSAVED = 20.0
"""Seconds after a checkpoint in which a job may be interrupted: 10 by the policy; the other 10 are
for a write in progress, for the interval between two checks of the soak, and for a busy machine."""
_MAX_FACTOR = 2
"""kfext may scale a job up to this multiple of the largest size that it was seen with."""


def out_of_range(cluster: Cluster, memory: Memory) -> Findings:
    """No job has fewer or more workers than its range allows, unless a person set that size."""
    findings = {}
    for gang in cluster.gangs.values():
        bounds, wished = size_range(gang), memory.sizes.wished.get(gang.uid, frozenset())
        if bounds is None or not gang.handled:
            continue
        least, most = min(bounds[0], *wished), max(bounds[1], *wished)
        if not least <= workers_of(gang) <= most:
            findings[gang.uid] = (
                f"{gang} has {workers_of(gang)} workers, it allows {bounds[0]} to {bounds[1]}, and "
                f"people want {sorted(wished)}; {plan_status(gang)}"
            )
    return findings


def resized_endlessly(cluster: Cluster, memory: Memory) -> Findings:
    """No job is scaled again and again."""
    times = {uid: [change.at for change in done] for uid, done in memory.sizes.changes.items()}
    return too_often(cluster, times, most=MAX_CHANGES, what="was resized")


def replaced(cluster: Cluster, memory: Memory) -> Findings:
    """No pod that a change of size does not affect is replaced, unless its node failed."""
    findings = {}
    for uid, staying in memory.sizes.staying.items():
        gang = cluster.gangs.get(uid)
        if gang is None or not gang.handled or uid in memory.disrupted:
            continue
        if missing := staying.keys() - {pod.uid for pod in gang.live}:
            findings[uid] = f"{gang}: {len(missing)} of {len(staying)} staying pods are gone"
    return findings


def servers_resized(cluster: Cluster, memory: Memory) -> Findings:
    """The number of parameter servers, chiefs or masters of a running job never changes."""
    return {
        gang.uid: f"{gang} ran with {dict(before)}, and has {servers_of(gang)}; {plan_status(gang)}"
        for gang in cluster.gangs.values()
        if (before := memory.sizes.servers.get(gang.uid)) is not None
        if before != servers_of(gang)
    }


def scaled_unasked(cluster: Cluster, memory: Memory) -> Findings:
    """No job that opted out is scaled, except towards the size that people want.

    Growth from before it opted out may be reverted too, if the new pods find no capacity.
    """
    return _wrong_changes(
        cluster,
        memory,
        lambda change: change.unasked and not (change.undoes or _is_towards_wish(change)),
        "was not to be scaled",
    )


def wish_overruled(cluster: Cluster, memory: Memory) -> Findings:
    """No job is scaled after a person changed a size that kfext had set, until it opts out."""
    return _wrong_changes(cluster, memory, lambda change: change.overruled, "was to be left alone")


def grown_too_far(cluster: Cluster, memory: Memory) -> Findings:
    """No job grows beyond twice the largest size it had, unless people want it so large."""
    return _wrong_changes(
        cluster,
        memory,
        lambda change: change.after > max(_MAX_FACTOR * change.largest, *change.wished),
        "grew in one step to more than twice its largest size so far",
    )


def work_lost(cluster: Cluster, memory: Memory) -> Findings:
    """No PyTorchJob is scaled long after a checkpoint, since all its processes restart.

    Growth with new pods that found no capacity may be reverted at any time, as they never ran.
    """
    return _wrong_changes(
        cluster,
        memory,
        lambda change: change.interrupts and change.unsaved > _MAX_UNSAVED and not change.undoes,
        "was interrupted long after its last checkpoint",
    )


def sized_in_silence(cluster: Cluster, memory: Memory) -> Findings:
    """Every job that runs at a size that no person wanted has a reason for it in its status."""
    findings = {}
    for gang in running_gangs(cluster):
        wished = memory.sizes.wished.get(gang.uid, frozenset())
        if not has_opted_in(gang) or workers_of(gang) in wished or memory.excused(gang, cluster):
            continue
        conditions = [
            condition
            for condition in gang.view.get("conditions", ())
            if condition["type"] == "Scaled"
        ]
        if not any(
            condition.get("reason") and condition.get("message") for condition in conditions
        ):
            findings[gang.uid] = (
                f"{gang} has {workers_of(gang)} workers, people want {sorted(wished)}, and it "
                f"shows no reason; {plan_status(gang)}"
            )
    return findings


def _wrong_changes(
    cluster: Cluster, memory: Memory, is_wrong: Callable[[Change], bool], why: str
) -> Findings:
    """Return the jobs with a wrong change by kfext, each with its first such change."""
    findings = {}
    for uid, gang in cluster.gangs.items():
        change = next(filter(is_wrong, memory.sizes.changes.get(uid, ())), None)
        if change is not None:
            findings[uid] = (
                f"{gang} {why}: {change.before} workers became {change.after} "
                f"at {change.at:.0f} s, people want {sorted(change.wished)}, "
                f"it had {change.largest} at most; {plan_status(gang)}"
            )
    return findings


def _is_towards_wish(change: Change) -> bool:
    """Return whether a change is towards a number that people want, and not beyond it."""
    before, after = change.before, change.after
    return any(min(before, wish) <= after <= max(before, wish) for wish in change.wished)

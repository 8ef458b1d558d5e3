"""What must hold of what is said of jobs."""

from collections.abc import Iterator

from e2e.soak.facts import Cluster, Gang
from e2e.soak.gangs import said, wanted
from e2e.soak.memory import Memory
from e2e.soak.rooms import Found


def queued_in_silence(cluster: Cluster, _: Memory) -> Found:
    """Every job that kfext holds has a phase, a reason and a sentence."""
    return {gang.uid: told for gang, told in _silent(cluster)}


def misreported(cluster: Cluster, _: Memory) -> Found:
    """What a TrainingPlan says is the case."""
    return {gang.uid: told for gang, told in _wrong(cluster)}


def _silent(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        told = gang.view.get("phase") and gang.view.get("reason") and gang.view.get("message")
        if gang.handled and gang.held and gang.suspended and not told:
            yield gang, f"{gang} is held, {said(gang)}"


def _wrong(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        phase, nodes = gang.view.get("phase"), set(gang.view.get("nodes", ()))
        if gang.over or gang.ending:
            continue
        homes = [pod.node for pod in wanted(gang)]
        if phase == "Queued" and not (gang.suspended and gang.held):
            yield gang, f"{gang} is said to be queued; suspended {gang.suspended}"
        elif phase == "Suspended" and not gang.suspended:
            yield gang, f"{gang} is said to be suspended and is not"
        elif phase == "Placed" and gang.handled and nodes != set(filter(None, homes)):
            yield gang, f"{gang} is said to be on {sorted(nodes)}, it is on {homes}"
        elif phase == "Placed" and not any(homes):
            yield gang, f"{gang} is said to be placed, none of its pods is bound"

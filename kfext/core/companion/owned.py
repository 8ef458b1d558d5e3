"""Whose CPU limit a pod has, and what must stand on its job before kfext writes another one."""

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import REMEMBERED, AskedCpu, CpuState
from kfext.model.pod import Pod


class Owner(Enum):
    """Who set a limit: the user, kfext, or somebody else after that."""

    USER = "user"
    KFEXT = "kfext"
    OTHER = "other"


def owner_of(pod: Pod, state: CpuState) -> Owner:
    """Return who set the CPU limit of a pod. What nobody has changed is the user's.

    A pod without a limit was never resized, as no limit can be removed again: it was made anew.
    """
    asked = asked_of(pod, state)
    if pod.trainer is None or asked is None or pod.trainer.limit in {None, asked.limit}:
        return Owner.USER
    return Owner.KFEXT if pod.trainer.limit in state.written.get(_name(pod), ()) else Owner.OTHER


def changed_by_others(pod: Pod, state: CpuState, *, seen: int | None) -> bool:
    """Return whether somebody else has changed the CPU of a pod since kfext wrote its limit.

    `seen`: the limit that the pod was last seen to have when that was the last of ours, None if it
    was never. Without it a limit of the user's could be there because ours never arrived.
    """
    asked, cpu = asked_of(pod, state), pod.trainer
    if asked is None or cpu is None:
        return False
    written = state.written.get(_name(pod), ())
    put_back = seen is not None and cpu.limit == asked.limit != seen == last_written(pod, state)
    requests = {asked.request, *written}
    return put_back or cpu.request not in requests or owner_of(pod, state) is Owner.OTHER


def asked_of(pod: Pod, state: CpuState) -> AskedCpu | None:
    """Return the size that the user asked for; None while kfext has noted none for its type."""
    return state.asked_of(pod.replica.type, pod.replica.index) if pod.replica else None


def noted(
    state: CpuState,
    sizes: Iterable[tuple[Pod, CpuSize]],
    *,
    by: frozenset[str],
    pods: Iterable[Pod] = (),
) -> CpuState:
    """Return the state with which sizes may be written.

    A write may be lost with the controller, or take effect although its answer was lost. So the
    limit that the pod has now, and the one that was meant to be written last, count as ours too.
    `by`: the policies to which all limits of ours are due. `pods`: all of the job.
    """
    sizes = tuple(sizes)
    types = {pod.replica.type for pod, _ in sizes if pod.replica}
    asked, written = dict(state.asked), dict(state.written)
    for pod in (*(pod for pod, _ in sizes), *pods):
        # What the user wrote is on the pods of a type until kfext resizes the first of them.
        if pod.trainer is None or pod.replica is None or pod.replica.type in state.asked:
            continue
        own = AskedCpu(pod.trainer.request, pod.trainer.limit)
        if pod.replica.type in types and own != asked.setdefault(pod.replica.type, own):
            asked[_name(pod)] = own
    for pod, size in sizes:
        if pod.trainer is None or pod.replica is None:
            continue
        if owner_of(pod, state) is Owner.USER:
            now: tuple[int, ...] = ()
        else:
            now = () if pod.trainer.limit is None else (pod.trainer.limit,)
        known = dict.fromkeys((size.limit, *now, *written.get(_name(pod), ())))
        written[_name(pod)] = tuple(known)[:REMEMBERED]
    return replace(state, asked=asked, written=written, by=by)


def last_written(pod: Pod, state: CpuState) -> int | None:
    """Return the limit that kfext wrote last for a pod, or meant to; None if it never did."""
    return next(iter(state.written.get(_name(pod), ())), None)


def _name(pod: Pod) -> str:
    return f"{pod.replica.type}-{pod.replica.index}" if pod.replica else ""

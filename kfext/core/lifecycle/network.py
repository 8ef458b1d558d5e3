"""The network of a queued job: its nodes' own, if it asks for that and the ports are free."""

from dataclasses import replace

from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block, free_base, hosted
from kfext.core.lifecycle.room import find_room
from kfext.core.lifecycle.situation import Situation
from kfext.core.network.eligibility import Wish, agents_alike
from kfext.core.queue.refusals import Refusal, Refusals
from kfext.core.words import listed
from kfext.model.kinds import PYTORCH
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict
from kfext.names import REASON_HOST_NETWORK, REASON_NETWORK_POLICIES_BYPASSED, REASON_POD_NETWORK


def room_on_network(
    situation: Situation, ledger: Ledger, refusals: Refusals
) -> tuple[Assignment | Refusal, int, Verdict | None]:
    """Return a place for a queued job, its first port on the host network, and which network it is.

    The port is 0 on the pod network, and the last is None if nobody asked for another.
    """
    wish, job = situation.host_network, situation.job
    if wish is None:
        return find_room(situation, ledger, refusals), 0, None
    why = wish.obstacle or situation.state.no_host_network
    if not why:
        found = find_room(replace(situation, job=hosted(job)), ledger, refusals)
        if isinstance(found, Refusal):
            why = f"not with its ports: {found.verdict.message}"
        elif alike := agents_alike(job, found):
            why = alike
        elif base := free_base(job, found, ledger, ports=wish.ports):
            return found, base, _on_host(situation, wish, found, base)
        else:
            low, high = wish.ports
            why = f"{len(block(job, low))} ports in {low}-{high} are not free on its nodes"
    return find_room(situation, ledger, refusals), 0, Verdict(REASON_POD_NETWORK, why)


def _on_host(situation: Situation, wish: Wish, places: Assignment, base: int) -> Verdict:
    """Return that a job uses the host network, and what is to be known of that."""
    numbers = [str(number) for _, number in block(situation.job, base)]
    what = f"port {numbers[0]} is" if len(numbers) == 1 else f"ports {listed(numbers)} are"
    words = "its pods use the network of their nodes"
    words += f", where {what} theirs" if numbers else ""
    pytorch = situation.job.kind is PYTORCH
    if pytorch and len(set(places.values())) > 1 and not wish.interfaces:
        words += "; Gloo between nodes needs node names that do not resolve to loopback there, or"
        words += " network.interfaces in a TrainingPolicy"
    if not wish.bypassed:
        return Verdict(REASON_HOST_NETWORK, words)
    policies = listed(wish.bypassed, of="policies")
    message = f"{words}; NetworkPolicy {policies} does not apply there"
    return Verdict(REASON_NETWORK_POLICIES_BYPASSED, message)

"""The network of a queued job: the host network if it is requested and the ports are free."""

from dataclasses import replace

from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block, free_base, hosted
from kfext.core.lifecycle.capacity import find_place
from kfext.core.lifecycle.situation import Situation
from kfext.core.network.eligibility import HostNetworkRequest, agents_alike, bypassed
from kfext.core.queue.no_fit import NoFit, NoFitCache
from kfext.core.words import listed
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict
from kfext.names import REASON_HOST_NETWORK, REASON_NETWORK_POLICIES_BYPASSED, REASON_POD_NETWORK


def place_on_network(
    situation: Situation, ledger: Ledger, no_fits: NoFitCache
) -> tuple[Assignment | NoFit, int, Verdict | None]:
    """Return the nodes of a queued job, its first port, and which network it gets and why.

    The port is 0 on the pod network. The verdict is None if the host network is not requested.
    """
    requested, job = situation.host_network, situation.job
    if requested is None:
        return find_place(situation, ledger, no_fits), 0, None
    why = requested.obstacle or situation.state.no_host_network
    if not why:
        found = find_place(replace(situation, job=hosted(job)), ledger, no_fits)
        if isinstance(found, NoFit):
            why = f"no place with its ports: {found.verdict.message}"
        elif alike := agents_alike(job, found):
            why = alike
        elif base := free_base(job, found, ledger, ports=requested.ports):
            return found, base, _on_host(situation, requested, found, base)
        else:
            low, high = requested.ports
            number = len(block(job, low))
            why = f"its nodes have no free block of ports in {low}-{high} ({number} needed)"
    return find_place(situation, ledger, no_fits), 0, Verdict(REASON_POD_NETWORK, why)


def _on_host(
    situation: Situation, requested: HostNetworkRequest, places: Assignment, base: int
) -> Verdict:
    """Return the verdict that a job uses the host network, with its ports and caveats."""
    numbers = [str(number) for _, number in block(situation.job, base)]
    what = (
        f"port {numbers[0]} is" if len(numbers) == 1 else f"ports {listed(numbers, of='ports')} are"
    )
    words = "its pods use the network of their nodes"
    words += f", where {what} reserved for them" if numbers else ""
    needs = situation.job.kind.across_nodes
    if needs and len(set(places.values())) > 1 and not requested.interfaces:
        words += f"; between nodes, {needs}"
    missed = bypassed(situation.job, requested.policies)
    if not missed:
        return Verdict(REASON_HOST_NETWORK, words)
    policies = listed(missed, of="policies")
    message = f"{words}; NetworkPolicy {policies} does not apply there"
    return Verdict(REASON_NETWORK_POLICIES_BYPASSED, message)

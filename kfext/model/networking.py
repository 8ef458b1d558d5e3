"""What a pod template says of its pods' network, as far as `network: host` depends on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.podspec import containers_of, lasting_containers_of
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.names import ISTIO_INJECT

Port = tuple[str, int]
"""Protocol and number."""
TCP = "TCP"
LARGEST_PORT = 65535
_MEETING = re.compile(r"--(master|rdzv)[-_](addr|port|endpoint)\b")
"""torchrun's options, which go before what the operator sets in the environment."""
_TOLD = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT"}
)
"""What the operator sets itself where it knows; nobody else need."""


@dataclass(frozen=True, slots=True)
class Networking:
    """The network of one template.

    `own_host`: the user asks for the node's network, or for a port of the node, already. `ports`
    are the declared ports but the one that the operator knows by name: they would be ports of the
    node on the host network. `own_meeting`: a command line or a variable says where the replicas
    meet, so that no other port would be heeded. `mesh`: an Istio sidecar is asked for. `labels` are
    those of the pods, by which NetworkPolicies find them.
    """

    own_host: bool = False
    own_meeting: bool = False
    ports: tuple[Port, ...] = ()
    mesh: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_networking(template: Mapping[str, Any], *, port_name: str) -> Networking:
    """Return the network of a template; `port_name` names the operator's port. Total."""
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    declared = [
        port
        for container in containers_of(spec)
        for port in map(mapping, sequence(container.get("ports")))
    ]
    lasting = {
        (text(port.get("protocol")) or TCP, number)
        for container in lasting_containers_of(spec)
        for port in map(mapping, sequence(container.get("ports")))
        if port.get("name") != port_name and type(number := port.get("containerPort")) is int
    }
    return Networking(
        own_host=spec.get("hostNetwork") is True or any(port.get("hostPort") for port in declared),
        own_meeting=any(map(_says_where, lasting_containers_of(spec))),
        ports=tuple(sorted(lasting)),
        mesh=any(
            strings(metadata.get(at)).get(ISTIO_INJECT) == "true"
            for at in ("labels", "annotations")
        ),
        labels=strings(metadata.get("labels")),
    )


def _says_where(container: Mapping[str, Any]) -> bool:
    words = [*sequence(container.get("command")), *sequence(container.get("args"))]
    variables = {mapping(one).get("name") for one in sequence(container.get("env"))}
    return any(_MEETING.search(text(word)) for word in words) or not _TOLD.isdisjoint(variables)

"""The parts of a pod template that decide whether `network: host` is possible."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from kfext.model.constraints import protocol_of
from kfext.model.kinds.job_kind import JobKind
from kfext.model.podspec import containers_of, lasting_containers_of
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.names import ISTIO_DATAPLANE, ISTIO_INJECT, ISTIO_REVISION, LINKERD_INJECT

Port = tuple[str, int]
"""Protocol and number."""
TCP = "TCP"
LARGEST_PORT = 65535
_RENDEZVOUS_OPTION = re.compile(r"--(master|rdzv)[-_](addr|port|endpoint)\b")
"""Options of torchrun that override the operator's environment variables."""
_YES = frozenset({"y", "yes", "true", "on"})
_RENDEZVOUS_VARIABLES = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT"}
)
"""Variables that the operator sets itself if it knows the address."""


@dataclass(frozen=True, slots=True)
class Networking:
    """The network of one template.

    `own_host`: whether the user already requests the node's network or a port of the node.
    `own_meeting`: whether a command line or a variable sets the address of the rendezvous, so that
        the pods would ignore any other port.
    `ports`: the declared ports, without the operator's own; `network: host` opens them on the node.
    `mesh`: the service mesh that the template requests; empty if it requests none.
    `labels`: the labels of the pods; NetworkPolicies select by them.
    """

    own_host: bool = False
    own_meeting: bool = False
    ports: tuple[Port, ...] = ()
    mesh: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_networking(template: Mapping[str, Any], *, kind: JobKind) -> Networking:
    """Return the network of a template. Never raises."""
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    declared = [
        port
        for container in containers_of(spec)
        for port in map(mapping, sequence(container.get("ports")))
    ]
    lasting = {
        (protocol_of(port), number)
        for container in lasting_containers_of(spec)
        for port in map(mapping, sequence(container.get("ports")))
        if not kind.is_own_port(port) and type(number := port.get("containerPort")) is int
    }
    return Networking(
        own_host=spec.get("hostNetwork") is True or any(port.get("hostPort") for port in declared),
        own_meeting=any(
            _sets_rendezvous(container, variables=_RENDEZVOUS_VARIABLES - kind.written_env)
            for container in lasting_containers_of(spec)
        ),
        ports=tuple(sorted(lasting)),
        mesh=_mesh(metadata),
        labels=strings(metadata.get("labels")),
    )


def istio_sidecar(metadata: Mapping[str, Any]) -> bool | None:
    """Return whether a template requests Istio's sidecar; None means that it does not say.

    The label prevails over the annotation, and both over the label of a revision. Source: istio
    pkg/kube/inject injectRequired, and the selectors of its webhooks.
    """
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    for written in (labels, annotations):
        if ISTIO_INJECT in written:
            return text(written[ISTIO_INJECT]).lower() in _YES
    return True if ISTIO_REVISION in labels else None


def _mesh(metadata: Mapping[str, Any]) -> str:
    if istio_sidecar(metadata) or mapping(metadata.get("labels")).get(ISTIO_DATAPLANE) == "ambient":
        return "Istio"
    linkerd = text(mapping(metadata.get("annotations")).get(LINKERD_INJECT))
    return "Linkerd" if linkerd in {"enabled", "ingress"} else ""


def _sets_rendezvous(container: Mapping[str, Any], *, variables: Set[str]) -> bool:
    words = map(text, (*sequence(container.get("command")), *sequence(container.get("args"))))
    present = {text(mapping(variable).get("name")) for variable in sequence(container.get("env"))}
    return any(map(_RENDEZVOUS_OPTION.search, words)) or not variables.isdisjoint(present)

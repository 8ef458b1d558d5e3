"""The requirements of a pod on its node besides resources: selectors, affinity, tolerations, ports.

The values are hashable, so that equal pods share a verdict on each node.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from kfext.model.bounds import LONGEST_NAME, MAX_PORTS
from kfext.model.gang_terms import Exclusive, GangTerm, affinity, anti_affinity
from kfext.model.pod_bounds import pod_excess
from kfext.model.podspec import lasting_containers_of, node_affinity
from kfext.model.tolerant import mapping, sequence, text
from kfext.model.unmodelled import unmodelled
from kfext.names import HOSTNAME, REQUIRED

NAME_FIELD = "metadata.name"
_LONGEST_PROTOCOL = 8


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of a node selector term: `key operator values`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """A node selector term: all of its requirements must hold. An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the term has no requirement at all."""
        return not self.expressions and not self.fields

    @property
    def names_node(self) -> bool:
        """Whether the term refers to nodes by name: by a field or the label of the hostname."""
        return bool(self.fields) or any(item.key == HOSTNAME for item in self.expressions)


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def written(self) -> dict[str, str]:
        """Return the JSON object of a pod spec, without empty values."""
        return {key: value for key, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class VolumeConstraints:
    """The constraints of a pod's volume claims on its node.

    `terms`: the node affinity of each bound volume; at least one term of each must match.
    `pending`: the unbound claims with volumeBindingMode Immediate.
    `unmodelled`: the claims that only kube-scheduler can locate, in words.
    """

    terms: tuple[tuple[Term, ...], ...] = ()
    pending: tuple[str, ...] = ()
    unmodelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """All properties of a pod, except its requests, that decide whether it may run on a node.

    `node_selector`: labels that the node must have, as sorted pairs of key and value.
    `terms`: the required node affinity: at least one term must match. None means that it has none.
    `host_ports`: sorted pairs of protocol and port; a port on one address of the node counts as
        used on all addresses.
    `devices`: the extended resources. Admission is expected to add a toleration of a taint with
        the name of each. Set for a template only: a pod already has its tolerations.
        Source: kubernetes plugin/pkg/admission/extendedresourcetoleration.
    `node_name`: set if the pod names its node and so bypasses kube-scheduler.
    `excess`: the bound of model.bounds that the pod exceeds, in words; then only ports are read.
    `apart`: the anti-affinity between the pods of its job; `together`: the affinity between them.
    `unmodelled`: the terms that only kube-scheduler understands, in words.
    `claims`: the names of its volume claims; `volumes`: their constraints on the node.
    `expects_tolerations`: whether admission is expected to add a toleration of each taint that
        dedicates nodes (`ledger.fit.dedicates_nodes`), except a device's. For a template only.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[tuple[str, int], ...] = ()
    devices: tuple[str, ...] = ()
    node_name: str = ""
    excess: str = ""
    apart: tuple[GangTerm, ...] = ()
    together: tuple[GangTerm, ...] = ()
    unmodelled: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    volumes: VolumeConstraints = VolumeConstraints()
    # Hidden from repr: `ReplicaGroup.template`, a checksum of the repr, must not depend on it.
    expects_tolerations: bool = field(default=False, repr=False)

    @property
    def exclusive(self) -> tuple[Exclusive, ...]:
        """Items that only one pod on a node can have: pods with a common item share no node."""
        return (*self.host_ports, *self.apart) if self.apart else self.host_ports

    @property
    def gang_terms(self) -> tuple[GangTerm, ...]:
        """The terms about the pods of its job."""
        return self.apart + self.together

    def scoped(self, namespace: str) -> Self:
        """Return the constraints with the pod's namespace in the terms about its job."""
        if not self.gang_terms:
            return self
        apart = tuple(term.scoped(namespace) for term in self.apart)
        return replace(
            self, apart=apart, together=tuple(term.scoped(namespace) for term in self.together)
        )

    @property
    def pinned_to(self) -> str | None:
        """The only node that the required affinity allows by name, or None."""
        if not self.terms:
            return None
        names = set()
        for term in self.terms:
            named = [f.values for f in term.fields if f.key == NAME_FIELD and f.operator == "In"]
            if not named:
                return None
            names.update(set.intersection(*map(set, named)))
        return names.pop() if len(names) == 1 else None


def parse_constraints(spec: Mapping[str, Any]) -> Constraints:
    """Return the constraints of a pod spec, without invalid parts."""
    if excess := pod_excess(spec):
        return Constraints(host_ports=_host_ports(spec)[:MAX_PORTS], excess=excess)
    selector = mapping(spec.get("nodeSelector"))
    return Constraints(
        node_selector=tuple(sorted((str(key), text(value)) for key, value in selector.items())),
        terms=parse_terms(node_affinity(spec).get(REQUIRED)),
        tolerations=tuple(
            Toleration(
                key=text(item.get("key")),
                operator=text(item.get("operator")) or "Equal",
                value=text(item.get("value")),
                effect=text(item.get("effect")),
            )
            for item in map(mapping, sequence(spec.get("tolerations")))
        ),
        host_ports=_host_ports(spec),
        node_name=text(spec.get("nodeName")),
        apart=anti_affinity(spec) or (),
        together=affinity(spec) or (),
        unmodelled=unmodelled(spec),
        claims=_claims(spec),
    )


def parse_terms(selector: object) -> tuple[Term, ...] | None:
    """Return the terms of a node selector; None means that there is none. Never raises."""
    selector = mapping(selector)
    if not selector:
        return None
    return tuple(
        Term(
            expressions=_requirements(mapping(term).get("matchExpressions")),
            fields=_requirements(mapping(term).get("matchFields")),
        )
        for term in sequence(selector.get("nodeSelectorTerms"))
    )


def _requirements(items: object) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            key=text(item.get("key")),
            operator=text(item.get("operator")),
            values=tuple(text(value) for value in sequence(item.get("values"))),
        )
        for item in map(mapping, sequence(items))
    )


def protocol_of(port: Mapping[str, Any]) -> str:
    """Return the protocol of a declared port, cut to a bound; TCP by default."""
    return text(port.get("protocol"))[:_LONGEST_PROTOCOL] or "TCP"


def _host_ports(spec: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return (protocol, port) of every host port; on the host network, of every declared port."""
    ports = set()
    for container in lasting_containers_of(spec):
        for port in map(mapping, sequence(container.get("ports"))):
            number = port.get("hostPort")
            if not number and spec.get("hostNetwork") is True:
                number = port.get("containerPort")
            if isinstance(number, int) and number > 0:
                ports.add((protocol_of(port), number))
    return tuple(sorted(ports))


def _claims(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the volume claims, each once, in name order."""
    volumes = map(mapping, sequence(spec.get("volumes")))
    claims = (mapping(volume.get("persistentVolumeClaim")) for volume in volumes)
    return tuple(sorted({text(claim.get("claimName"))[:LONGEST_NAME] for claim in claims if claim}))

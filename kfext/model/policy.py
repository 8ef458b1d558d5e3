"""TrainingPolicy: an administrator's settings for the jobs of some namespaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kfext.model.label_selector import LabelSelector, parse_selector
from kfext.model.parameters import HostNetwork, Placement, Queueing, parse_section
from kfext.model.tolerant import mapping, strings, text
from kfext.names import DOMAIN

_OBSERVING = frozenset({"preempt"})
"""The policies that stop jobs: unless their mode is set, they only do a dry run."""
_LARGEST = 1e9
"""The largest value of a parameter."""


class Mode(StrEnum):
    """What a policy of the companion may do: nothing, a dry run, or changes."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The mode and parameters of a policy of the companion; others have their defaults."""

    mode: Mode = Mode.ACT
    parameters: Mapping[str, float] = field(default_factory=dict)


def default_choice(policy: str) -> PolicyChoice:
    """Return the choice for a policy of the companion that no TrainingPolicy names."""
    return PolicyChoice(Mode.OBSERVE if policy in _OBSERVING else Mode.ACT)


@dataclass(frozen=True, slots=True)
class TrainingPolicy:
    """One TrainingPolicy; `settings` has full annotation keys, `companion` the names of policies.

    Of the policies that select a namespace, the policy with the highest weight applies; with equal
    weights, the first by name.
    """

    name: str = ""
    weight: int = 0
    selector: LabelSelector = field(default_factory=LabelSelector)
    settings: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    network: HostNetwork = field(default_factory=HostNetwork)
    queue: Queueing = field(default_factory=Queueing)
    companion: Mapping[str, PolicyChoice] = field(default_factory=dict)


def parse_policy(raw: Mapping[str, Any]) -> TrainingPolicy:
    """Return a policy from its JSON object. Never raises."""
    spec = mapping(raw.get("spec"))
    weight = spec.get("weight")
    return TrainingPolicy(
        name=text(mapping(raw.get("metadata")).get("name")),
        weight=weight if type(weight) is int else 0,
        selector=parse_selector(spec.get("namespaceSelector")),
        settings={f"{DOMAIN}/{key}": value for key, value in strings(spec.get("settings")).items()},
        queue=parse_section(Queueing, spec.get("queue")),
        placement=parse_section(Placement, spec.get("placement")),
        network=parse_section(HostNetwork, spec.get("network")),
        companion={
            name: _choice(mapping(choice), default_choice(name).mode)
            for name, choice in mapping(spec.get("companion")).items()
        },
    )


def policy_for(
    policies: Iterable[TrainingPolicy], namespace_labels: Mapping[str, str]
) -> TrainingPolicy:
    """Return the policy that applies to a namespace; a policy of defaults if none selects it."""
    selected = [policy for policy in policies if policy.selector.matches(namespace_labels)]
    return min(selected, key=lambda policy: (-policy.weight, policy.name), default=TrainingPolicy())


def _choice(raw: Mapping[str, Any], default: Mode) -> PolicyChoice:
    """Return a policy's choice; an unknown mode, perhaps of a later version, means `off`."""
    mode = raw.get("mode", default)
    return PolicyChoice(
        mode=Mode(mode) if mode in tuple(Mode) else Mode.OFF,
        parameters={
            name: float(value)
            for name, value in mapping(raw.get("parameters")).items()
            if type(value) in {int, float} and abs(value) <= _LARGEST
        },
    )

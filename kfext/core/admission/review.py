"""What a review needs to know of the cluster, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kfext.core.patches.json_patch import Operation
from kfext.model.namespace import Namespace, is_managed
from kfext.model.policy import TrainingPolicy
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Facts:
    """The namespace, the policies and the controller, all from a watched cache."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    policies: Sequence[TrainingPolicy] = ()
    controller_alive: bool = False

    def namespace(self, name: str) -> Namespace:
        """Return the namespace of the object under review."""
        return Namespace(name, self.namespace_labels, self.namespace_annotations)

    @property
    def managed(self) -> bool:
        """Whether an administrator opted the namespace in."""
        return is_managed(self.namespace_labels)


@dataclass(frozen=True, slots=True)
class Mutation:
    """The answer to one review.

    `ops`: a JSON patch.
    `warnings`: shown to the user who submits the object.
    `refusal`: why the object is refused; empty if it is accepted.
    `verdicts`: what was done or left alone, and why.
    """

    ops: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    verdicts: tuple[Verdict, ...] = ()

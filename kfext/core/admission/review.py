"""The input and the result of one admission review."""

from collections.abc import Sequence
from dataclasses import dataclass

from kfext.core.patches.json_patch import Operation
from kfext.model.kinds.job_kind import JobKind
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy
from kfext.model.verdict import Verdict

_UNKNOWN = Namespace("")


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The facts about the cluster on which a review depends, from the caches of the watches.

    `namespace`: the namespace of the object under review.
    `controller_alive`: whether a controller renews the Lease.
    `kinds`: the kinds of jobs that the controller handles; None means unknown.
    """

    namespace: Namespace = _UNKNOWN
    policies: Sequence[TrainingPolicy] = ()
    controller_alive: bool = False
    kinds: frozenset[str] | None = None

    def handles(self, kind: JobKind) -> bool:
        """Return whether the controller, if one is alive, handles jobs of a kind."""
        return not self.controller_alive or self.kinds is None or kind.name in self.kinds


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """What a review decided.

    `ops`: the changes of the object, as a JSON patch.
    `warnings`: messages for the user who submits the object.
    `refusal`: the reason for a refusal, empty if the object is accepted.
    `verdicts`: the reason and the message of each decision, even if it changes nothing.
    """

    ops: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    verdicts: tuple[Verdict, ...] = ()

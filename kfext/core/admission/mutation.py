"""What admission does to an object, as a value."""

from dataclasses import dataclass

from kfext.core.patches.json_patch import Operation
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Mutation:
    """The answer to one review.

    `ops` is a JSON patch; `warnings` are shown to whoever submitted the object; `refusal`, if not
    empty, denies it and says why; `verdicts` tell what was done or left alone, and why.
    """

    ops: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    verdicts: tuple[Verdict, ...] = ()

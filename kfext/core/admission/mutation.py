"""What admission does to an object, as a value."""

from dataclasses import dataclass

from kfext.core.patches.json_patch import Operation
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Mutation:
    """The answer to one review.

    `ops`: a JSON patch.
    `warnings`: shown to the user who submits the object.
    `refusal`: why the object is refused, empty if it is not.
    `verdicts`: what was done or left alone, and why.
    """

    ops: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    verdicts: tuple[Verdict, ...] = ()

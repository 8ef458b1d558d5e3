"""What the pods of a soak print: fakes, as nothing trains on nodes that kwok plays.

All pods have one log. Its steps come at one pace whatever the number of workers and never go back,
and now and then it has a checkpoint. So kfext takes workers of running PyTorchJobs too, after a
checkpoint, and finds that more of them do not pay.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.harness.fake_kubelet import LINES_PER_SECOND, GrowingLog, growing
from e2e.testbed import fakenodes
from e2e.testbed.cluster import Testbed

_SAVES_EVERY = 30 * LINES_PER_SECOND
"""Steps: far enough apart that a change at any time would lose work."""


@contextmanager
def fake_programs(testbed: Testbed) -> Iterator[GrowingLog]:
    """Have fake nodes whose pods print that log; the first of them is there and ready."""
    with growing(testbed.folder / "pods.log", saves_every=_SAVES_EVERY) as log:
        fakenodes.start(testbed, 1, log=log.path)
        fakenodes.wait_ready(testbed, 1)
        yield log

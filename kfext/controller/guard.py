"""One rule for an error of ours about one object: it is logged and counted, and the rest goes on.

Users write most objects, and what one of them causes would else end the controller of all, and
meet it again after each start.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import Counter

_log = structlog.get_logger(__name__)

ERRORS = Counter(
    "kfext_errors_total", "Errors of kfext for which an object was left aside", registry=None
)


@contextmanager
def guard(doing: str, **about: object) -> Iterator[None]:
    """Leave what is done in this context when it fails; `doing` and `about` name it in the log."""
    try:
        yield
    except Exception:
        _log.exception("left aside", doing=doing, **about)
        ERRORS.inc()

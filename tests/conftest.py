"""Tests assert results, not speed: a busy machine must not make a test fail."""

import structlog
from hypothesis import settings

settings.register_profile("kfext", deadline=None)
settings.load_profile("kfext")

# The default draws the values of all locals, which takes seconds where a test nests them deeply.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
